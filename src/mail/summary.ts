import { authorOf } from './author.ts';
import { byFirstLetter, eachField, nameAt, type Span } from './field-spans.ts';
import { firstValue, type HeaderField, parseHeaders } from './headers.ts';
import { type Mailbox, subjectOf } from './message.ts';
import type { Outgoing } from './outgoing.ts';
import { threadOfSent } from './sent-names.ts';
import { ID_FIELDS, threadIdOf } from './thread.ts';

// What people know a message by: who wrote it, about what, its id, and its conversation. It is found in two steps: whoever accepts a
// message only finds the fields, in one pass over a bounded number of octets; they are decoded later, on another thread.

/** From, Subject and Message-ID of a message, decoded, each of at most `MAX_TEXT` characters, and its thread. */
export interface MailSummary {
  /** Null without an author. */
  readonly from: string | null;
  /** Empty without one. */
  readonly subject: string | null;
  readonly messageId: string | null;
  /** As `threadIdOf`; null if it names no id. */
  readonly thread: string | null;
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
    thread: threadIdOf(fields),
  };
}

/** What an account said about a message that it sends. `id` is its `_id`. */
export function summaryOfOutgoing(outgoing: Outgoing, id: string): MailSummary {
  const { sender, fromName, subject, conversation } = outgoing;
  const summary = toSummary({ from: { address: sender, name: fromName }, subject, fields: [] });
  return { ...summary, thread: threadOfSent(id, conversation) };
}

const short = (text: string | null): string | null => text?.slice(0, MAX_TEXT) ?? null;

/** Octets of a message in which the fields are looked for, and lines: longer headers are made to be expensive. */
export const START_BYTES = 64 * 1024;
const MAX_LINES = 1000;
/** Octets of one field that are kept, and encoded words that are decoded: enough for `MAX_TEXT` characters. */
const FIELD_BYTES = 2048;
const MAX_WORDS = 24;

/**
 * Finds the fields of the summary in the first octets of a message, as latin1: a string is cheap to give to a thread.
 * Takes about a tenth of a millisecond for the worst that a stranger can write there.
 */
export function summaryFields(message: Uint8Array): string {
  const head = Buffer.from(message.buffer, message.byteOffset, Math.min(message.length, START_BYTES));
  const from: Span[] = [];
  // As everywhere: the first From with an author, the last Subject, the first of the others.
  const others = new Map<string, Span>();
  eachField(head, MAX_LINES, (at, end) => {
    const name = nameAt(head, at, NAMES);
    if (name === undefined) return;
    if (name === 'from') from.length < 2 && from.push([at, end]);
    else if (name === 'subject' || !others.has(name)) others.set(name, [at, end]);
  });
  return [...from, ...others.values()]
    .map(([at, end]) => `${head.toString('latin1', at, Math.min(end, at + FIELD_BYTES))}\n`)
    .join('');
}

const NAMES = byFirstLetter(['from', 'subject', ...ID_FIELDS]);

/** The summary from the fields that `summaryFields` found. */
export function summaryOf(fields: string): MailSummary {
  const bounded = fields
    .split(/\n(?![ \t])/)
    .map(withFewWords)
    .join('\n');
  const parsed = parseHeaders(Buffer.from(bounded, 'latin1'));
  return toSummary({ from: authorOf(parsed).mailbox, subject: subjectOf(parsed), fields: parsed });
}

/** Each encoded word may have a charset of its own, which takes long to look up. */
function withFewWords(field: string): string {
  let words = 0;
  for (const { index } of field.matchAll(ENCODED_WORD)) if (++words > MAX_WORDS) return field.slice(0, index);
  return field;
}

const ENCODED_WORD = /=\?[^?]{1,80}\?[QqBb]\?[^?]*\?=/g;
