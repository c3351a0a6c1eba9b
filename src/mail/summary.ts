import { authorOf } from './author.ts';
import { rawCharset } from './header-section.ts';
import { firstValue, type HeaderField, parseHeaders } from './headers.ts';
import { type Mailbox, subjectOf } from './message.ts';
import { CAPS, type Outgoing } from './outgoing.ts';

// What people know a message by: who wrote it, about what, and its id. It is found in two steps: whoever accepts a
// message only finds the fields, in one pass over a bounded number of octets; they are decoded later, on another thread.

/** From, Subject and Message-ID of a message, decoded, each of at most `MAX_TEXT` characters. */
export interface MailSummary {
  /** Null without an author. */
  readonly from: string | null;
  /** Empty without one. */
  readonly subject: string | null;
  readonly messageId: string | null;
}

/** Characters of a text that the history keeps. */
const MAX_TEXT = 200;

/** A message whose header is parsed. */
interface Parsed {
  /** The author. */
  readonly from: Mailbox | undefined;
  readonly subject: string;
  readonly fields: readonly HeaderField[];
}

export function toSummary({ from, subject, fields }: Parsed): MailSummary {
  return {
    from: short(from ? (from.name === null ? from.address : `${from.name} <${from.address}>`) : null),
    subject: short(subject),
    messageId: short(firstValue(fields, 'message-id') ?? null),
  };
}

/** What an account said about a message that it sends; null if there is no such message. */
export function summaryOfOutgoing(outgoing: Outgoing | undefined): MailSummary | null {
  if (!outgoing) return null;
  const { sender, fromName, subject } = outgoing;
  return toSummary({ from: { address: sender, name: fromName }, subject, fields: [] });
}

const short = (text: string | null): string | null => text?.slice(0, MAX_TEXT) ?? null;

/**
 * Octets of a message in which the fields are looked for: longer headers are made to be expensive. Of more fields than
 * are parsed (`CAPS`), the rest is not looked at.
 */
export const START_BYTES = 64 * 1024;
/** Octets of one field that are kept, and encoded words that are decoded: enough for `MAX_TEXT` characters. */
const FIELD_BYTES = 2048;
const MAX_WORDS = 24;

/**
 * Finds the fields of the summary in the first octets of a message, as latin1: a string is cheap to give to a thread.
 * Takes some tenths of a millisecond for the worst that a stranger can write there.
 */
export function summaryFields(message: Uint8Array): string {
  const head = Buffer.from(message.buffer, message.byteOffset, Math.min(message.length, START_BYTES));
  // As for every reader: a message that begins with a blank is all body (`isHeadless`).
  if (isBlank(head[0])) return '';
  const from: Span[] = [];
  let [subject, messageId]: [Span | undefined, Span | undefined] = [undefined, undefined];
  let count = 0;
  for (let at = 0; at < head.length && !isEmptyLine(head, at) && count < CAPS.headerFields; count++) {
    let end = nextLine(head, at);
    while (isBlank(head[end])) end = nextLine(head, end);
    // As everywhere: the first From with an author, the last Subject, the first Message-ID.
    if (isNamed(head, at, 'subject')) subject = [at, end];
    else if (from.length < 2 && isNamed(head, at, 'from')) from.push([at, end]);
    else if (!messageId && isNamed(head, at, 'message-id')) messageId = [at, end];
    at = end;
  }
  const found = [...from, ...(subject ? [subject] : []), ...(messageId ? [messageId] : [])];
  const fields = found.map(([at, end]) => `${head.toString('latin1', at, Math.min(end, at + FIELD_BYTES))}\n`).join('');
  const charset = RAW.test(fields) ? rawCharset(head) : undefined;
  return charset === undefined ? fields : `${fields}${CHARSET}: ${charset.slice(0, 40)}\n`;
}

/** Octets that are not ASCII, or an escape: their charset goes along, as a field that no message has. */
const RAW = /[\x1b\x80-\xff]/;
const CHARSET = 'Postern-Charset';

/** Where a field begins, and where the next one does. */
type Span = readonly [start: number, end: number];

/** The summary from the fields that `summaryFields` found. */
export function summaryOf(fields: string): MailSummary {
  const bounded = fields
    .split(/\n(?![ \t])/)
    .map(withFewWords)
    .join('\n');
  const [, charset] = CHARSET_FIELD.exec(fields) ?? [];
  const parsed = parseHeaders(Buffer.from(bounded, 'latin1'), () => charset);
  return toSummary({ from: authorOf(parsed).mailbox, subject: subjectOf(parsed), fields: parsed });
}

/** Each encoded word may have a charset of its own, which takes long to look up. */
function withFewWords(field: string): string {
  let words = 0;
  for (const { index } of field.matchAll(ENCODED_WORD)) if (++words > MAX_WORDS) return field.slice(0, index);
  return field;
}

const CHARSET_FIELD = new RegExp(`^${CHARSET}: ([\\w.:+-]+)\n$`, 'm');
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

/** Whether a field has this name, in any case, with or without blanks before the colon, which may be on the next line. */
function isNamed(bytes: Uint8Array, start: number, name: string): boolean {
  let at = start;
  for (let i = 0; i < name.length; i++)
    if (((bytes[at++] ?? 0) | CASE_BIT) !== (name.charCodeAt(i) | CASE_BIT)) return false;
  while (isBlank(bytes[at]) || bytes[at] === CR || bytes[at] === LF) at++;
  return bytes[at] === COLON;
}

/** What tells capitals from small letters. */
const CASE_BIT = 0x20;
