import { createBoundedCache, createReadCache } from '../../base/cache.ts';
import { type Clock, DAY_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { checkA, toReverseName } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import { toAsciiDomain } from '../../mail/addresses/address.ts';
import type { Outgoing } from '../../mail/outgoing.ts';
import { createPoolFinder, DEFAULT_POOL, readPlacement } from '../../store/rows/ips.ts';
import type { AccountStore, Store } from '../../store/store.ts';

/** How long an account's addresses are cached: after a change, mail uses the old ones for this long. Milliseconds. */
const KEPT_MS = 5000;
/** Per account; far more than any account has. */
const MOST = 1000;
const MAX_ACCOUNTS = 10_000;

/** An address with its pool and warmup. */
interface SourceIp {
  readonly ip: string;
  readonly pool: string;
  readonly warmupStartAt: Date | null;
  readonly warmupEndAt: Date | null;
}

/** The addresses of an account, and how many messages it sent in 24 hours (only if one of them is warming up). */
interface AccountAddresses {
  readonly ips: readonly SourceIp[];
  readonly daily: number;
}

interface CachedAddresses {
  readonly own: Promise<AccountAddresses>;
  readonly until: number;
}

/** Chooses the source addresses for messages. */
export type Sources = ReturnType<typeof createSources>;

export function createSources({ store, clock }: { readonly store: Pick<Store, 'of'>; readonly clock: Clock }) {
  const known = createBoundedCache<CachedAddresses>({ most: MAX_ACCOUNTS });

  function ownOf(account: string, now: Date): Promise<AccountAddresses> {
    const found = known.get(account);
    if (found && clock.monotonic() < found.until) return found.own;
    // While the store is unavailable, the cached addresses are used.
    const own = read(store, account, now).catch((error: unknown) => {
      if (!found) known.delete(account);
      return found?.own ?? Promise.reject(error);
    });
    known.set(account, { own, until: clock.monotonic() + KEPT_MS });
    return own;
  }

  return frozen({
    /**
     * The addresses of the message's pool, weighted by warmup. Empty: the host's default address. Throws `StoreAway` if
     * the store is unavailable and the account is not cached.
     */
    async choose(account: string, { pool: wished }: Pick<Outgoing, 'pool'>, chance: number, now: Date) {
      const { ips, daily } = await ownOf(account, now);
      // If the pool is unknown or empty, the default pool keeps the reputation of the account's addresses.
      const pool = wished !== null && ips.some((one) => one.pool === wished) ? wished : DEFAULT_POOL;
      const inPool = ips.filter((one) => one.pool === pool);
      const candidates = inPool.map(({ ip, warmupStartAt, warmupEndAt }) => ({
        ip,
        share: isWarming(warmupEndAt, now) ? warmupShare(warmupStartAt, now, daily / inPool.length) : 1,
      }));
      return chooseSource(candidates, chance);
    },
  });
}

async function read(store: Pick<Store, 'of'>, account: string, now: Date): Promise<AccountAddresses> {
  const own = store.of(account);
  const rows = await own.ips.many({ releasedAt: null }, { limit: MOST });
  if (rows.length === 0) return { ips: [], daily: 0 };
  const poolOf = createPoolFinder(await readPlacement(own));
  const ips = rows.map(({ id, warmupStartAt, warmupEndAt }) => ({
    ip: id,
    pool: poolOf(id),
    warmupStartAt,
    warmupEndAt,
  }));
  return {
    ips,
    daily: ips.some(({ warmupEndAt }) => isWarming(warmupEndAt, now)) ? await sentInDay(own, now) : 0,
  };
}

/** The number of messages of the account in the last 24 hours, over all of its pools. */
async function sentInDay(
  { account, counters }: Pick<AccountStore, 'account' | 'counters'>,
  now: Date,
): Promise<number> {
  const start = { range: { gt: new Date(now.getTime() - DAY_MS) } };
  const hours = await counters.many({ kind: 'account', span: 'hour', key: account, start });
  return hours.reduce((sum, { sent }) => sum + sent, 0);
}

/** An address that a message may leave from. `share`: 1 if warm, else the part of its normal mail it may carry. */
export interface Candidate {
  readonly ip: string;
  readonly share: number;
}

/**
 * Selects an address by `chance` (0 <= chance < 1), followed by the warm ones as fallbacks. Each of n addresses would
 * carry 1/n of the mail; one that is warming up carries its share of that. The rest goes to the warm ones in equal
 * parts or, if none is warm, to the host's own address: an empty list.
 */
export function chooseSource(candidates: readonly Candidate[], chance: number): readonly string[] {
  const warm = candidates.filter(({ share }) => share >= 1);
  const warming = candidates.filter(({ share }) => share < 1);
  let end = 0;
  for (const { ip, share } of warming) {
    end += share / candidates.length;
    if (chance < end) return [ip, ...warm.map((other) => other.ip)];
  }
  if (warm.length === 0) return [];
  const first = Math.min(warm.length - 1, Math.floor(((chance - end) / (1 - end)) * warm.length));
  return [...warm.slice(first), ...warm.slice(0, first)].map(({ ip }) => ip);
}

/** The EHLO name for a source address. */
export type SourceNames = (source: string | undefined) => Promise<string>;

const NAMES_KEPT_MS = 600_000;

/**
 * The PTR name of the source address if it resolves back to that address, else our hostname: receivers check the EHLO
 * name against both.
 */
export function createSourceNames(
  hostname: string,
  { resolver, clock }: { readonly resolver: Resolver; readonly clock: Clock },
): SourceNames {
  async function look(source: string): Promise<string> {
    const answer = await resolver.resolve(toReverseName(source) ?? '', 'PTR');
    const name = answer.kind === 'records' ? toAsciiDomain(answer.records[0] ?? '') : undefined;
    if (name === undefined) return hostname;
    const check = await checkA(resolver, name, source);
    return check !== 'unknown' && check.valid ? name : hostname;
  }

  const names = createReadCache((source) => look(source).catch(() => hostname), NAMES_KEPT_MS);
  return async (source) => (source === undefined ? hostname : names.get(source, clock.monotonic()));
}

/** How long a warmup takes, in days. */
export const WARMUP_DAYS = 30;

/**
 * Messages that a new address may carry on its first day. Published warmup plans start at 50 to 500 a day and double
 * every day or two; doubling 200 daily reaches 500,000 a day, what one address carries, in less than two weeks.
 */
const FIRST_DAY = 200;

/** The curve as text, for the API reference. */
export const WARMUP_CURVE =
  `It carries about ${FIRST_DAY} messages on its first day ` + 'and twice as many on each day that follows.';

/** When a warmup that starts at `startedAt` ends. */
export function warmupEnd(startedAt: Date): Date {
  return new Date(startedAt.getTime() + WARMUP_DAYS * DAY_MS);
}

/** Whether an address whose warmup ends at `endAt` is warming up. */
export function isWarming(endAt: Date | null | undefined, now: Date): boolean {
  return endAt instanceof Date && now < endAt;
}

/**
 * The share of its normal mail that an address may carry now. `daily` is that normal volume in messages per 24 hours: a
 * low-volume address carries all of it from the first day. `startedAt` null: it is not warming up.
 */
export function warmupShare(startedAt: Date | null, now: Date, daily: number): number {
  if (startedAt === null) return 1;
  const day = Math.floor((now.getTime() - startedAt.getTime()) / DAY_MS);
  const allowed = FIRST_DAY * 2 ** Math.min(WARMUP_DAYS, Math.max(0, day));
  return Math.min(1, allowed / Math.max(1, daily));
}
