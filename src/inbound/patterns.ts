import { frozen } from '../base/frozen.ts';
import { foldCase } from '../mail/addresses/address.ts';

/**
 * Route patterns: globs on the mailbox name. `*` matches any run of characters, `?` exactly one, `{name}` one or more,
 * which the payload has under that name; everything else matches itself, in any case; the whole mailbox must match. No
 * regular expressions: they can be made to run forever.
 */

/** Longest pattern; a mailbox name has at most 64 characters (RFC 5321 section 4.5.3.1.1). */
export const MAX_PATTERN = 255;

const NAME = /\{([a-z][a-z0-9_]{0,31})\}/;
const NAMES = new RegExp(NAME, 'g');

/** The names in a pattern, in order. */
export const patternNames = (pattern: string): readonly string[] =>
  [...pattern.matchAll(NAMES)].map(([, name = '']) => name);

export const hasNames = (pattern: string): boolean => NAME.test(pattern);

/** The pattern without names, which matches the same. */
export const toGlob = (pattern: string): string => pattern.replace(NAMES, '?*');

/** A mailbox that the pattern matches. */
export const sampleMailbox = (pattern: string): string =>
  pattern.replace(NAMES, '*').replaceAll('*', 'sample').replaceAll('?', 'x');

/** Whether `mailbox` matches, in time at most proportional to the product of the two lengths. */
export const matches = (pattern: string, mailbox: string): boolean => matchesGlob(toGlob(pattern), mailbox);

/**
 * The text that each name in a pattern matches in a mailbox, as the sender wrote it. Each matches as few characters as
 * possible, the last one the rest: `{list}-{user}` finds `a` and `b-c` in `a-b-c`.
 */
export function capture(pattern: string, mailbox: string): Readonly<Record<string, string>> {
  const written = [...mailbox];
  const name = [...foldCase(mailbox)];
  const source = written.length === name.length ? written : name;
  const tokens = tokensOf(pattern);
  const spans = new Map<string, readonly [from: number, to: number]>();
  let t = 0;
  let n = 0;
  /** The last run of characters: its token, where it begins, and where it ends so far. */
  let run = -1;
  let from = 0;
  let to = 0;
  const end = () => {
    const of = tokens[run]?.name;
    if (of !== undefined) spans.set(of, [from, to]);
  };
  while (n < name.length) {
    const token = tokens[t];
    if (token?.least !== undefined && n + token.least <= name.length) {
      end();
      [run, from, to] = [t++, n, n + token.least];
      n = to;
    } else if (token?.least === undefined && token && (token.char === '?' || token.char === name[n])) {
      t++;
      n++;
    } else if (run >= 0) {
      t = run + 1;
      n = ++to;
    } else {
      return {};
    }
  }
  end();
  return Object.fromEntries([...spans].map(([of, [start, stop]]) => [of, source.slice(start, stop).join('')]));
}

/** A character of a pattern, or a run with a minimum length, which may have a name. */
interface Token {
  readonly char?: string;
  readonly least?: number;
  readonly name?: string;
}

function tokensOf(pattern: string): readonly Token[] {
  return pattern.split(/(\{[a-z][a-z0-9_]{0,31}\}|\*)/).flatMap((piece): readonly Token[] => {
    const [, name] = NAME.exec(piece) ?? [];
    if (name !== undefined) return [{ least: 1, name }];
    return piece === '*' ? [{ least: 0 }] : [...foldCase(piece)].map((char) => ({ char }));
  });
}

/** Whether a text, folded already, matches one of these globs, in which braces have no meaning. */
export const matchesAny = (globs: readonly string[], folded: string): boolean =>
  globs.some((glob) => (glob.includes('?') ? matchesGlob(glob, folded) : matchesRuns(foldCase(glob), folded)));

/** Whether a glob without `?` matches, by native searches: it is many times faster than by characters. */
function matchesRuns(glob: string, text: string): boolean {
  const [head = '', ...rest] = glob.split('*');
  const tail = rest.pop();
  if (tail === undefined) return head === text;
  if (text.length < head.length + tail.length || !text.startsWith(head) || !text.endsWith(tail)) return false;
  const end = text.length - tail.length;
  let at = head.length;
  for (const run of rest) {
    const found = text.indexOf(run, at);
    if (found === -1 || found + run.length > end) return false;
    at = found + run.length;
  }
  return at <= end;
}

