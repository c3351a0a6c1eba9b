import { postern as command } from '../command.ts';
import { until } from '../until.ts';
import type { Ledger } from './ledger.ts';
import type { Sink } from './sink.ts';

/** A delivery that the queue still answers for. */
export interface Left {
  readonly id: string;
  readonly state: 'waiting' | 'dead';
  readonly last_error: string | null;
}

/** What became of what was promised. */
export interface Verdict {
  readonly acknowledged: number;
  /** Different messages that arrived and were answered 2xx. */
  readonly delivered: number;
  /** Ids that were acknowledged and are neither delivered nor in the queue. */
  readonly lost: readonly string[];
  /** Arrivals beyond the first under the same webhook-id. */
  readonly duplicates: number;
  /** The most arrivals under one webhook-id. */
  readonly mostOfOne: number;
  /** webhook-ids that a body came under although another one is its own. */
  readonly mismatched: readonly string[];
  /** webhook-ids of messages that were not sent in this form. */
  readonly altered: readonly string[];
  readonly waiting: number;
  readonly dead: number;
}

/** What waits or was given up in the queue of a data folder, whether a daemon runs there or not. */
export async function leftIn(dir: string): Promise<Left[]> {
  const { code, out, err } = await command(['queue', 'list', '--kind', 'inbound', '--limit', '10000000', '--jsonl'], {
    POSTERN_DATA_DIR: dir,
  });
  if (code !== 0) throw new Error(`the queue cannot be listed: ${err}`);
  return out
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

/** Holds arrivals and what is left against the ledger. `left` must have been read before. */
export function judge(ledger: Ledger, sink: Pick<Sink, 'arrivals'>, left: readonly Left[]): Verdict {
  const { counts, idsOf, delivered, altered } = readArrivals(ledger, sink);
  const kept = new Set(left.map(({ id }) => messageOf(id)));
  const entries = [...ledger.acknowledged];
  const wrong = entries.flatMap(([hash, id]) => [...(idsOf.get(hash) ?? [])].filter((came) => messageOf(came) !== id));
  const split = [...idsOf.values()].filter((ids) => ids.size > 1).flatMap((ids) => [...ids].slice(1));
  return {
    acknowledged: entries.length,
    delivered: delivered.size,
    lost: entries.filter(([hash, id]) => !delivered.has(hash) && !kept.has(id)).map(([, id]) => id),
    duplicates: [...counts.values()].reduce((sum, count) => sum + count - 1, 0),
    mostOfOne: [...counts.values()].reduce((most, count) => Math.max(most, count), 0),
    mismatched: [...new Set([...wrong, ...split])],
    altered,
    waiting: left.filter(({ state }) => state === 'waiting').length,
    dead: left.filter(({ state }) => state === 'dead').length,
  };
}

function readArrivals(ledger: Ledger, { arrivals }: Pick<Sink, 'arrivals'>) {
  const counts = new Map<string, number>();
  const idsOf = new Map<string, Set<string>>();
  const delivered = new Set<string>();
  const altered: string[] = [];
  for (const { id, hashes, status } of arrivals) {
    counts.set(id, (counts.get(id) ?? 0) + 1);
    for (const hash of hashes) {
      idsOf.set(hash, (idsOf.get(hash) ?? new Set()).add(id));
      if (status >= 200 && status < 300) delivered.add(hash);
      if (!ledger.wasSent(hash)) altered.push(id);
    }
  }
  return { counts, idsOf, delivered, altered };
}

/** The message that a delivery id belongs to; it is its first half. */
function messageOf(deliveryId: string): string {
  return deliveryId.slice(0, 26);
}

/**
 * Waits until everything acknowledged has arrived and the queue is empty, and judges. What does not come in time is
 * judged as it is.
 */
export async function judgeWhenQuiet(dir: string, ledger: Ledger, sink: Sink, ms = 120_000): Promise<Verdict> {
  let seen = 0;
  const delivered = new Set<string>();
  await until(
    'everything acknowledged to arrive',
    () => {
      for (const { hashes } of sink.arrivals.slice(seen)) for (const hash of hashes) delivered.add(hash);
      seen = sink.arrivals.length;
      return (
        delivered.size >= ledger.acknowledged.size &&
        [...ledger.acknowledged.keys()].every((hash) => delivered.has(hash))
      );
    },
    ms,
  ).catch(() => {});
  let left: Left[] = [];
  await until(
    'an empty queue',
    async () => {
      left = await leftIn(dir);
      return left.every(({ state }) => state !== 'waiting');
    },
    30_000,
  ).catch(() => {});
  return judge(ledger, sink, left);
}
