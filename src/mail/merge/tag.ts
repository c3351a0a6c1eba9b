import { type Condition, isName, parseCondition } from './condition.ts';

/** A change that a tag makes to the value of a variable. */
export type Filter = 'upper' | 'lower' | 'title' | 'url' | 'html';

/** What stands between `*|` and `|*`. */
export type Tag =
  | { readonly kind: 'value'; readonly name: string; readonly filter: Filter | undefined }
  | { readonly kind: 'if' | 'elseif'; readonly condition: Condition | undefined; readonly negated: boolean }
  | { readonly kind: 'else' | 'end' }
  | { readonly kind: 'date'; readonly format: string }
  /** The link that ends a subscription: only a real sending knows it. */
  | { readonly kind: 'unsub'; readonly url: string }
  /** Of a form that means nothing here. */
  | { readonly kind: 'unknown' };

/** Longer than any tag: a URL behind `UNSUB:` is the longest thing in one. */
export const LONGEST_TAG = 2048;

const FILTERS: ReadonlyMap<string, Filter> = new Map<string, Filter>([
  ['upper', 'upper'],
  ['lower', 'lower'],
  ['title', 'title'],
  ['url', 'url'],
  ['html', 'html'],
]);

/** Reads a tag; undefined when the text between the marks is none, and stays as it is. */
export function parseTag(text: string): Tag | undefined {
  if (text.length > LONGEST_TAG || /[\r\n]/.test(text)) return undefined;
  const colon = text.indexOf(':');
  const head = colon < 0 ? text : text.slice(0, colon);
  if (!isName(head)) return undefined;
  return colon < 0 ? toPlain(head.toLowerCase()) : toCall(head.toLowerCase(), text.slice(colon + 1));
}

function toPlain(name: string): Tag {
  if (name === 'else') return { kind: 'else' };
  if (name === 'unsub') return { kind: 'unsub', url: '' };
  return { kind: 'value', name, filter: undefined };
}

function toCall(head: string, rest: string): Tag {
  const filter = FILTERS.get(head);
  if (filter) return isName(rest) ? { kind: 'value', name: rest.toLowerCase(), filter } : { kind: 'unknown' };
  switch (head) {
    case 'if':
    case 'ifnot':
      return { kind: 'if', condition: parseCondition(rest), negated: head === 'ifnot' };
    case 'elseif':
      return { kind: 'elseif', condition: parseCondition(rest), negated: false };
    case 'else':
      return { kind: 'else' };
    case 'end':
      return rest.trim().toLowerCase() === 'if' ? { kind: 'end' } : { kind: 'unknown' };
    case 'date':
      return { kind: 'date', format: rest };
    case 'unsub':
      return { kind: 'unsub', url: rest };
    default:
      return { kind: 'unknown' };
  }
}

/** The value as the filter shows it. Values are never escaped, so `HTML:` shows what every tag shows. */
export function filtered(value: string, filter: Filter | undefined): string {
  switch (filter) {
    case 'upper':
      return value.toUpperCase();
    case 'lower':
      return value.toLowerCase();
    case 'title':
      return value.replace(/\p{L}[\p{L}\p{M}\p{N}'’]*/gu, (word) =>
        word.replace(/^./u, (first) => first.toUpperCase()),
      );
    case 'url':
      return encodeURIComponent(value.toWellFormed());
    default:
      return value;
  }
}
