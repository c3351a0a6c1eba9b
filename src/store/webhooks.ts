import type { CollectionSpec, Row } from './collection.ts';
import type { HookEvent } from './outbox.ts';

/** Where the events of an account are posted to. `id` is `number` as text. */
export interface WebhookRow extends Row {
  readonly account: string;
  readonly number: number;
  readonly url: string;
  readonly description: string | null;
  /** What it wants; none: `DEFAULT_EVENTS`. */
  readonly events: readonly HookEvent[];
  readonly createdAt: Date;
}

export const webhooks: CollectionSpec<WebhookRow> = {
  name: 'webhooks',
  indexes: [['account', 'number']],
  dates: ['createdAt'],
};

/**
 * The number of a webhook that is the `sequence`th of an account: different for every pair (it is Cantor's), growing within an
 * account, and of no use to learn how many webhooks other accounts have.
 */
export function webhookNumber(account: number, sequence: number): number {
  const sum = account + sequence;
  return (sum * (sum + 1)) / 2 + sequence;
}

/** What one host's spool has sent to a webhook so far, in absolute numbers, so that writing them twice changes nothing. `id` is `<webhook> <spool>`. */
export interface WebhookTallyRow extends Row {
  readonly account: string;
  readonly webhook: string;
  readonly batchesSent: number;
  readonly eventsSent: number;
  readonly lastSentAt: Date | null;
  readonly lastError: string | null;
  readonly lastErrorAt: Date | null;
}

export const webhookTallies: CollectionSpec<WebhookTallyRow> = {
  name: 'webhook_tallies',
  indexes: [['account', 'webhook']],
  dates: ['lastSentAt', 'lastErrorAt'],
  upkeep: true,
};
