import { addUpMonths, hourlyQuota, reputationOf } from '../mail/reputation.ts';
import { reputationMonths, sinceMinutes, startOf } from '../store/counters.ts';
import type { Store } from '../store/store.ts';

/** What may be sent in an hour: a number, what the reputation earns, or no limit. */
export type Limit = number | 'earned' | null;

export interface MeterSettings {
  readonly account: string;
  readonly kind: 'account' | 'subaccount';
  readonly key: string;
  readonly limit: Limit;
}

/** Counts what one account or subaccount has sent in the last 60 minutes, on all hosts. */
export interface Meter {
  limit(limit: Limit): void;
  /** Reads the counters, when what is known of them is old. */
  read(now: number): Promise<void>;
  /** When one more may be sent: `now`, or the time at which enough of what was sent is an hour ago. */
  freeAt(now: number): number;
  /** One more is let go. */
  take(now: number): void;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
/** How long a reading serves, and how long it is held against later ones. Milliseconds. */
const FRESH_MS = 5_000;
const KEPT_MS = 120_000;

/** The counters at one time, with what this host has let go since, by the beginning of the minute. */
interface Reading {
  readonly at: number;
  readonly quota: number;
  readonly minutes: Map<number, number>;
}

/**
 * A counter grows when a message was sent, which is a while after it was let go; what this host let go since a reading is added
 * to it. What was on its way at a reading is in neither, so the readings of the last minutes are kept, and the highest of their
 * sums counts.
 */
export function createMeter(settings: MeterSettings, deps: { readonly store: Pick<Store, 'counters'> }): Meter {
  let limit = settings.limit;
  let readings: Reading[] = [];
  let reading: Promise<void> | undefined;

  async function readNow(now: number): Promise<void> {
    const made = await readCounters(settings, deps.store, now);
    readings = [...readings.filter(({ at }) => at <= now && now - at < KEPT_MS), made];
  }
  const quotaOf = ({ quota }: Reading) => (limit === 'earned' ? quota : (limit ?? Number.POSITIVE_INFINITY));

  return Object.freeze({
    limit(next: Limit) {
      limit = next;
    },
    async read(now: number) {
      const last = readings.at(-1);
      if (limit === null || (last && last.at <= now && now - last.at < FRESH_MS)) return;
      await (reading ??= readNow(now).finally(() => {
        reading = undefined;
      }));
    },
    freeAt(now: number) {
      const last = readings.at(-1);
      if (limit === null || !last) return now;
      return Math.max(now, ...readings.map(({ minutes }) => freeAt(minutes, quotaOf(last), now)));
    },
    take(now: number) {
      const minute = startOf('minute', new Date(now)).getTime();
      for (const { minutes } of readings) minutes.set(minute, (minutes.get(minute) ?? 0) + 1);
    },
  });
}

async function readCounters(
  { account, kind, key }: MeterSettings,
  { counters }: Pick<Store, 'counters'>,
  now: number,
): Promise<Reading> {
  const of = { account, kind, key };
  const [minutes, months] = await Promise.all([
    counters.many({ ...of, span: 'minute', start: { range: { gt: sinceMinutes(new Date(now)) } } }),
    counters.many({ ...of, span: 'month', start: { in: [...reputationMonths(new Date(now))] } }),
  ]);
  const recent = addUpMonths(months);
  return {
    at: now,
    quota: hourlyQuota(reputationOf(recent), recent),
    minutes: new Map(minutes.map(({ start, sent }) => [start.getTime(), sent])),
  };
}

/**
 * When the last 60 minutes leave room for one more. A minute counts whole until all of it is an hour ago, so that no hour has more
 * than the quota, wherever it begins.
 */
function freeAt(minutes: ReadonlyMap<number, number>, quota: number, now: number): number {
  const since = now - HOUR_MS - MINUTE_MS;
  const present = [...minutes].filter(([start]) => start > since).toSorted(([a], [b]) => a - b);
  let sum = present.reduce((all, [, sent]) => all + sent, 0);
  let at = now;
  for (const [start, sent] of present) {
    if (sum < quota) break;
    sum -= sent;
    at = start + MINUTE_MS + HOUR_MS;
  }
  return at;
}
