import type { Verdicts } from '../mail/envelope.ts';
import type { MailSummary } from '../mail/summary.ts';
import type { DeliveryKind } from '../queue/delivery.ts';
import { DELIVERY_STATES, type EndName } from '../queue/states.ts';

// The content of this host's history. It is derived: losing it loses history, never mail. Times are milliseconds since
// 1970.

/**
 * The states of a delivery, and unknown if the queue no longer has it and its outcome was not recorded, as after a
 * crash.
 */
export const MAIL_STATES = [...DELIVERY_STATES, 'unknown'] as const;

export type MailState = (typeof MAIL_STATES)[number];

/** One message for one recipient: a delivery, kept after the queue has deleted it. */
export interface MailRecord {
  /** Grows with each row; a cursor. */
  readonly n: number;
  /** The id of the delivery. */
  readonly id: string;
  /** When it was accepted. */
  readonly at: number;
  /** The SMTP session it arrived in; null if it did not, or is not known. */
  readonly session: string | null;
  /** Which transaction of the session it was, from 1; null if it is not known. */
  readonly transaction: number | null;
  readonly kind: DeliveryKind;
  readonly account: string;
  /** The reverse-path; empty for the null sender, null if not known. */
  readonly sender: string | null;
  readonly recipient: string;
  /**
   * From, Subject and Message-ID of the header; null if they are not kept. A message without a subject has an empty
   * one.
   */
  readonly from: string | null;
  readonly subject: string | null;
  readonly headerId: string | null;
  /** Its conversation (mail/thread.ts); null if it names none, or it is not kept. */
  readonly thread: string | null;
  readonly route: string;
  readonly pattern: string;
  readonly url: string;
  readonly size: number;
  /** Address, HELO name and TLS version of the client. */
  readonly client: string | null;
  readonly helo: string | null;
  readonly tls: string | null;
  readonly spf: string | null;
  readonly dkim: string | null;
  readonly dmarc: string | null;
  readonly state: MailState;
  /** All attempts, replays included. */
  readonly attempts: number;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
  readonly endedAt: number | null;
  /** The events after it was accepted, oldest first. */
  readonly story: readonly StoryEntry[];
}

/** An attempt, or a change that a person made. */
export type StoryEntry =
  | {
      readonly what: 'attempt';
      readonly at: number;
      readonly ms: number;
      readonly status: number | null;
      readonly error: string | null;
      readonly answer: string;
    }
  | { readonly what: EndName | 'discarded' | 'replayed'; readonly at: number };

/** A refused command or session. */
export interface RefusalRecord {
  readonly n: number;
  readonly at: number;
  readonly session: string | null;
  /** Which transaction of the session it happened in, from 1; null if in none, or it is not known. */
  readonly transaction: number | null;
  readonly listener: string;
  /** The refused command, such as RCPT; CONNECT for a rejected connection. */
  readonly stage: string;
  readonly reply: string;
  /** Its name in smtp/replies.ts. */
  readonly reason: string;
  readonly client: string;
  readonly helo: string | null;
  readonly tls: string | null;
  readonly sender: string | null;
  readonly recipient: string | null;
  /** The account whose mail was refused; null if there is none. */
  readonly account: string | null;
  /** Number of refusals: more than one if a network was refused very often within a minute. */
  readonly times: number;
}

/** One SMTP session. */
export interface SessionRecord {
  readonly id: string;
  readonly at: number;
  readonly listener: string;
  readonly client: string;
  readonly helo: string | null;
  readonly tls: string | null;
  readonly messages: number;
  readonly recipients: number;
  readonly refusals: number;
  readonly reason: string;
  readonly durationMs: number;
}

/** An action of a person. */
export interface ActionRecord {
  readonly n: number;
  readonly at: number;
  /** The actor: the start of an API key, a person at the console, or `command line`. */
  readonly by: string;
  readonly account: string;
  /** Such as `replayed`. */
  readonly what: string;
  /** The number of affected items. */
  readonly count: number;
  readonly detail: string;
}

/** Where a message arrived. */
export interface SessionTransaction {
  readonly session: string;
  readonly transaction: number;
}

/** The notes of the parts of the daemon. */
export type Note =
  | ({ readonly what: 'refused' } & Omit<RefusalRecord, 'n' | 'times'>)
  | ({ readonly what: 'session' } & SessionRecord)
  | ({ readonly what: 'arrived'; readonly messageId: string } & SessionTransaction)
  /** A message was parsed for a delivery. */
  | {
      readonly what: 'parsed';
      readonly id: string;
      readonly sender: string;
      readonly summary: MailSummary | null;
      /** Null if they were not taken. */
      readonly verdicts: Verdicts | null;
    }
  | { readonly what: 'action'; readonly action: Omit<ActionRecord, 'n'> }
  /** The figures of a minute (series.ts), as JSON. */
  | { readonly what: 'minute'; readonly at: number; readonly figures: string };

