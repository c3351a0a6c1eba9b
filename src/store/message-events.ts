import type { CollectionSpec, Row } from './collection.ts';
import type { Carrier } from './outbox.ts';

/** Something that happened to a sent message, in the words of the webhooks. */
export const MESSAGE_EVENTS = [
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
export interface MessageEventRow extends Row, Carrier {
  readonly account: string;
  readonly message: string;
  readonly kind: MessageEventKind;
  readonly at: Date;
  /** Null until message, lists and counters have it; a sweep finishes what a crash left. */
  readonly appliedAt: Date | null;
  readonly detail: Readonly<Record<string, string | number | null>>;
  /** The tracked links of the message, where `kind` is send. */
  readonly links?: readonly string[];
}

export const messageEvents: CollectionSpec<MessageEventRow> = {
  name: 'message_events',
  indexes: [['account', 'message', 'at'], ['unsentSince'], ['appliedAt', 'at'], ['at']],
  dates: ['at', 'appliedAt', 'unsentSince'],
};
