import { MESSAGE_LIMITS } from '../outgoing.ts';
import { rawCharset } from './header-section.ts';
import { type HeaderField, parseHeaders } from './headers.ts';

// Finds a few fields in the first octets of a message that is not parsed yet, in two steps: acceptance only finds the
// fields, in one pass over a bounded number of octets; they are decoded later, on another thread.

/** A field to find: its name in lower case, and how many of them: the first ones, or the last one. */
export interface WantedField {
  readonly name: string;
  readonly most: number;
  readonly last?: true;
}

/** Finds fields in a message, in the order requested; returns latin1, because a string is cheap to pass to a thread. */
export type FieldSearch = (message: Uint8Array) => string;

/**
 * Octets of a message that are searched: longer headers are made to be expensive. Fields beyond the number that is
 * parsed (`MESSAGE_LIMITS`) are ignored.
 */
export const START_BYTES = 64 * 1024;
/** Octets of one field that are kept, and encoded words that are decoded: enough for 200 characters. */
const FIELD_BYTES = 2048;
const MAX_WORDS = 24;

/** Where a field begins, and where the next one does. */
type Span = readonly [start: number, end: number];

/** Creates a search; even the worst message costs it some tenths of a millisecond. */
export function createFieldSearch(
  wanted: readonly WantedField[],
  { startBytes = START_BYTES, fieldBytes = FIELD_BYTES } = {},
): FieldSearch {
  // By first letter: one comparison rules most fields out.
  const byLetter = Array.from({ length: 256 }, (_, code) =>
    wanted.flatMap((one, n) => ((one.name.charCodeAt(0) | CASE_BIT) === code ? [{ ...one, n }] : [])),
  );
  return (message) => {
    const head = Buffer.from(message.buffer, message.byteOffset, Math.min(message.length, startBytes));
    // As for every reader: a message that begins with a blank is all body (`isHeadless`).
    if (isBlank(head[0])) return '';
    const found: Span[][] = wanted.map(() => []);
    let count = 0;
    for (let at = 0; at < head.length && !isEmptyLine(head, at) && count < MESSAGE_LIMITS.headerFields; count++) {
      let end = nextLine(head, at);
      while (isBlank(head[end])) end = nextLine(head, end);
      const start = at;
      const named = byLetter[(head[at] ?? 0) | CASE_BIT]?.find(({ name }) => isNamed(head, start, name));
      const spans = named && found[named.n];
      if (named?.last) spans?.splice(0, 1, [at, end]);
      else if (spans && spans.length < named.most) spans.push([at, end]);
      at = end;
    }
    const fields = found
      .flat()
      .map(([at, end]) => `${head.toString('latin1', at, Math.min(end, at + fieldBytes))}\n`)
      .join('');
    const charset = RAW.test(fields) ? rawCharset(head) : undefined;
    return charset === undefined ? fields : `${fields}${CHARSET}: ${charset.slice(0, 40)}\n`;
  };
}

/** Octets that are not ASCII, or an escape: their charset is passed along, as a field that no message has. */
const RAW = /[\x1b\x80-\xff]/;
const CHARSET = 'Postern-Charset';
const CHARSET_FIELD = new RegExp(`^${CHARSET}: ([\\w.:+-]+)\n$`, 'm');

/** Parses what a search found. */
export function parseFound(found: string): HeaderField[] {
  const bounded = found
    .split(/\n(?![ \t])/)
    .map(withFewWords)
    .join('\n');
  const [, charset] = CHARSET_FIELD.exec(found) ?? [];
  return parseHeaders(Buffer.from(bounded, 'latin1'), () => charset);
}

/** Each encoded word may have a charset of its own, which takes long to look up. */
function withFewWords(field: string): string {
  let words = 0;
  for (const { index } of field.matchAll(ENCODED_WORD)) if (++words > MAX_WORDS) return field.slice(0, index);
  return field;
}

const ENCODED_WORD = /=\?[^?]{1,80}\?[QqBb]\?[^?]*\?=/g;

const [LF, CR, SPACE, TAB, COLON] = [0x0a, 0x0d, 0x20, 0x09, 0x3a];

const isBlank = (byte: number | undefined): boolean => byte === SPACE || byte === TAB;

const isEmptyLine = (bytes: Uint8Array, at: number): boolean =>
  bytes[at] === LF || (bytes[at] === CR && bytes[at + 1] === LF);

/** For lines of two octets, a call of `indexOf` would cost more than the search. */
function nextLine(bytes: Uint8Array, at: number): number {
  while (at < bytes.length && bytes[at] !== LF) at++;
  return Math.min(at + 1, bytes.length);
}

/** Whether a field has this name, in any case, with or without blanks before the colon, maybe on the next line. */
function isNamed(bytes: Uint8Array, start: number, name: string): boolean {
  let at = start;
  for (let i = 0; i < name.length; i++)
    if (((bytes[at++] ?? 0) | CASE_BIT) !== (name.charCodeAt(i) | CASE_BIT)) return false;
  while (isBlank(bytes[at]) || bytes[at] === CR || bytes[at] === LF) at++;
  return bytes[at] === COLON;
}

/** The bit that distinguishes capitals from small letters. */
const CASE_BIT = 0x20;
