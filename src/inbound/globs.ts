import { fold, literals, matches } from '../mail/pattern.ts';

/** The patterns with wildcards of one domain, as a table: looking a mailbox up takes the same time among ten and among 100,000. */
export interface Globs<T> {
  /** Of those that match, the one with the most literal characters, and among these the first that was given. */
  find(mailbox: string): T | undefined;
}

interface Entry<T> {
  readonly pattern: string;
  readonly value: T;
  /** Its place in the order they are tried in. */
  readonly rank: number;
}

/** Entries by the literal text at one end of their patterns, and the lengths that this text has. */
interface End<T> {
  readonly entries: Map<string, Entry<T>[]>;
  readonly lengths: Set<number>;
}

/**
 * A pattern is filed under the longer of its two literal ends (`support-*`, `*-vip`): a mailbox has few beginnings and few ends,
 * so only patterns that share one with it are tried. Those without (`*`, `*word*`) are tried in turn.
 */
export function createGlobs<T>(all: readonly { readonly pattern: string; readonly value: T }[]): Globs<T> {
  // Counted once each, not once a comparison. Sorting is stable: among equals the first stays in front.
  const counted = all
    .map((glob) => ({ ...glob, literals: literals(glob.pattern) }))
    .sort((a, b) => b.literals - a.literals);
  const heads: End<T> = { entries: new Map(), lengths: new Set() };
  const tails: End<T> = { entries: new Map(), lengths: new Set() };
  const rest: Entry<T>[] = [];
  for (const [rank, { pattern, value }] of counted.entries()) file({ pattern, value, rank }, { heads, tails, rest });

  return Object.freeze({
    find(mailbox: string) {
      const name = fold(mailbox);
      let best: Entry<T> | undefined;
      const look = (entries: readonly Entry<T>[] = []) => {
        best = firstMatch(entries, mailbox, best);
      };
      for (const length of heads.lengths) if (length <= name.length) look(heads.entries.get(name.slice(0, length)));
      for (const length of tails.lengths)
        if (length <= name.length) look(tails.entries.get(name.slice(name.length - length)));
      look(rest);
      return best?.value;
    },
  });
}

function file<T>(
  entry: Entry<T>,
  { heads, tails, rest }: { readonly heads: End<T>; readonly tails: End<T>; readonly rest: Entry<T>[] },
): void {
  const pattern = fold(entry.pattern);
  const first = pattern.search(/[*?]/);
  const last = Math.max(pattern.lastIndexOf('*'), pattern.lastIndexOf('?'));
  const atHead = first >= pattern.length - 1 - last;
  const text = atHead ? pattern.slice(0, first) : pattern.slice(last + 1);
  if (text === '') return void rest.push(entry);
  const end = atHead ? heads : tails;
  end.lengths.add(text.length);
  const filed = end.entries.get(text);
  if (filed) filed.push(entry);
  else end.entries.set(text, [entry]);
}

/** The first that matches, if it comes before `best`. */
function firstMatch<T>(
  entries: readonly Entry<T>[],
  mailbox: string,
  best: Entry<T> | undefined,
): Entry<T> | undefined {
  for (const entry of entries) {
    if (best && entry.rank > best.rank) break;
    if (matches(entry.pattern, mailbox)) return entry;
  }
  return best;
}
