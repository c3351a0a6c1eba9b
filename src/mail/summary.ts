import { authorOf } from './addresses/author.ts';
import { type Mailbox, subjectOf } from './message.ts';
import { createFieldSearch, parseFound, type WantedField } from './mime/field-search.ts';
import { firstValue, type HeaderField } from './mime/headers.ts';
import type { Outgoing } from './outgoing.ts';
import { threadOfSent } from './replies/sent-names.ts';
import { ID_FIELDS, threadIdOf } from './replies/thread.ts';

// The summary of a message for people: its author, its subject, its id and its conversation.

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

/** The summary of a message that an account sends. `id` is its `_id`. */
export function summaryOfOutgoing(outgoing: Outgoing, id: string): MailSummary {
  const { sender, fromName, subject, conversation } = outgoing;
  const summary = toSummary({ from: { address: sender, name: fromName }, subject, fields: [] });
  return { ...summary, thread: threadOfSent(id, conversation) };
}

const short = (text: string | null): string | null => text?.slice(0, MAX_TEXT) ?? null;

/** As everywhere: the first From with an author, the last Subject, the first of the others. */
const SUMMARY: readonly WantedField[] = [
  { name: 'from', most: 2 },
  { name: 'subject', most: 1, last: true },
  ...ID_FIELDS.map((name) => ({ name, most: 1 })),
];

/** Finds the fields of the summary. */
export const summaryFields = createFieldSearch(SUMMARY);

/** The summary from the fields that `summaryFields` found. */
export function mailSummaryOf(found: string): MailSummary {
  const fields = parseFound(found);
  return toSummary({ from: authorOf(fields).mailbox, subject: subjectOf(fields), fields });
}
