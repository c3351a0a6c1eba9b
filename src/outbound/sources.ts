import type { Clock } from '../base/clock.ts';
import { isWarming, warmupShare } from '../mail/warmup.ts';
import { createPoolFinder, readPlacement } from '../store/placements.ts';
import { DEFAULT_POOL } from '../store/pools.ts';
import type { Store } from '../store/store.ts';
import type { Outgoing } from '../mail/sending.ts';
import { chooseSource } from './sources-share.ts';
import type { Sources } from './types.ts';

/** How long an account's addresses are remembered: after a change, mail goes the old way for so long. */
const KEPT_MS = 5000;
/** Of one account; far more than anybody has. */
const MOST = 1000;
const MOST_ACCOUNTS = 10_000;

/** An address, the pool it is in, and its warmup. */
interface Place {
  readonly ip: string;
  readonly pool: string;
  readonly warmupStartAt: Date | null;
  readonly warmupEndAt: Date | null;
}

interface Known {
  readonly places: Promise<readonly Place[]>;
  readonly until: number;
}

/** `choose` fails while the store is away, for an account that it was not asked about before. */
export function createSources({ store, clock }: { readonly store: Pick<Store, 'of'>; readonly clock: Clock }): Sources {
  const known = new Map<string, Known>();

  function placesOf(account: string): Promise<readonly Place[]> {
    const found = known.get(account);
    if (found && clock.monotonic() < found.until) return found.places;
    // While the store is away, what was known before serves on.
    const places = read(store, account).catch((error: unknown) => {
      if (!found) known.delete(account);
      return found?.places ?? Promise.reject(error);
    });
    known.delete(account);
    known.set(account, { places, until: clock.monotonic() + KEPT_MS });
    const [oldest] = known.keys();
    if (known.size > MOST_ACCOUNTS && oldest !== undefined) known.delete(oldest);
    return places;
  }

  return Object.freeze({
    async choose(account: string, { pool: wished }: Pick<Outgoing, 'pool'>, chance: number, now: Date) {
      const places = await placesOf(account);
      // A pool that is unknown, or has been emptied, is no reason to lose the reputation of the addresses that there are.
      const pool = wished !== null && places.some((place) => place.pool === wished) ? wished : DEFAULT_POOL;
      const candidates = places.filter((place) => place.pool === pool).map(({ ip, warmupStartAt, warmupEndAt }) => (
        { ip, share: isWarming(warmupEndAt, now) ? warmupShare(warmupStartAt, now) : 1 }));
      return chooseSource(candidates, chance);
    },
  });
}

async function read(store: Pick<Store, 'of'>, account: string): Promise<readonly Place[]> {
  const own = store.of(account);
  const rows = await own.ips.many({ releasedAt: null }, { limit: MOST });
  if (rows.length === 0) return [];
  const poolOf = createPoolFinder(await readPlacement(own));
  return rows.map(({ id, warmupStartAt, warmupEndAt }) => ({ ip: id, pool: poolOf(id), warmupStartAt, warmupEndAt }));
}
