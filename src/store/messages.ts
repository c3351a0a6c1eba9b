import type { Metadata } from '../mail/sending.ts';
import type { CollectionSpec, Row } from './collection.ts';
import type { Marked } from './marks.ts';

export type SentState = 'queued' | 'sent' | 'deferred' | 'bounced' | 'soft-bounced' | 'rejected' | 'spam' | 'unsub';

/** A message that the account sent to one recipient, and what has become of it. `id` is 32 hex digits. */
export interface SentMessageRow extends Row, Marked {
  readonly account: string;
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

export const messages: CollectionSpec<SentMessageRow> = {
  name: 'messages',
  indexes: [['account', 'createdAt'], ['createdAt']],
  dates: ['createdAt'],
};

/** Which messages carry a tag: one row for each pair, because an index holds single values. `id` is `<message> <tag>`. */
export interface MessageTagRow extends Row {
  readonly account: string;
  readonly tag: string;
  readonly message: string;
  readonly createdAt: Date;
}

export const messageTags: CollectionSpec<MessageTagRow> = {
  name: 'message_tags',
  indexes: [['account', 'tag', 'createdAt'], ['createdAt']],
  dates: ['createdAt'],
};
