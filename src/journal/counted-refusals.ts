import { MINUTE_MS } from '../base/clock.ts';
import { networkOf } from '../base/networks.ts';
import type { RefusalRecord } from './types.ts';

// Refusals that wait to be written; a flood of them is counted instead.

/** Rows of a network within a minute; a harvester must not fill the journal. */
const OWN_ROWS = 60;
/** Networks with a limit of their own within a minute; the others share one. */
const MAX_NETWORKS = 10_000;

/** Counts entries of each network within a minute. */
export function createMinute() {
  let minute = 0;
  const counts = new Map<string, number>();
  return {
    /** Returns whether a new minute has begun. */
    turn(at: number): boolean {
      const now = Math.floor(at / MINUTE_MS);
      if (now === minute) return false;
      minute = now;
      counts.clear();
      return true;
    },
    /** Counts an entry. Returns whether it gets a row. */
    hasRow(client: string): boolean {
      const network = networkOf(client);
      const key = counts.has(network) || counts.size < MAX_NETWORKS ? network : '';
      const count = (counts.get(key) ?? 0) + 1;
      counts.set(key, count);
      return count <= OWN_ROWS;
    },
  };
}

/** Waiting refusals. If a network has too many within a minute, the rest is counted and written as one row after it. */
export function createRefusals() {
  const minute = createMinute();
  let rows: Omit<RefusalRecord, 'n'>[] = [];
  const counted = new Map<string, Omit<RefusalRecord, 'n'>>();

  function turn(at: number): void {
    if (!minute.turn(at)) return;
    rows.push(...counted.values());
    counted.clear();
  }

  return {
    add(refusal: Omit<RefusalRecord, 'n' | 'times'>): void {
      turn(refusal.at);
      if (minute.hasRow(refusal.client)) {
        rows.push({ ...refusal, times: 1 });
        return;
      }
      const { client, reason, account } = refusal;
      const own = `${networkOf(client)} ${reason} ${account}`;
      const key = counted.has(own) || counted.size < MAX_NETWORKS ? own : reason;
      const { times } = counted.get(key) ?? { times: 0 };
      counted.set(key, { ...refusal, times: times + 1 });
    },
    size: () => rows.length + counted.size,
    drop(): void {
      if (!rows.shift()) dropFirst(counted);
    },
    take(now: number): readonly Omit<RefusalRecord, 'n'>[] {
      turn(now);
      const taken = rows;
      rows = [];
      return taken;
    },
  };
}

/** Deletes the oldest entry. */
export function dropFirst(map: Map<string, unknown>): void {
  for (const [key] of map) if (map.delete(key)) return;
}
