import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { QueuedDelivery, Selection, Spool } from '../spool/types.ts';
import type { Store } from '../store/store.ts';
import { type WebhookRow, webhookNumber } from '../store/webhooks.ts';

export interface WebhookDeps {
  readonly store: Pick<Store, 'revisions' | 'webhookTallies'>;
  readonly spool: Spool;
  /** What remembers the webhooks of accounts. */
  readonly outbox: { forget(account: string): void };
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** The webhooks of one account beside their rows. A row that is handed over must have been found in the account's store. */
export interface AccountWebhooks {
  /** A number that was never given out. */
  newNumber(): Promise<number>;
  /** Events go by what the store says from now on. */
  changed(): void;
  /** What waits for it goes to its present URL. */
  moved(row: WebhookRow): Promise<void>;
  /** What waits for it is dropped, and what was counted for it is forgotten. */
  deleted(row: WebhookRow): Promise<void>;
  /** Puts a batch of events, JSON texts each, onto the spool and answers its delivery's id; undefined when the spool cannot take it now. */
  send(row: WebhookRow, events: readonly string[]): Promise<string | undefined>;
  /** Batches of events, the newest first. */
  batches(selection: Omit<Selection, 'account' | 'kind'>, limit: number): Promise<QueuedDelivery[]>;
}

/** Binds them to an account. */
export function bindWebhooks(
  deps: WebhookDeps,
  account: { readonly id: string; readonly number: number },
): AccountWebhooks {
  const { store, spool, outbox, clock, ids, log } = deps;
  return {
    async newNumber() {
      return webhookNumber(
        account.number,
        (await store.revisions.add(`webhooks:${account.id}`, { count: 1 }, { count: 0 })).count,
      );
    },
    changed: () => outbox.forget(account.id),
    moved: ({ id, url }) => spool.events.redirect(id, url),
    async deleted({ id }) {
      await spool.events.forget(id, clock.now());
      while (await store.webhookTallies.remove({ account: account.id, webhook: id }));
    },
    async send({ id, url }, events) {
      const wanted = { hook: { id, account: account.id, url }, events: events.map((body) => ({ id: '', body })) };
      try {
        return (await spool.events.send(wanted, ids.message(), clock.now())).id;
      } catch (error) {
        log.error('api.fault', { part: 'webhooks', error });
        return undefined;
      }
    },
    batches: (selection, limit) => spool.list({ ...selection, account: account.id, kind: 'batch' }, limit),
  };
}
