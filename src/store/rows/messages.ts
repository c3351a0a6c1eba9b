import type { Metadata } from '../../mail/outgoing.ts';
import type { GatedRow } from '../features.ts';
import { collection, type OwnedRow } from './collection.ts';
import type { Carrier } from './webhooks.ts';

export type SentState = 'queued' | 'sent' | 'deferred' | 'bounced' | 'soft-bounced' | 'rejected' | 'spam' | 'unsub';

/** A message that the account sent to one recipient, and its outcome. `id` is 32 hex digits. */
export interface SentMessageRow extends OwnedRow, EventMarks {
  readonly createdAt: Date;
  /** The address in the From field, lower case. */
  readonly sender: string;
  /** The recipient. */
  readonly email: string;
  /** With merge tags replaced. */
  readonly subject: string;
  readonly tags: readonly string[];
  /** Slug. */
  readonly template: string | null;
  readonly subaccount: string | null;
  readonly metadata: Metadata;
  /** The `id` of the API key with which it was sent. */
  readonly apiKey: string | null;
  /** The id of its delivery, by which its content can be found while it is on the spool. */
  readonly delivery?: string | null;
  /** Its thread (mail/replies/thread.ts), unless its own Message-ID starts the thread. */
  readonly thread?: string | null;
  readonly state: SentState;
  readonly opens: number;
  readonly clicks: number;
  /** The events counted as the unique open and the unique click. */
  readonly firstOpen?: string | null;
  readonly firstClick?: string | null;
  /** For each clicked link (`urlKey`), the event counted as its unique click; at most 100 links. */
  readonly firstClicks?: Readonly<Record<string, string>>;
  /** Latest opens and clicks, at most 100 of each; epoch seconds. */
  readonly openDetail: readonly { readonly ts: number }[];
  readonly clickDetail: readonly { readonly ts: number; readonly url: string }[];
  /** Diagnosis of the last bounce. */
  readonly diag: string | null;
  readonly bounceDescription: string | null;
  /** Incremented by every change, so that concurrent changes do not overwrite each other. */
  readonly version: number;
}

export const messages = collection<SentMessageRow>()({
  name: 'messages',
  access: 'own',
  indexes: [['account', 'createdAt'], ['createdAt']],
  dates: ['createdAt'],
});

/** The messages with a tag: one row per pair, because indexed fields are scalars. `id` is `<message> <tag>`. */
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

/** A further name of a message besides its `_id` (mail/replies/sent-names.ts). `id` is `<message> <name>`. */
interface MessageNameRow extends OwnedRow {
  readonly name: string;
  readonly message: string;
  /** The recipient of the message: several recipients may share a name. */
  readonly email: string;
  readonly createdAt: Date;
}

export const messageNames = collection<MessageNameRow>()({
  name: 'message_names',
  access: 'hidden',
  indexes: [['account', 'name', 'email', 'createdAt'], ['account', 'name', 'createdAt'], ['createdAt']],
  dates: ['createdAt'],
});

/** Kinds of events of sent messages, named as for webhooks. */
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
  'reply',
] as const;
export type MessageEventKind = (typeof MESSAGE_EVENTS)[number];

/** An event. `id` is the event's own id, so that it is recorded once. */
export interface MessageEventRow extends OwnedRow, Carrier {
  readonly message: string;
  readonly kind: MessageEventKind;
  readonly at: Date;
  /** Null until message, lists and counters have it; a sweep finishes what a crash interrupted. */
  readonly appliedAt: Date | null;
  readonly detail: Readonly<Record<string, string | number | null>>;
  /** For `send`: the tracked links of the message. */
  readonly links?: readonly string[];
}

export const messageEvents = collection<MessageEventRow>()({
  name: 'message_events',
  access: 'own',
  indexes: [['account', 'message', 'at'], ['unsentSince'], ['appliedAt', 'at'], ['at']],
  dates: ['at', 'appliedAt', 'unsentSince'],
});

/** The fields that make sure that an event changes a row once (events/counting.ts). Absent counts as 0 and none. */
export interface EventMarks {
  /** Incremented by every change, so that concurrent changes do not overwrite each other. */
  readonly version?: number;
  /** Ids of events already in this row; those applied everywhere are removed with the next change. */
  readonly marks?: readonly string[];
}

/** Changes to a scheduled message by other hosts. The host that has it must know the word to act on the row. */
export const SCHEDULED_CHANGES = [
  /** It has a new time, which its host may not know yet. */
  'moved',
  /** It must not be sent, but its host may not have dropped it yet. */
  'cancelled',
] as const;
export type ScheduledChange = (typeof SCHEDULED_CHANGES)[number];

/**
 * A scheduled message, which every host can list, move and cancel. `id` is the message's. The delivery itself waits on
 * the spool of the host that accepted it. Until that host sends it, this row is authoritative: cancelling and moving
 * change the row, and sending claims it, each in one atomic step that only one caller can make.
 */
export interface ScheduledRow extends OwnedRow, GatedRow {
  readonly createdAt: Date;
  readonly sendAt: Date;
  readonly sender: string;
  /** The recipient, in lower case. */
  readonly email: string;
  readonly subject: string;
  /** The delivery on the spool. It is on one spool only, so it identifies the host that may claim the row. */
  readonly delivery: string;
  /** Null: it waits for its time. leaving: its host has claimed it, and may have sent it. */
  readonly state: ScheduledChange | 'leaving' | null;
}

export const scheduled = collection<ScheduledRow>()({
  name: 'scheduled',
  access: 'own',
  limited: true,
  indexes: [['account', 'sendAt'], ['account', 'email', 'sendAt'], ['state'], ['state', 'sendAt'], ['sendAt']],
  dates: ['createdAt', 'sendAt'],
  features: { state: { feature: 'scheduled', plain: 'leaving', each: (state) => [state] } },
});

/** A metadata field that an account wants as a column in its activity. `id` is `metadataFieldId`. */
export interface MetadataFieldRow extends OwnedRow {
  readonly name: string;
  /** A Mustache template for clients that show activity; stored and returned unchanged. */
  readonly viewTemplate: string | null;
  readonly createdAt: Date;
}

export const metadataFields = collection<MetadataFieldRow>()({
  name: 'metadata_fields',
  access: 'own',
  indexes: [['account', 'createdAt']],
  dates: ['createdAt'],
});

/** The id of an account's metadata field. */
export function metadataFieldId(account: string, name: string): string {
  return `${account} ${name}`;
}

/** A deleted tag that is being removed from its messages; the row goes last. `id` is `<account> <tag>`. */
export interface TagRemovalRow extends OwnedRow {
  readonly tag: string;
  /** When it was deleted: mail sent with the tag later keeps it. */
  readonly before: Date;
}

export const tagRemovals = collection<TagRemovalRow>()({
  name: 'tag_removals',
  access: 'hidden',
  indexes: [['before']],
  dates: ['before'],
  upkeep: true,
});

/** A detail as text. */
export function asText(value: string | number | null | undefined): string | null {
  return value === undefined || value === null ? null : String(value);
}
