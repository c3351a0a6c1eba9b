import type { SentMessageRow } from '../../store/messages.ts';

// The query language of /messages/search: words that all have to be found, `field:value`, quotes, `-` in front for "not", OR between.

/** Whether a message is meant. */
export type Matches = (row: SentMessageRow) => boolean;

const MAX_TERMS = 50;
// A word, perhaps with a field in front; quotes hold words together.
const TERM = /(-?)(?:([a-z_]+):)?(?:"([^"]*)"?|(\S+))/gi;

type TextsOf = (row: SentMessageRow) => readonly string[];

/** Fields that are searched in, and those that have to be the same. */
const WITHIN: ReadonlyMap<string, TextsOf> = new Map<string, TextsOf>([
  ['email', ({ email }) => [email]],
  ['full_email', ({ email }) => [email]],
  ['sender', ({ sender }) => [sender]],
  ['subject', ({ subject }) => [subject]],
]);
const SAME: ReadonlyMap<string, TextsOf> = new Map<string, TextsOf>([
  ['tag', ({ tags }) => tags],
  ['tags', ({ tags }) => tags],
  ['state', ({ state }) => [state]],
  ['template', ({ template }) => [template ?? '']],
  ['subaccount', ({ subaccount }) => [subaccount ?? '']],
]);
const ANYWHERE = ({ email, sender, subject, tags }: SentMessageRow) => [email, sender, subject, ...tags];

/** Reads a query. An empty one, and `*`, mean every message. A field that is not known is a metadata field (`u_name:value`), or plain text. */
export function parseQuery(query: string): Matches {
  const groups: Matches[][] = [];
  let either = false;
  let count = 0;
  for (const [word = '', minus = '', field, quoted, bare = ''] of query.matchAll(TERM)) {
    if (word === 'AND') continue;
    if (word === 'OR') {
      either = true;
      continue;
    }
    if (++count > MAX_TERMS) break;
    const value = quoted ?? bare;
    const term = toTerm(field?.toLowerCase(), value, field === undefined ? value : `${field}:${value}`);
    if (!term) continue;
    const match: Matches = minus === '' ? term : (row) => !term(row);
    const last = groups.at(-1);
    if (either && last) last.push(match);
    else groups.push([match]);
    either = false;
  }
  return (row) => groups.every((group) => group.some((match) => match(row)));
}

function toTerm(field: string | undefined, value: string, whole: string): Matches | undefined {
  const wanted = value.toLowerCase();
  const within = WITHIN.get(field ?? '');
  const same = SAME.get(field ?? '');
  if (same) return toSame(same, wanted);
  if (within) return toWithin(within, wanted);
  if (field?.startsWith('u_'))
    return ({ metadata }) =>
      Object.entries(metadata).some(
        ([name, own]) => name.toLowerCase() === field.slice(2) && String(own).toLowerCase() === wanted,
      );
  return toWithin(ANYWHERE, whole.toLowerCase());
}

function toWithin(of: TextsOf, wanted: string): Matches | undefined {
  const bare = wanted.replace(/^\*+|\*+$/g, '');
  return bare === '' ? undefined : (row) => of(row).some((text) => text.toLowerCase().includes(bare));
}

/** A `*` at the end means the beginning. */
function toSame(of: TextsOf, wanted: string): Matches {
  const prefix = wanted.endsWith('*') ? wanted.slice(0, -1) : undefined;
  return (row) =>
    of(row).some((text) =>
      prefix === undefined ? text.toLowerCase() === wanted : text.toLowerCase().startsWith(prefix),
    );
}
