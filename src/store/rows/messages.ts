import type { Metadata } from '../../mail/outgoing.ts';
import { collection, type OwnedRow } from './collection.ts';
import type { Carrier } from './webhooks.ts';

export type SentState = 'queued' | 'sent' | 'deferred' | 'bounced' | 'soft-bounced' | 'rejected' | 'spam' | 'unsub';

/** A message that the account sent to one recipient, and what has become of it. `id` is 32 hex digits. */
export interface SentMessageRow extends OwnedRow, EventMarks {
  readonly createdAt: Date;
  /** Lower-case address of the From header. */
  readonly sender: string;
  /** The recipient. */
  readonly email: string;
  /** As the recipient reads it: merged. */
  readonly subject: string;
  readonly tags: readonly string[];
  /** Slug. */
  readonly template: string | null;
  readonly subaccount: string | null;
  readonly metadata: Metadata;
  /** `id` of the API key that it was sent with. */
  readonly apiKey: string | null;
  /** Of the delivery that carries it, so that its content can be found while the spool has it. */
  readonly delivery?: string | null;
  readonly state: SentState;
  readonly opens: number;
  readonly clicks: number;
  /** The event that counts as the unique open, and as the unique click. */
  readonly firstOpen?: string | null;
  readonly firstClick?: string | null;
  /** For each link that was clicked (`urlKey`), the event that counts as its unique click; at most 100 links. */
  readonly firstClicks?: Readonly<Record<string, string>>;
  /** Latest opens and clicks, at most 100 of each; epoch seconds. */
  readonly openDetail: readonly { readonly ts: number }[];
  readonly clickDetail: readonly { readonly ts: number; readonly url: string }[];
  /** Diagnosis of the last bounce. */
  readonly diag: string | null;
  readonly bounceDescription: string | null;
  /** Grows with every change, so that two changes at once cannot undo one another. */
  readonly version: number;
}

export const messages = collection<SentMessageRow>()({
  name: 'messages',
  access: 'own',
  indexes: [['account', 'createdAt'], ['createdAt']],
  dates: ['createdAt'],
});

/**
 * Which messages carry a tag: one row for each pair, because an index holds single values. `id` is `<message> <tag>`.
 */
export interface MessageTagRow extends OwnedRow {
  readonly tag: string;
  readonly message: string;
  readonly createdAt: Date;
}

export const messageTags = collection<MessageTagRow>()({
  name: 'message_tags',
  access: 'own',
  indexes: [['account', 'tag', 'createdAt'], ['createdAt']],
  dates: ['createdAt'],
});

/** Something that happened to a sent message, in the words of the webhooks. */
const MESSAGE_EVENTS = [
  'send',
  'deferral',
  'hard_bounce',
  'soft_bounce',
  'open',
  'click',
  'spam',
  'unsub',
  'reject',
] as const;
export type MessageEventKind = (typeof MESSAGE_EVENTS)[number];

/** `id` is the event's own id, so that one event is recorded once. */
export interface MessageEventRow extends OwnedRow, Carrier {
  readonly message: string;
  readonly kind: MessageEventKind;
  readonly at: Date;
  /** Null until message, lists and counters have it; a sweep finishes what a crash left. */
  readonly appliedAt: Date | null;
  readonly detail: Readonly<Record<string, string | number | null>>;
  /** The tracked links of the message, where `kind` is send. */
  readonly links?: readonly string[];
}

export const messageEvents = collection<MessageEventRow>()({
  name: 'message_events',
  access: 'own',
  indexes: [['account', 'message', 'at'], ['unsentSince'], ['appliedAt', 'at'], ['at']],
  dates: ['at', 'appliedAt', 'unsentSince'],
});

/** The fields of a row that events change, each event once (events/counting.ts). Absent counts as 0 and none. */
export interface EventMarks {
  /** Grows with every change, so that two changes at once cannot undo one another. */
  readonly version?: number;
  /**
   * Ids of events that are in this row already; those that are applied everywhere are forgotten with the next change.
   */
  readonly marks?: readonly string[];
}

/**
 * A message that is to be sent later, so that it can be listed, put off and cancelled from every host. `id` is the
 * message's. The delivery itself waits on the spool of the host that took it. Until that host sends it this row has the
 * last word: who cancels or moves the message changes the row, and who is about to send it claims the row, each in one
 * atomic step that only one can make.
 */
export interface ScheduledRow extends OwnedRow {
  readonly createdAt: Date;
  readonly sendAt: Date;
  readonly sender: string;
  /** The recipient, in lower case. */
  readonly email: string;
  readonly subject: string;
  /**
   * On the spool. It is on one spool only, so it names who may claim the row, and a claim outlives the process that
   * made it.
   */
  readonly delivery: string;
  /**
   * Null: it waits for its time. moved: the same, and the host that has it may not have heard of its new time.
   * cancelled: nobody may send it, and the host that has it may not have dropped it. leaving: its host has claimed it,
   * and may have sent it.
   */
  readonly state: 'moved' | 'cancelled' | 'leaving' | null;
}

export const scheduled = collection<ScheduledRow>()({
  name: 'scheduled',
  access: 'own',
  limited: true,
  indexes: [['account', 'sendAt'], ['account', 'email', 'sendAt'], ['state'], ['state', 'sendAt'], ['sendAt']],
  dates: ['createdAt', 'sendAt'],
});

/** A metadata field that an account wants to see as a column of its activity. `id` is `metadataFieldId`. */
export interface MetadataFieldRow extends OwnedRow {
  readonly name: string;
  /** Mustache, for programs that show activity; kept and answered as it is. */
  readonly viewTemplate: string | null;
  readonly createdAt: Date;
}

export const metadataFields = collection<MetadataFieldRow>()({
  name: 'metadata_fields',
  access: 'own',
  indexes: [['account', 'createdAt']],
  dates: ['createdAt'],
});

/** The id of the row of an account's metadata field. */
export function metadataFieldId(account: string, name: string): string {
  return `${account} ${name}`;
}

/**
 * A tag that is being taken off the messages that carry it. `id` is `<account> <tag>`; the row goes when none is left.
 */
export interface TagRemovalRow extends OwnedRow {
  readonly tag: string;
  /** When it was deleted: mail that was sent with the tag later keeps it. */
  readonly before: Date;
}

export const tagRemovals = collection<TagRemovalRow>()({
  name: 'tag_removals',
  access: 'hidden',
  indexes: [['before']],
  dates: ['before'],
  upkeep: true,
});
