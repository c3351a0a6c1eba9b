import { createBoundedCache, createReadCache } from '../base/cache.ts';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { RunningTime } from '../base/running-time.ts';
import type { Tools } from '../base/tools.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import { addUpMonths, hourlyQuota, reputationOf } from '../mail/stats.ts';
import type { Spool } from '../queue/delivery.ts';
import { StoreAway } from '../store/driver/port.ts';
import { reputationMonths, sinceMinutes, startOf } from '../store/rows/counters.ts';
import { type SubaccountRow, subaccountId } from '../store/rows/subaccounts.ts';
import type { Store } from '../store/store.ts';

interface LeaveSettings {
  /** Whether accounts, and subaccounts without a custom quota, are limited to the quota that their reputation earns. */
  readonly quota: boolean;
}

interface LeaveDeps {
  readonly store: Pick<Store, 'subaccounts' | 'counters'>;
  readonly ids: Pick<Ids, 'jitter'>;
  /** Measures how long mail has waited. */
  readonly time: Pick<RunningTime, 'age' | 'sure'>;
}

/** How long a subaccount's row is cached. Milliseconds. */
const FRESH_MS = 5_000;
/** How long mail waits for a paused subaccount to be resumed (documented). */
const LONGEST_PAUSE_MS = 3 * DAY_MS;
/** A quota may grow meanwhile, so mail is checked again at least this often. */
const LONGEST_WAIT_MS = 600_000;
/** Retry interval while the store is unavailable. */
const AWAY_MS = 30_000;

/**
 * Whether a message may leave now. `later`: paused or over quota; ask again at `at`. `never`: paused for too long, or
 * the subaccount was deleted.
 */
export type ReleaseDecision = { readonly kind: 'now' } | Verdict;
type Verdict = { readonly kind: 'later'; readonly at: number } | { readonly kind: 'never'; readonly reason: string };

export type SendingQuota = ReturnType<typeof createSendingQuota>;

/** The quota state of one account or subaccount. */
interface Holder {
  readonly meter: Meter;
  readonly spread: Spread;
}

/**
 * Decides whether mail may leave now: its subaccount must exist and not be paused, and both subaccount and account must
 * be within their hourly quotas.
 */
export function createSendingQuota(settings: LeaveSettings, deps: LeaveDeps) {
  const { store, ids } = deps;
  const rows = createReadCache((id) => store.subaccounts.one({ id }), FRESH_MS);
  const holders = createHolders(settings, deps);

  async function decide(
    account: string,
    { subaccount }: Outgoing,
    queuedAt: number,
    now: number,
  ): Promise<ReleaseDecision> {
    const row = subaccount === null ? null : await rows.get(subaccountId(account, subaccount), now);
    if (row === undefined) return { kind: 'never', reason: 'its subaccount was deleted' };
    if (row?.status === 'paused')
      return paused(row, queuedAt, now, holders.of(account, row).spread.next(now, ids.jitter()), deps.time);
    const all = [holders.of(account, null), ...(row ? [holders.of(account, row)] : [])];
    for (const { meter } of all) await meter.read(now);
    // No awaits from here on, so that two concurrent callers cannot both take the last slot.
    for (const { meter, spread } of all) {
      const at = meter.freeAt(now);
      if (at > now) return { kind: 'later', at: Math.min(at, now + LONGEST_WAIT_MS) + spread.next(now, ids.jitter()) };
    }
    for (const { meter } of all) meter.take(now);
    return { kind: 'now' };
  }

  return frozen({
    /** Drops the cached row of a subaccount after a change. */
    changed: (account: string, subaccount: string) => rows.forget(subaccountId(account, subaccount)),
    /** Why the message would be held back now; undefined when it would not. Uses up no quota. Throws `StoreAway`. */
    async heldBecause(
      account: string,
      { subaccount }: Outgoing,
      now: number,
    ): Promise<'sending-paused' | 'hourly-quota' | undefined> {
      const row = subaccount === null ? null : await rows.get(subaccountId(account, subaccount), now);
      if (row?.status === 'paused') return 'sending-paused';
      for (const { meter } of [holders.of(account, null), ...(row ? [holders.of(account, row)] : [])]) {
        await meter.read(now);
        if (meter.freeAt(now) > now) return 'hourly-quota';
      }
      return undefined;
    },
    async mayLeave(account: string, outgoing: Outgoing, queuedAt: number, now: number): Promise<ReleaseDecision> {
      try {
        return await decide(account, outgoing, queuedAt, now);
      } catch (error) {
        if (error instanceof StoreAway) return { kind: 'later', at: now + AWAY_MS };
        throw error;
      }
    },
  });
}

