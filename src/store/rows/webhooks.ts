import { createHash } from 'node:crypto';
import { collection, type OwnedRow } from './collection.ts';

/** Where the events of an account are posted to. `id` is `number` as text. */
export interface WebhookRow extends OwnedRow {
  readonly number: number;
  readonly url: string;
  readonly description: string | null;
  /** What it wants; none: `DEFAULT_EVENTS`. */
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
 * The number of a webhook that is the `sequence`th of an account: different for every pair (it is Cantor's), growing
 * within an account, and of no use to learn how many webhooks other accounts have.
 */
export function webhookNumber(account: number, sequence: number): number {
  const sum = account + sequence;
  return (sum * (sum + 1)) / 2 + sequence;
}

/**
 * What one host's spool has sent to a webhook so far, in absolute numbers, so that writing them twice changes nothing.
 * `id` is `<webhook> <spool>`.
 */
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

/** What signs posts of an account to a URL; `id` is `signingKeyId` of the two. */
export interface SigningKeyRow extends OwnedRow {
  readonly url: string;
  readonly key: string;
  /** Signs too until `previousUntil`, while a rotation lasts. */
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
  return createHash('sha256').update(`${account}\0${url}`).digest('hex').slice(0, 32);
}

/** What may be asked of a webhook, as its `events` name it. */
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
  'blacklist',
  'whitelist',
] as const;
export type HookEvent = (typeof HOOK_EVENTS)[number];

/** What came later to the public ancestor, and is sent to nobody who does not name it. */
const BY_NAME_ONLY: ReadonlySet<HookEvent> = new Set(['delivered', 'deferral']);

/** What a webhook gets that names no events. */
export const DEFAULT_EVENTS: readonly HookEvent[] = HOOK_EVENTS.filter((event) => !BY_NAME_ONLY.has(event));

/**
 * An event that a row carries until the spool has it: the change and its event are one write and cannot come apart.
 * `body` is the JSON text of the event as a webhook gets it.
 */
export interface UnsentEvent {
  /** Stays the same whenever it is sent again. */
  readonly id: string;
  readonly event: HookEvent;
  readonly at: Date;
  readonly body: string;
}

/** The fields of a row that carries events. A sweep finds by `unsentSince` what a crash left behind. */
export interface Carrier {
  readonly unsent:
    | readonly { readonly id: string; readonly event: HookEvent; readonly at: number; readonly body: string }[]
    | null;
  readonly unsentSince: Date | null;
}
