import { hash } from 'node:crypto';
import { collection, type OwnedRow } from './collection.ts';

/** Where an account's events are posted. `id` is `number` as text. */
export interface WebhookRow extends OwnedRow {
  readonly number: number;
  readonly url: string;
  readonly description: string | null;
  /** The events it subscribes to; empty: `DEFAULT_EVENTS`. */
  readonly events: readonly HookEvent[];
  readonly createdAt: Date;
}

export const webhooks = collection<WebhookRow>()({
  name: 'webhooks',
  access: 'own',
  limited: true,
  indexes: [['account', 'number']],
  dates: ['createdAt'],
});

/**
 * The number of an account's `sequence`th webhook: different for every pair (Cantor's pairing function), growing within
 * an account, and revealing nothing about the number of webhooks of other accounts.
 */
export function webhookNumber(account: number, sequence: number): number {
  const sum = account + sequence;
  return (sum * (sum + 1)) / 2 + sequence;
}

/** The counts of one host's spool for a webhook, as absolute numbers. `id` is `<webhook> <spool>`. */
export interface WebhookTallyRow extends OwnedRow {
  readonly webhook: string;
  readonly batchesSent: number;
  readonly eventsSent: number;
  readonly lastSentAt: Date | null;
  readonly lastError: string | null;
  readonly lastErrorAt: Date | null;
}

export const webhookTallies = collection<WebhookTallyRow>()({
  name: 'webhook_tallies',
  access: 'own',
  indexes: [['account', 'webhook']],
  dates: ['lastSentAt', 'lastErrorAt'],
  upkeep: true,
});

/** The key that signs an account's posts to a URL; `id` is `signingKeyId` of the two. */
export interface SigningKeyRow extends OwnedRow {
  readonly url: string;
  readonly key: string;
  /** Also signs until `previousUntil`, during a rotation. */
  readonly previousKey: string | null;
  readonly previousUntil: Date | null;
  readonly createdAt: Date;
}

export const signingKeys = collection<SigningKeyRow>()({
  name: 'signing_keys',
  access: 'hidden',
  indexes: [['account', 'url']],
  dates: ['previousUntil', 'createdAt'],
});

export function signingKeyId(account: string, url: string): string {
  return hash('sha256', `${account}\0${url}`).slice(0, 32);
}

/** Events that a webhook can subscribe to. */
export const HOOK_EVENTS = [
  'send',
  'delivered',
  'deferral',
  'hard_bounce',
  'soft_bounce',
  'open',
  'click',
  'spam',
  'unsub',
  'reject',
  'reply',
  'blacklist',
  'whitelist',
] as const;
export type HookEvent = (typeof HOOK_EVENTS)[number];

/** Events that Mandrill added later, and ours: sent only to webhooks that name them. */
const BY_NAME_ONLY: ReadonlySet<HookEvent> = new Set(['delivered', 'deferral', 'reply']);

/** The events of a webhook that names none. */
export const DEFAULT_EVENTS: readonly HookEvent[] = HOOK_EVENTS.filter((event) => !BY_NAME_ONLY.has(event));

/** An event in a row until the spool has it: change and event are one write. `body`: the payload as JSON. */
export interface UnsentEvent {
  /** The same in every repetition. */
  readonly id: string;
  readonly event: HookEvent;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly body: string;
}

/** The fields of a row that carries events. By `unsentSince` a sweep finds events that a crash left behind. */
export interface Carrier {
  readonly unsent: readonly UnsentEvent[] | null;
  readonly unsentSince: Date | null;
}
