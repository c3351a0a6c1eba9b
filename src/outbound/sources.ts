import type { Clock } from '../base/clock.ts';
import type { Outgoing } from '../mail/sending.ts';
import { isWarming, warmupShare } from '../mail/warmup.ts';
import { createPoolFinder, readPlacement } from '../store/placements.ts';
import { DEFAULT_POOL } from '../store/pools.ts';
import type { AccountStore, Store } from '../store/store.ts';
import { chooseSource } from './sources-share.ts';
import type { Sources } from './types.ts';

/** How long an account's addresses are remembered: after a change, mail goes the old way for so long. */
const KEPT_MS = 5000;
/** Of one account; far more than anybody has. */
const MOST = 1000;
const MOST_ACCOUNTS = 10_000;
const DAY_MS = 86_400_000;

/** An address, the pool it is in, and its warmup. */
interface Place {
  readonly ip: string;
  readonly pool: string;
  readonly warmupStartAt: Date | null;
  readonly warmupEndAt: Date | null;
}

/** What is known of an account: its addresses, and how many messages it sent in the last 24 hours when one of them is warming up. */
interface Own {
  readonly places: readonly Place[];
  readonly daily: number;
}

interface Known {
  readonly own: Promise<Own>;
  readonly until: number;
}

/** `choose` fails while the store is away, for an account that it was not asked about before. */
export function createSources({ store, clock }: { readonly store: Pick<Store, 'of'>; readonly clock: Clock }): Sources {
  const known = new Map<string, Known>();

  function ownOf(account: string, now: Date): Promise<Own> {
    const found = known.get(account);
    if (found && clock.monotonic() < found.until) return found.own;
    // While the store is away, what was known before serves on.
    const own = read(store, account, now).catch((error: unknown) => {
      if (!found) known.delete(account);
      return found?.own ?? Promise.reject(error);
    });
    known.delete(account);
    known.set(account, { own, until: clock.monotonic() + KEPT_MS });
    const [oldest] = known.keys();
    if (known.size > MOST_ACCOUNTS && oldest !== undefined) known.delete(oldest);
    return own;
  }

  return Object.freeze({
    async choose(account: string, { pool: wished }: Pick<Outgoing, 'pool'>, chance: number, now: Date) {
      const { places, daily } = await ownOf(account, now);
      // A pool that is unknown, or has been emptied, is no reason to lose the reputation of the addresses that there are.
      const pool = wished !== null && places.some((place) => place.pool === wished) ? wished : DEFAULT_POOL;
      const inPool = places.filter((place) => place.pool === pool);
      const candidates = inPool.map(({ ip, warmupStartAt, warmupEndAt }) => ({
        ip,
        share: isWarming(warmupEndAt, now) ? warmupShare(warmupStartAt, now, daily / inPool.length) : 1,
      }));
      return chooseSource(candidates, chance);
    },
  });
}

async function read(store: Pick<Store, 'of'>, account: string, now: Date): Promise<Own> {
  const own = store.of(account);
  const rows = await own.ips.many({ releasedAt: null }, { limit: MOST });
  if (rows.length === 0) return { places: [], daily: 0 };
  const poolOf = createPoolFinder(await readPlacement(own));
  const places = rows.map(({ id, warmupStartAt, warmupEndAt }) => ({
    ip: id,
    pool: poolOf(id),
    warmupStartAt,
    warmupEndAt,
  }));
  return {
    places,
    daily: places.some(({ warmupEndAt }) => isWarming(warmupEndAt, now)) ? await sentInDay(own, now) : 0,
  };
}

/** What the account sent in the last 24 hours, by all of its pools. */
async function sentInDay(
  { account, counters }: Pick<AccountStore, 'account' | 'counters'>,
  now: Date,
): Promise<number> {
  const start = { range: { gt: new Date(now.getTime() - DAY_MS) } };
  const hours = await counters.many({ kind: 'account', span: 'hour', key: account, start });
  return hours.reduce((sum, { sent }) => sum + sent, 0);
}