/** Takes the notes of the parts of the daemon. */
export interface Notes {
  /** Never waits and never throws: under more than it can write, the journal drops entries and counts them. */
  note(entry: Note): void;
}

/** Selects mail. All given conditions must match; texts match any part of a field, ignoring case. */
export interface MailFilter {
  /** undefined: that of all accounts. */
  readonly account?: string | undefined;
  readonly kinds?: readonly DeliveryKind[] | undefined;
  /** Each in sender, From, recipient, Subject or Message-ID. */
  readonly words?: readonly string[] | undefined;
  /** In the envelope sender or From. */
  readonly from?: readonly string[] | undefined;
  readonly to?: readonly string[] | undefined;
  readonly subject?: readonly string[] | undefined;
  readonly client?: readonly string[] | undefined;
  /** Of this conversation. */
  readonly thread?: string | undefined;
  /** Id or pattern of the route, whole. */
  readonly route?: string | undefined;
  readonly url?: string | undefined;
  readonly exceptUrls?: readonly string[] | undefined;
  readonly states?: readonly MailState[] | undefined;
  /** The last status: one, or all of a class such as 500 to 599. */
  readonly status?: { readonly from: number; readonly to: number } | undefined;
  /** The last attempt got no answer. */
  readonly unanswered?: boolean | undefined;
  /** Delivery ids or message ids. */
  readonly ids?: readonly string[] | undefined;
  /** Accepted at or after, before. */
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

/** Selects refusals. */
export interface RefusalFilter {
  readonly account?: string | undefined;
  /** Each in sender, recipient, client or HELO name, ignoring case. */
  readonly words?: readonly string[] | undefined;
  readonly from?: readonly string[] | undefined;
  readonly to?: readonly string[] | undefined;
  /** In the address or HELO name of the client. */
  readonly client?: readonly string[] | undefined;
  readonly reason?: string | undefined;
  /** The domain of the recipient. */
  readonly domain?: string | undefined;
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

/** Rows, and the cursor for the next ones; null if there are no more. */
export interface HistoryPage<T> {
  readonly rows: readonly T[];
  readonly next: number | null;
}

/** The mail of an account in a period. */
export interface AccountFigures {
  /** Deliveries of received mail, and how many of them were delivered and failed. */
  readonly received: number;
  readonly delivered: number;
  readonly givenUp: number;
  readonly refused: number;
  /** Messages of the account that were sent. */
  readonly sent: number;
}

/** Deliveries to one endpoint with the same last answer. */
export interface FailureCause {
  readonly url: string;
  readonly lastStatus: number | null;
  readonly lastError: string | null;
  readonly count: number;
  /** When the oldest of them was accepted, and when the first of them ended; null if none has. */
  readonly oldestAt: number;
  readonly firstEnded: number | null;
}

/** The queries of the history. */
export interface History {
  /**
   * Newest first, those before `cursor`. After a tenth of a second it returns the rows so far, with a cursor to
   * continue.
   */
  mail(filter: MailFilter, limit: number, cursor?: number): Promise<HistoryPage<MailRecord>>;
  /** The ids of all matching deliveries, newest first, in pages. */
  ids(filter: MailFilter): AsyncIterable<readonly string[]>;
  /** All matching deliveries counted by endpoint and last answer, the most frequent first. */
  causes(filter: MailFilter): Promise<readonly FailureCause[]>;
  /** The story of one delivery; undefined if it is not known, or another account's. */
  one(id: string, account?: string): Promise<MailStory | undefined>;
  refusals(filter: RefusalFilter, limit: number, cursor?: number): Promise<HistoryPage<RefusalRecord>>;
  /** Refusals counted by reason, the most frequent first. */
  refusalsByReason(filter: RefusalFilter): Promise<readonly { readonly reason: string; readonly count: number }[]>;
  actions(account: string | undefined, limit: number, cursor?: number): Promise<HistoryPage<ActionRecord>>;
  /** Mail since that time, by account. */
  byAccount(since: number): Promise<ReadonlyMap<string, AccountFigures>>;
}

/** One delivery with its session. */
export interface MailStory {
  readonly mail: MailRecord;
  readonly session: SessionRecord | undefined;
  /** The refusals in its transaction. */
  readonly refusals: readonly RefusalRecord[];
  /** The number of other refusals in its session. */
  readonly otherRefusals: number;
}
