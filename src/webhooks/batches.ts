import { HOUR_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Service, Task } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
import type { Spool } from '../queue/delivery.ts';
import type { BatchLimits, EventNews, FreezeOutcome, HookTally, Pending } from '../queue/events.ts';
import { type ClockTrust, createSteadiness } from '../queue/purge.ts';
import { StoreAway } from '../store/driver/port.ts';
import type { WebhookTallyRow } from '../store/rows/webhooks.ts';
import type { Store } from '../store/store.ts';

export interface BatchingSettings {
  readonly limits: BatchLimits;
  /** Milliseconds that an event waits for others. */
  readonly waitMs: number;
}

interface BatchingDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly spool: Pick<Spool, 'events'>;
}

/** Milliseconds until the retry after a fault. */
const AGAIN_MS = 5000;

/** The pending events of one webhook, counted by the main thread: never too few, sometimes too many. */
interface Queue {
  events: number;
  bytes: number;
  /** When the oldest arrived, in milliseconds of the monotonic clock. */
  since: number;
  /** A batch is being created. */
  busy: boolean;
  /** The limit of open batches is reached: the next is created when one of them ends. */
  blocked: boolean;
  /** A batch ended before the reply that the limit is reached arrived. */
  ended: boolean;
  cancel: () => void;
}

/**
 * Makes pending events into a batch when there are enough, or when the oldest has waited long enough. The spool holds
 * the events; the state here only decides when to ask it.
 */
export function createBatching({ limits, waitMs }: BatchingSettings, deps: BatchingDeps): Service {
  const { clock, ids, log } = deps;
  const { events } = deps.spool;
  const queues = new Map<string, Queue>();
  let stopped = true;

  function queueOf(webhook: string): Queue {
    const known = queues.get(webhook);
    if (known) return known;
    const fresh = { events: 0, bytes: 0, since: 0, busy: false, blocked: false, ended: false, cancel: () => {} };
    queues.set(webhook, fresh);
    return fresh;
  }

  function look(webhook: string, queue: Queue): void {
    queue.cancel();
    if (stopped || queue.busy || queue.blocked) return;
    if (queue.events === 0) return void queues.delete(webhook);
    const full = queue.events >= limits.events || queue.bytes >= limits.bytes;
    const wait = full ? 0 : queue.since + waitMs - clock.monotonic();
    if (wait <= 0) void freeze(webhook, queue);
    else queue.cancel = clock.after(wait, () => look(webhook, queue));
  }

  async function freeze(webhook: string, queue: Queue): Promise<void> {
    Object.assign(queue, { busy: true, ended: false, events: 0, bytes: 0 });
    try {
      take(queue, await events.freeze(webhook, ids.message(), limits, clock.now()));
      queue.busy = false;
      look(webhook, queue);
    } catch (error) {
      queue.busy = false;
      queue.events = Math.max(1, queue.events);
      if (stopped) return;
      log.error('spool.fault', { error });
      queue.cancel = clock.after(AGAIN_MS, () => look(webhook, queue));
    }
  }

  /**
   * Events that arrived while the batch was created may be counted twice, here and in `left`: this costs one extra
   * request, never an event.
   */
  function take(queue: Queue, { blocked, left }: FreezeOutcome): void {
    queue.blocked = blocked && !queue.ended;
    if (left.events > 0) queue.since = steady(left.since);
    queue.events += left.events;
    queue.bytes += left.bytes;
  }

  /** Converts to the monotonic clock, so that a wrong wall clock cannot delay an event. */
  function steady(since: number): number {
    return clock.monotonic() - Math.max(0, clock.now() - since);
  }

  function hear(news: EventNews): void {
    if (stopped) return;
    if (news.kind === 'changed') return void learn();
    const queue = news.kind === 'pending' ? queueOf(news.webhook) : queues.get(news.webhook);
    if (!queue) return;
    if (news.kind === 'pending') add(queue, news);
    else Object.assign(queue, { ended: true, blocked: false });
    look(news.webhook, queue);
  }

  function add(queue: Queue, more: Pick<Pending, 'events' | 'bytes'>): void {
    if (queue.events === 0) queue.since = clock.monotonic();
    queue.events += more.events;
    queue.bytes += more.bytes;
  }

  /** Reloads everything: at startup, and after a manual change to the queue. */
  async function learn(): Promise<void> {
    try {
      for (const { webhook, pending } of await events.pending(limits.events)) {
        const queue = queueOf(webhook);
        Object.assign(queue, { blocked: false, ended: true });
        if (!queue.busy)
          Object.assign(queue, { events: pending.events, bytes: pending.bytes, since: steady(pending.since) });
        look(webhook, queue);
      }
    } catch (error) {
      if (stopped) return;
      log.error('spool.fault', { error });
      clock.after(AGAIN_MS, () => hear({ kind: 'changed' }));
    }
  }

  events.onNews(hear);
  return frozen({
    async start() {
      stopped = false;
      await learn();
    },
    async stop() {
      stopped = true;
      for (const { cancel } of queues.values()) cancel();
      // Do not wait for a batch in progress: on a full disk it waits for space, or ends with the spool.
    },
  });
}

interface TalliesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'events'>;
  readonly store: Pick<Store, 'webhooks' | 'webhookTallies'>;
}

/**
 * Writes this host's counts for each webhook to the store. The numbers are absolute and each spool has its own row, so
 * writing them again, after a crash or a store outage, is harmless.
 */
export function createTallies({ spool: { events }, store, clock, log }: TalliesDeps) {
  const waiting = new Map<string, HookTally>();
  let writing = Promise.resolve();
  let busy = false;
  let cancel = () => {};
  let stopped = true;

  function add(tallies: readonly HookTally[]): void {
    for (const tally of tallies) waiting.set(tally.hook.id, tally);
    if (!stopped && !busy && waiting.size > 0) writing = write();
  }

  /** Writes one at a time, so that an older number never overwrites a newer one. */
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
          log.error('spool.fault', { reason: 'cannot save the counts of a webhook', error: failure });
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
    // The row of a webhook deleted meanwhile would never be removed.
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
  return frozen({
    async start() {
      stopped = false;
      await learn();
    },
    async stop() {
      stopped = true;
      cancel();
      await writing;
    },
    /** Whether all counts so far are in the store. */
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

interface TendBatchesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'events'>;
  readonly store: Pick<Store, 'webhooks'>;
  readonly time: ClockTrust;
}

/**
 * Compares the webhooks in this host's spool with the store: another host may have deleted a webhook or changed its
 * URL, or this host may have crashed halfway. Also expires events that waited too long to become a batch.
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
    perHost: true,
    async run() {
      if (isSteady()) {
        for (const { webhook, events: count } of await events.expire(clock.now() - settings.retryHours * HOUR_MS)) {
          log.error('delivery.failed', { webhook, events: count, error: 'expired while waiting for the endpoint' });
        }
      }
      const { forgotten, redirected } = await align();
      return forgotten + redirected > 0 ? { forgotten, redirected } : undefined;
    },
  };
}
