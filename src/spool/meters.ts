import type { Clock } from '../base/clock.ts';
import { type Metrics, NO_METRICS } from '../base/metrics.ts';
import type { CommitFigures } from './protocol.ts';
import type { DeliveryState } from './types.ts';

/** What the queue knows of itself. */
export interface Known {
  /** Deliveries that wait, by where they go; from memory. */
  waiting(): Readonly<Record<'webhook' | 'mail' | 'return', number>>;
  hasRoom(): boolean;
  disk(): { readonly total: number; readonly free: number } | undefined;
  /** Milliseconds since 1970 from which the oldest waits; null when none does. */
  oldest(): Promise<number | null>;
  /** Ended ones, by state, and how many milliseconds the reader took to count them. */
  ended(): Promise<Ended>;
}

type Ended = { readonly counts: Readonly<Record<Exclude<DeliveryState, 'waiting'>, number>>; readonly ms: number };

/** Counting a million ended deliveries takes a tenth of a second of the reader: no more than this share of its time goes into it. */
const SHARE = 0.01;

/** Shows the gauges of the queue. */
export function showQueue(known: Known, clock: Clock, metrics: Metrics = NO_METRICS): void {
  const ended = remembered(known.ended, clock);
  metrics.gauge('postern_spool_waiting', () =>
    Object.entries(known.waiting()).map(([endpoint, count]) => [{ endpoint }, count]),
  );
  metrics.gauge('postern_spool_deliveries', async () => {
    const waiting = Object.values(known.waiting()).reduce((sum, count) => sum + count, 0);
    return Object.entries({ waiting, ...(await ended()) }).map(([state, count]) => [{ state }, count]);
  });
  metrics.gauge('postern_spool_oldest_waiting_seconds', async () => {
    const since = await known.oldest();
    return since === null ? 0 : Math.max(0, clock.now() - since) / 1000;
  });
  metrics.gauge('postern_spool_accepts_mail', () => Number(known.hasRoom()));
  metrics.gauge('postern_spool_disk_free_bytes', () => known.disk()?.free);
  metrics.gauge('postern_spool_disk_bytes', () => known.disk()?.total);
}

/** Counts that are kept the longer the longer they took. */
function remembered(ask: () => Promise<Ended>, clock: Clock): () => Promise<Ended['counts']> {
  let known: Ended | undefined;
  let until = -Infinity;
  return async () => {
    if (known && clock.monotonic() < until) return known.counts;
    known = await ask();
    until = clock.monotonic() + known.ms / SHARE;
    return known.counts;
  };
}

/** Counts commits by what the writer says of them. */
export function createCommitMeters(metrics: Metrics = NO_METRICS): (figures: CommitFigures) => void {
  const seconds = metrics.histogram('postern_spool_commit_seconds');
  const writes = metrics.histogram('postern_spool_commit_writes');
  const messages = metrics.histogram('postern_spool_commit_messages');
  return (figures) => {
    seconds.observe(figures.ms / 1000);
    writes.observe(figures.writes);
    if (figures.messages > 0) messages.observe(figures.messages);
  };
}
