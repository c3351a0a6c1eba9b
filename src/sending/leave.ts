import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { createMemory, createRecent } from '../base/memory.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import { addUpMonths, hourlyQuota, reputationOf } from '../mail/stats.ts';
import type { Spool } from '../queue/delivery.ts';
import { StoreAway } from '../store/driver/port.ts';
import { reputationMonths, sinceMinutes, startOf } from '../store/rows/counters.ts';
import { type SubaccountRow, subaccountId } from '../store/rows/subaccounts.ts';
import type { Store } from '../store/store.ts';
import type { Holding, Leave, Leaving } from './types.ts';

interface LeaveSettings {
  /**
   * Whether accounts, and subaccounts without a quota of their own, are held to the quota that their reputation earns.
   */
  readonly quota: boolean;
}

interface LeaveDeps {
  readonly store: Pick<Store, 'subaccounts' | 'counters'>;
  readonly ids: Pick<Ids, 'jitter'>;
  /** How long mail has waited. */
  readonly time: Pick<RunningTime, 'age' | 'sure'>;
}

/** How long what the store said of a subaccount is believed. Milliseconds. */
const FRESH_MS = 5_000;
/** How long mail waits for a subaccount to be resumed (documented). */
const LONGEST_PAUSE_MS = 3 * 86_400_000;
/** A quota may grow meanwhile, so nobody waits longer before asking again. */
const LONGEST_WAIT_MS = 600_000;
/** While the store is away nobody knows who may send; it is asked again after this time. */
const AWAY_MS = 30_000;

type Verdict = Exclude<Leave, { readonly kind: 'now' }>;

/** One thing that may hold mail back. */
interface Holder {
  readonly meter: Meter;
  readonly spread: Spread;
}

/**
 * Says whether mail may leave now: its subaccount is there and not paused, and neither it nor the account is over its
 * hourly quota.
 */
export function createLeaving(settings: LeaveSettings, deps: LeaveDeps): Leaving & Holding {
  const { store, ids } = deps;
  const rows = createRecent((id) => store.subaccounts.one({ id }), FRESH_MS);
  const holders = createHolders(settings, deps);

  async function decide(account: string, { subaccount }: Outgoing, queuedAt: number, now: number): Promise<Leave> {
    const row = subaccount === null ? null : await rows.get(subaccountId(account, subaccount), now);
    if (row === undefined) return { kind: 'never', reason: 'its subaccount was deleted' };
    if (row?.status === 'paused')
      return paused(row, queuedAt, now, holders.of(account, row).spread.next(now, ids.jitter()), deps.time);
    const all = [holders.of(account, null), ...(row ? [holders.of(account, row)] : [])];
    for (const { meter } of all) await meter.read(now);
    // From here on nothing is waited for, so that two that ask at once cannot both have the last place.
    for (const { meter, spread } of all) {
      const at = meter.freeAt(now);
      if (at > now) return { kind: 'later', at: Math.min(at, now + LONGEST_WAIT_MS) + spread.next(now, ids.jitter()) };
    }
    for (const { meter } of all) meter.take(now);
    return { kind: 'now' };
  }

  return frozen({
    changed: (account, subaccount) => rows.forget(subaccountId(account, subaccount)),
    async heldBecause(account, { subaccount }, now) {
      const row = subaccount === null ? null : await rows.get(subaccountId(account, subaccount), now);
      if (row?.status === 'paused') return 'sending-paused';
      for (const { meter } of [holders.of(account, null), ...(row ? [holders.of(account, row)] : [])]) {
        await meter.read(now);
        if (meter.freeAt(now) > now) return 'hourly-quota';
      }
      return undefined;
    },
    async mayLeave(account, outgoing, queuedAt, now) {
      try {
        return await decide(account, outgoing, queuedAt, now);
      } catch (error) {
        if (error instanceof StoreAway) return { kind: 'later', at: now + AWAY_MS } as const;
        throw error;
      }
    },
  });
}

/** What was queued before the pause, or is due since, waits from then on. */
function paused(
  { pausedAt }: SubaccountRow,
  queuedAt: number,
  now: number,
  wait: number,
  time: LeaveDeps['time'],
): Verdict {
  const from = Math.max(queuedAt, pausedAt?.getTime() ?? 0);
  const left = LONGEST_PAUSE_MS - time.age(from);
  if (left <= 0 && time.sure()) return { kind: 'never', reason: 'its subaccount was paused for 3 days' };
  return { kind: 'later', at: now + (left > 0 ? Math.min(wait, left) : wait) };
}

/** Accounts and subaccounts that are kept in mind. One that is forgotten is read again. */
const MAX_HOLDERS = 10_000;

