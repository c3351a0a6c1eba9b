import { addUpMonths, hourlyQuota, reputationOf } from '../mail/reputation.ts';
import { reputationMonths, startOf } from '../store/counters.ts';
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

const HOUR_MS = 3_600_000;
/** How long a reading serves, and how long it is held against later ones. Milliseconds. */
const FRESH_MS = 5_000;
const KEPT_MS = 120_000;

/** The counters at one time, with what this host has let go since, by the beginning of the hour. */
interface Reading {
  readonly at: number;
  readonly quota: number;
  readonly hours: Map<number, number>;
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
  const quotaOf = ({ quota }: Reading) => limit === 'earned' ? quota : limit ?? Number.POSITIVE_INFINITY;

  return Object.freeze({
    limit(next: Limit) { limit = next; },
    async read(now: number) {
      const last = readings.at(-1);
      if (limit === null || last && last.at <= now && now - last.at < FRESH_MS) return;
      await (reading ??= readNow(now).finally(() => { reading = undefined; }));
    },
    freeAt(now: number) {
      const last = readings.at(-1);
      if (limit === null || !last) return now;
      return Math.max(now, ...readings.map(({ hours }) => freeAt(hours, quotaOf(last), now)));
    },
    take(now: number) {
      const hour = hourOf(now);
      for (const { hours } of readings) hours.set(hour, (hours.get(hour) ?? 0) + 1);
    },
  });
}

async function readCounters({ account, kind, key }: MeterSettings, { counters }: Pick<Store, 'counters'>, now: number): Promise<Reading> {
  const hour = hourOf(now);
  const of = { account, kind, key };
  const [hours, months] = await Promise.all([
    counters.many({ ...of, span: 'hour', start: { in: [new Date(hour), new Date(hour - HOUR_MS)] } }),
    counters.many({ ...of, span: 'month', start: { in: [...reputationMonths(new Date(now))] } }),
  ]);
  const recent = addUpMonths(months);
  return { at: now, quota: hourlyQuota(reputationOf(recent), recent), hours: new Map(hours.map(({ start, sent }) => [start.getTime(), sent])) };
}

/**
 * When the sum of the last 60 minutes leaves room for one more. Counts are kept by the hour: of the hour before, the part that
 * still lies in the last 60 minutes counts in proportion, as in the record of a subaccount.
 */
function freeAt(hours: ReadonlyMap<number, number>, quota: number, now: number): number {
  const most = quota - 1;
  const hour = hourOf(now);
  const next = hour + HOUR_MS;
  const [present, before] = [hours.get(hour) ?? 0, hours.get(hour - HOUR_MS) ?? 0];
  if (present + before * (next - now) / HOUR_MS <= most) return now;
  if (present <= most) return Math.ceil(next - HOUR_MS * (most - present) / before);
  return Math.ceil(next + HOUR_MS * (1 - most / present));
}

function hourOf(now: number): number {
  return startOf('hour', new Date(now)).getTime();
}