function matchesGlob(pattern: string, mailbox: string): boolean {
  const glob = [...foldCase(pattern)];
  const name = [...foldCase(mailbox)];
  let g = 0;
  let n = 0;
  let star = -1; // the last `*` seen, to return to with one more character in it
  let resume = 0;
  while (n < name.length) {
    if (glob[g] === '*') {
      star = g++;
      resume = n;
    } else if (g < glob.length && (glob[g] === '?' || glob[g] === name[n])) {
      g++;
      n++;
    } else if (star >= 0) {
      g = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (glob[g] === '*') g++;
  return g === glob.length;
}

/** Whether the pattern has no wildcards: it then names one mailbox and wins over all others. */
export function isExact(pattern: string): boolean {
  return !/[*?]/.test(pattern) && !hasNames(pattern);
}

/** Returns the number of literal characters: the more, the more specific the pattern. */
export function literals(pattern: string): number {
  return [...toGlob(pattern)].filter((c) => c !== '*' && c !== '?').length;
}

/** An index of one domain's wildcard patterns: a lookup takes the same time among ten and among 100,000. */
export type Globs<T> = ReturnType<typeof createGlobs<T>>;

interface Glob<T> {
  readonly pattern: string;
  /** Higher ones come first; 0 if absent. */
  readonly priority?: number;
  readonly value: T;
}

interface Entry<T> {
  readonly pattern: string;
  readonly value: T;
  /** Position in the order of matching. */
  readonly rank: number;
}

/** Entries by the literal text at one end of their patterns, and the lengths of these texts. */
interface End<T> {
  readonly entries: Map<string, Entry<T>[]>;
  readonly lengths: Set<number>;
}

/**
 * Indexes each pattern by the longer of its two literal ends (`support-*`, `*-vip`): a mailbox has few prefixes and
 * suffixes, so only patterns that share one with it are tried. Patterns without literal ends (`*`, `*word*`) are tried
 * in turn.
 */
export function createGlobs<T>(given: readonly Glob<T>[]) {
  // Counted once per pattern, not per comparison. The sort is stable: equals keep their order.
  const counted = given
    .map((glob) => ({ ...glob, literals: literals(glob.pattern) }))
    .sort((a, b) => (b.priority ?? 0) - (a.priority ?? 0) || b.literals - a.literals);
  const heads: End<T> = { entries: new Map(), lengths: new Set() };
  const tails: End<T> = { entries: new Map(), lengths: new Set() };
  const rest: Entry<T>[] = [];
  for (const [rank, { pattern, value }] of counted.entries()) file({ pattern, value, rank }, { heads, tails, rest });

  /** The lists that may have matches. */
  function* listsFor(mailbox: string): Generator<readonly Entry<T>[]> {
    const name = foldCase(mailbox);
    for (const length of heads.lengths) if (length <= name.length) yield heads.entries.get(name.slice(0, length)) ?? [];
    for (const length of tails.lengths)
      if (length <= name.length) yield tails.entries.get(name.slice(name.length - length)) ?? [];
    yield rest;
  }

  return frozen({
    /** Returns the match with the highest priority, the most literal characters, and among equals the first given. */
    find(mailbox: string) {
      let best: Entry<T> | undefined;
      for (const entries of listsFor(mailbox)) best = firstMatch(entries, mailbox, best);
      return best?.value;
    },
    /** Returns all matches in this order, up to the first of which `isLast` is true. */
    all(mailbox: string, isLast: (value: T) => boolean): readonly T[] {
      const found: Entry<T>[] = [];
      let last = Number.POSITIVE_INFINITY;
      for (const entries of listsFor(mailbox)) {
        for (const entry of entries) {
          if (entry.rank > last) break;
          if (!matchesGlob(entry.pattern, mailbox)) continue;
          found.push(entry);
          if (isLast(entry.value)) last = entry.rank;
        }
      }
      return found
        .filter(({ rank }) => rank <= last)
        .sort((a, b) => a.rank - b.rank)
        .map(({ value }) => value);
    },
  });
}

function file<T>(
  entry: Entry<T>,
  { heads, tails, rest }: { readonly heads: End<T>; readonly tails: End<T>; readonly rest: Entry<T>[] },
): void {
  const pattern = foldCase(entry.pattern);
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

/** Returns the first match if it ranks before `best`, else `best`. */
function firstMatch<T>(
  entries: readonly Entry<T>[],
  mailbox: string,
  best: Entry<T> | undefined,
): Entry<T> | undefined {
  for (const entry of entries) {
    if (best && entry.rank > best.rank) break;
    if (matchesGlob(entry.pattern, mailbox)) return entry;
  }
  return best;
}