function createHolders(
  { quota }: LeaveSettings,
  { store }: LeaveDeps,
): { of(account: string, row: SubaccountRow | null): Holder } {
  const known = createMemory<Holder>({ most: MAX_HOLDERS });
  return {
    of(account, row) {
      const key = row ? row.id : account;
      const earned = quota ? ('earned' as const) : null;
      const limit = row?.customQuota ?? earned;
      const found = known.get(key);
      if (found) {
        found.meter.limit(limit);
        return found;
      }
      const made = {
        meter: createMeter(
          { account, kind: row ? 'subaccount' : 'account', key: row ? row.slug : account, limit },
          { store },
        ),
        spread: createSpread(),
      };
      known.set(key, made);
      return made;
    },
  };
}

/** What may be sent in an hour: a number, what the reputation earns, or no limit. */
type Limit = number | 'earned' | null;

interface MeterSettings {
  readonly account: string;
  readonly kind: 'account' | 'subaccount';
  readonly key: string;
  readonly limit: Limit;
}

/** Counts what one account or subaccount has sent in the last 60 minutes, on all hosts. */
interface Meter {
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
const KEPT_MS = 120_000;

/** The counters at one time, with what this host has let go since, by the beginning of the minute. */
interface Reading {
  readonly at: number;
  readonly quota: number;
  readonly minutes: Map<number, number>;
}

/**
 * A counter grows when a message was sent, which is a while after it was let go; what this host let go since a reading
 * is added to it. What was on its way at a reading is in neither, so the readings of the last minutes are kept, and the
 * highest of their sums counts.
 */
function createMeter(settings: MeterSettings, deps: { readonly store: Pick<Store, 'counters'> }): Meter {
  let limit = settings.limit;
  let readings: Reading[] = [];
  let reading: Promise<void> | undefined;

  async function readNow(now: number): Promise<void> {
    const made = await readCounters(settings, deps.store, now);
    readings = [...readings.filter(({ at }) => at <= now && now - at < KEPT_MS), made];
  }
  const quotaOf = ({ quota }: Reading) => (limit === 'earned' ? quota : (limit ?? Number.POSITIVE_INFINITY));

  return frozen({
    limit(next) {
      limit = next;
    },
    async read(now) {
      const last = readings.at(-1);
      if (limit === null || (last && last.at <= now && now - last.at < FRESH_MS)) return;
      await (reading ??= readNow(now).finally(() => {
        reading = undefined;
      }));
    },
    freeAt(now) {
      const last = readings.at(-1);
      if (limit === null || !last) return now;
      return Math.max(now, ...readings.map(({ minutes }) => freeAt(minutes, quotaOf(last), now)));
    },
    take(now) {
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
 * When the last 60 minutes leave room for one more. A minute counts whole until all of it is an hour ago, so that no
 * hour has more than the quota, wherever it begins.
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

/** Keeps those who wait from all asking at once. */
interface Spread {
  /** How many milliseconds from now one that has to wait asks again; `chance` is in [0, 1). */
  next(now: number, chance: number): number;
}

const LONGEST_MS = 15 * MINUTE_MS;
/** Putting one off is a write to the spool; so many in a minute are cheap. */
const ASKS_PER_MINUTE = 1200;

/** Every minute, and less often when so many wait that their asking would be a load of its own. */
function createSpread(): Spread {
  let span = MINUTE_MS;
  let asked = 0;
  let from = Number.NEGATIVE_INFINITY;
  return frozen({
    next(now, chance) {
      if (now - from >= MINUTE_MS || now < from) {
        span = Math.min(LONGEST_MS, Math.max(MINUTE_MS, (span * asked) / ASKS_PER_MINUTE));
        asked = 0;
        from = now;
      }
      asked++;
      // Half of it by chance, so that what was queued together does not ask together for ever.
      return Math.round((span * (1 + chance)) / 2);
    },
  });
}

interface ReleasingDeps {
  readonly spool: Pick<Spool, 'retry'>;
  readonly holding: Holding;
  readonly clock: Clock;
  readonly log: Log;
}

/** Mail of a subaccount that is held back, or is no longer. */
export interface Releasing {
  /** None of it leaves from now on. */
  hold(account: string, subaccount: string): void;
  /**
   * Lets it leave at once, now that it may. Never throws: what it cannot release asks again by itself, within a minute
   * or so. Answers how many.
   */
  release(account: string, subaccount: string): Promise<number>;
}

/** Releases what waits on the spool of this host, whenever it was put there. */
export function createReleasing({ spool, holding, clock, log }: ReleasingDeps): Releasing {
  return frozen({
    hold: holding.changed,
    async release(account, subaccount) {
      holding.changed(account, subaccount);
      try {
        return await spool.retry(
          { account, kinds: ['outbound'], routeIds: [subaccountId(account, subaccount)], states: ['waiting'] },
          clock.now(),
        );
      } catch (error) {
        log.error('message.fault', { account, error });
        return 0;
      }
    },
  });
}
