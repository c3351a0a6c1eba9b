import { authorOf } from './author.ts';
import { createFieldSearch, parseFound, type Wanted } from './field-search.ts';
import { firstValue, type HeaderField } from './headers.ts';
import { type Mailbox, subjectOf } from './message.ts';
import type { Outgoing } from './outgoing.ts';

// What people know a message by: who wrote it, about what, and its id.

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

/** As everywhere: the first From with an author, the last Subject, the first Message-ID. */
const SUMMARY: readonly Wanted[] = [
  { name: 'from', most: 2 },
  { name: 'subject', most: 1, last: true },
  { name: 'message-id', most: 1 },
];

/** Finds the fields of the summary. */
export const summaryFields = createFieldSearch(SUMMARY);

/** The summary from the fields that `summaryFields` found. */
export function summaryOf(found: string): MailSummary {
  const fields = parseFound(found);
  return toSummary({ from: authorOf(fields).mailbox, subject: subjectOf(fields), fields });
}
