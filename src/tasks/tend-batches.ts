import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Spool } from '../spool/types.ts';
import type { Store } from '../store/store.ts';
import { type Belief, createSteadiness } from './purge.ts';
import type { Task } from './task.ts';

export interface TendBatchesDeps {
  readonly spool: Pick<Spool, 'events'>;
  readonly store: Pick<Store, 'webhooks'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly time?: Belief;
}

/**
 * Holds what this host's spool has for webhooks against the store: another host may have deleted a webhook or changed its URL,
 * or this one was cut off in between. And gives up events that have waited too long to become a batch.
 */
export function tendBatchesTask(
  settings: { readonly retryHours: number },
  { spool: { events }, store, clock, log, time }: TendBatchesDeps,
): Task {
  const isSteady = createSteadiness(clock, time);

  async function align(): Promise<{ forgotten: number; redirected: number }> {
    const done = { forgotten: 0, redirected: 0 };
    for (const { id, url } of await events.hooks()) {
      const row = await store.webhooks.one({ id });
      if (!row) {
        await events.forget(id, clock.now());
        done.forgotten++;
      } else if (row.url !== url) {
        await events.redirect(id, row.url);
        done.redirected++;
      }
    }
    return done;
  }

  return {
    name: 'tend-batches',
    schedule: '* * * * *',
    perHost: true,
    async run() {
      if (isSteady()) {
        for (const { webhook, events: count } of await events.expire(clock.now() - settings.retryHours * 3_600_000)) {
          log.error('delivery.failed', { webhook, events: count, error: 'they waited too long for the endpoint' });
        }
      }
      const { forgotten, redirected } = await align();
      return forgotten + redirected > 0 ? { forgotten, redirected } : undefined;
    },
  };
}
