import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Service } from '../base/service.ts';
import type { EventNews, HookTally } from '../spool/event-types.ts';
import type { Spool } from '../spool/types.ts';
import { StoreAway } from '../store/collection.ts';
import type { Store } from '../store/store.ts';
import type { WebhookTallyRow } from '../store/webhooks.ts';

/** How long after the store was found away the numbers are written again. */
const AGAIN_MS = 5000;

export interface Tallies extends Service {
  /** Everything that was counted so far is in the store. */
  idle(): boolean;
}

/**
 * Brings what this host's spool has counted for each webhook into the store. The numbers are absolute and the row is this
 * spool's own: to write them once more, after a crash or while the store comes and goes, changes nothing.
 */
export function createTallies(deps: {
  spool: Pick<Spool, 'events'>;
  store: Pick<Store, 'webhooks' | 'webhookTallies'>;
  clock: Clock;
  log: Log;
}): Tallies {
  const {
    spool: { events },
    store,
    clock,
    log,
  } = deps;
  const waiting = new Map<string, HookTally>();
  let writing = Promise.resolve();
  let busy = false;
  let cancel = () => {};
  let stopped = true;

  function add(tallies: readonly HookTally[]): void {
    for (const tally of tallies) waiting.set(tally.hook.id, tally);
    if (!stopped && !busy && waiting.size > 0) writing = write();
  }

  /** One after the other, so that no older number comes after a newer one. */
  async function write(): Promise<void> {
    busy = true;
    cancel();
    for (let [next] = waiting.values(); next && !stopped; [next] = waiting.values()) {
      const failure = await writeOne(next).then(
        () => undefined,
        (error: unknown) => error ?? 'unknown',
      );
      if (failure !== undefined) {
        if (!(failure instanceof StoreAway))
          log.error('spool.fault', { reason: 'what a webhook was sent could not be noted', error: failure });
        cancel = clock.after(AGAIN_MS, () => add([]));
        break;
      }
      if (waiting.get(next.hook.id) === next) waiting.delete(next.hook.id);
    }
    busy = false;
  }

  async function writeOne(tally: HookTally): Promise<void> {
    const { id, ...row } = toRow(tally);
    if (await store.webhookTallies.change({ id }, row)) return;
    // Nobody would ever remove the row of a webhook that was deleted meanwhile.
    if (await store.webhooks.one({ id: row.webhook })) await store.webhookTallies.insert({ id, ...row });
  }

  async function learn(): Promise<void> {
    try {
      add(await events.tallies());
    } catch (error) {
      log.error('spool.fault', { error });
    }
  }

  events.onNews((news: EventNews) => {
    if (news.kind === 'settled') add([news.tally]);
    if (news.kind === 'changed' && !stopped) void learn();
  });
  return Object.freeze({
    async start() {
      stopped = false;
      await learn();
    },
    async stop() {
      stopped = true;
      cancel();
      await writing;
    },
    idle: () => waiting.size === 0,
  });
}

function toRow({ hook, spool, batches, events, sentAt, error, errorAt }: HookTally): WebhookTallyRow {
  const at = (time: number | null) => (time === null ? null : new Date(time));
  return {
    id: `${hook.id} ${spool}`,
    account: hook.account,
    webhook: hook.id,
    batchesSent: batches,
    eventsSent: events,
    lastSentAt: at(sentAt),
    lastError: error,
    lastErrorAt: at(errorAt),
  };
}