/** The time waited counts from the pause, or from `queuedAt` if that is later. */
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

/** Accounts and subaccounts kept in memory; evicted ones are read again. */
const MAX_HOLDERS = 10_000;

function createHolders(
  { quota }: LeaveSettings,
  { store }: LeaveDeps,
): { of(account: string, row: SubaccountRow | null): Holder } {
  const known = createBoundedCache<Holder>({ most: MAX_HOLDERS });
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

/** The hourly limit: a number, the quota that the reputation earns, or none. */
type Limit = number | 'earned' | null;

interface MeterSettings {
  readonly account: string;
  readonly kind: 'account' | 'subaccount';
  readonly key: string;
  readonly limit: Limit;
}

/** Counts the messages of one account or subaccount in the last 60 minutes, on all hosts. */
type Meter = ReturnType<typeof createMeter>;

const KEPT_MS = 120_000;

/** The counters at one time, plus messages released by this host since, by start of the minute. */
interface Reading {
  readonly at: number;
  readonly quota: number;
  readonly minutes: Map<number, number>;
}

/**
 * Counters grow when a message has been sent, a while after it was released, so what this host released since a reading
 * is added to it. Mail in flight during a reading is in neither; therefore the readings of the last minutes are kept,
 * and the highest of their sums counts.
 */
function createMeter(settings: MeterSettings, deps: { readonly store: Pick<Store, 'counters'> }) {
  let limit = settings.limit;
  let readings: Reading[] = [];
  let reading: Promise<void> | undefined;

  async function readNow(now: number): Promise<void> {
    const made = await readCounters(settings, deps.store, now);
    readings = [...readings.filter(({ at }) => at <= now && now - at < KEPT_MS), made];
  }
  const quotaOf = ({ quota }: Reading) => (limit === 'earned' ? quota : (limit ?? Number.POSITIVE_INFINITY));

  return frozen({
    limit(next: Limit) {
      limit = next;
    },
    /** Reads the counters unless the last reading is recent. */
    async read(now: number) {
      const last = readings.at(-1);
      if (limit === null || (last && last.at <= now && now - last.at < FRESH_MS)) return;
      await (reading ??= readNow(now).finally(() => {
        reading = undefined;
      }));
    },
    /** When one more may be sent: `now`, or when enough earlier messages are more than an hour old. */
    freeAt(now: number): number {
      const last = readings.at(-1);
      if (limit === null || !last) return now;
      return Math.max(now, ...readings.map(({ minutes }) => freeAt(minutes, quotaOf(last), now)));
    },
    /** Counts one more message as sent. */
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
 * When the last 60 minutes have room for one more. A minute counts fully until all of it is an hour old, so that no 60
 * minutes exceed the quota, wherever they begin.
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

/** Spreads the checks of waiting mail over time. */
type Spread = ReturnType<typeof createSpread>;

const LONGEST_MS = 15 * MINUTE_MS;
/** Putting a message off is a write to the spool; this many per minute are cheap. */
const ASKS_PER_MINUTE = 1200;

/** Checks every minute, or less often if so many messages wait that checking itself would be a load. */
function createSpread() {
  let span = MINUTE_MS;
  let asked = 0;
  let from = Number.NEGATIVE_INFINITY;
  return frozen({
    /** Milliseconds until the next check of a waiting message; `chance` is in [0, 1). */
    next(now: number, chance: number): number {
      if (now - from >= MINUTE_MS || now < from) {
        span = Math.min(LONGEST_MS, Math.max(MINUTE_MS, (span * asked) / ASKS_PER_MINUTE));
        asked = 0;
        from = now;
      }
      asked++;
      // Half of it is random, so that mail queued together does not stay together.
      return Math.round((span * (1 + chance)) / 2);
    },
  });
}

interface ReleasingDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly spool: Pick<Spool, 'retry'>;
  readonly holding: Pick<SendingQuota, 'changed'>;
}

/** Holds back or releases the mail of a subaccount. */
export type Releasing = ReturnType<typeof createReleasing>;

/** Releases mail that waits on this host's spool, whenever it was queued. */
export function createReleasing({ spool, holding, clock, log }: ReleasingDeps) {
  return frozen({
    /** Stops its mail from now on. */
    hold: holding.changed,
    /**
     * Releases its mail immediately after a change allows it. Never throws: what cannot be released is checked again
     * within a minute or so. Returns how many were released.
     */
    async release(account: string, subaccount: string) {
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
