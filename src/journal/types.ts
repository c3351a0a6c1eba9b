import type { Verdicts } from '../mail/addresses/envelope.ts';
import type { MailSummary } from '../mail/summary.ts';
import type { DeliveryKind } from '../queue/delivery.ts';
import { DELIVERY_STATES, type EndName } from '../queue/states.ts';
import type { actionOfRow, causeOfRow, mailOfRow, refusalOfRow, sessionOfRow } from './rows.ts';

// The content of this host's history. It is derived: losing it loses history, never mail. Times are milliseconds since
// 1970.

/** The states of a delivery; unknown if the queue no longer has it and its outcome was not noted, as after a crash. */
export const MAIL_STATES = [...DELIVERY_STATES, 'unknown'] as const;

export type MailState = (typeof MAIL_STATES)[number];

// Their fields are declared in rows.ts.
export type MailRecord = Readonly<ReturnType<typeof mailOfRow>>;
export type RefusalRecord = Readonly<ReturnType<typeof refusalOfRow>>;
export type SessionRecord = Readonly<ReturnType<typeof sessionOfRow>>;
export type ActionRecord = Readonly<ReturnType<typeof actionOfRow>>;
export type FailureCause = Readonly<ReturnType<typeof causeOfRow>>;

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

/** The SMTP session and transaction of a message. */
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
      /** Null if they were not computed. */
      readonly verdicts: Verdicts | null;
    }
  | { readonly what: 'action'; readonly action: Omit<ActionRecord, 'n'> }
  /** The figures of a minute (series.ts), as JSON. */
  | { readonly what: 'minute'; readonly at: number; readonly figures: string };

/** Receives the notes of the parts of the daemon. */
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
  /** In the address or HELO name of the client. */
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
  /** Without mail that another host has taken over. */
  readonly isOwn?: boolean | undefined;
  /** Delivery ids or message ids. */
  readonly ids?: readonly string[] | undefined;
  /** Accepted at or after, before. */
  readonly since?: number | undefined;
  readonly before?: number | undefined;
}

/** Selects refusals; `words` are in sender, recipient, client or HELO name, `from` in the sender. */
export interface RefusalFilter
  extends Pick<MailFilter, 'account' | 'words' | 'from' | 'to' | 'client' | 'since' | 'before'> {
  readonly reason?: string | undefined;
  /** The domain of the recipient. */
  readonly domain?: string | undefined;
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

/** One delivery with its session. */
export interface MailStory {
  readonly mail: MailRecord;
  readonly session: SessionRecord | undefined;
  /** The refusals in its transaction. */
  readonly refusals: readonly RefusalRecord[];
  /** The number of other refusals in its session. */
  readonly otherRefusals: number;
}
