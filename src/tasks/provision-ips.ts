import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import { warmupEnd } from '../mail/warmup.ts';
import { fallbackDomain, INVENTORY, type IpRow, PLAIN_IP } from '../store/ips.ts';
import { createPoolFinder, placesWith, rewrite } from '../store/placements.ts';
import { DEFAULT_POOL, type IpRequestRow, poolId } from '../store/pools.ts';
import type { Store } from '../store/store.ts';
import type { Task } from './task.ts';

export interface ProvisioningSettings {
  /** Addresses without a name of their own are named under it. */
  readonly hostname: string;
  /** How long an address that came back is nobody's. */
  readonly quarantineDays: number;
}

export interface ProvisioningDeps {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** A request with the address that was chosen for it. */
type Chosen = IpRequestRow & { readonly ip: string; readonly claim: string };

const DAY_MS = 86_400_000;
/** How often the log is told that requests wait for an empty inventory. Milliseconds. */
const REMIND_MS = 3_600_000;
const MOST_AT_ONCE = 1000;

/**
 * Gives addresses of the inventory to those who asked, the oldest request first, and takes back those that were given up.
 *
 * A request comes to its address in steps of one write each, and any process may take the next step at any time, this one
 * after a crash or another beside it:
 * 1. the request names an address (only if it names none: it never gets two);
 * 2. the address is placed in the pool, so that it never shows in another one;
 * 3. the address goes to the account, if its `claim` is what it was at step 1 (so it is never given twice, and not to a
 *    request that somebody else has finished meanwhile), and keeps the token of the request there;
 * 4. the request goes.
 * Who finds the address gone at step 3 looks whose token it has: the request's own, and only step 4 is left; another's, and
 * the request names none again.
 */
export function provisionIpsTask(settings: ProvisioningSettings, deps: ProvisioningDeps): Task {
  const { store, clock } = deps;
  const give = createGiver(settings, deps);
  const collect = createCollector(settings, deps);
  let remindedAt = Number.NEGATIVE_INFINITY;

  /** True when this is to be said again. */
  function remind(): boolean {
    const due = clock.monotonic() - remindedAt >= REMIND_MS;
    if (due) remindedAt = clock.monotonic();
    return due;
  }

  return {
    name: 'provision-ips',
    schedule: '* * * * *',
    async run(ending) {
      let given = 0;
      for (const begun of await store.ipRequests.many({ ip: { exists: true } }, { limit: MOST_AT_ONCE })) {
        if (isChosen(begun) && (await give(begun))) given++;
      }
      for (;;) {
        const next = ending?.aborted ? 'none' : await choose(deps);
        if (next === 'none') break;
        if (isChosen(next) && (await give(next))) given++;
      }
      const returned = await collect();
      const waiting = (await store.ipRequests.many({}, { limit: MOST_AT_ONCE })).length;
      if (given + returned === 0 && (waiting === 0 || !remind())) return undefined;
      return {
        given,
        returned,
        waiting,
        ...(waiting > 0 && !ending?.aborted ? { note: 'the inventory has no free address: postern ip add' } : {}),
      };
    },
  };
}

function isChosen(request: IpRequestRow): request is Chosen {
  return request.ip !== null && request.claim !== null;
}

/** Step 1 for the oldest request that names no address, with the address that has been free for the longest time. */
async function choose({ store, clock }: ProvisioningDeps): Promise<IpRequestRow | 'none'> {
  const [oldest] = await store.ipRequests.many({ ip: null }, { sort: 'requestedAt', limit: 1 });
  if (!oldest) return 'none';
  const [free] = await store.ips.many(
    { account: INVENTORY, freeAt: { range: { lte: new Date(clock.now()) } } },
    { sort: 'freeAt', limit: 1 },
  );
  if (!free) return 'none';
  // Lost to another process: that one goes on with it, and we with the next.
  return (
    (await store.ipRequests.change(
      { id: oldest.id, token: oldest.token, ip: null },
      { ip: free.id, claim: free.claim },
    )) ?? oldest
  );
}

/** Puts an address that is on its way into the pool that was asked for, and takes it out again; both only while the request is there. */
function createPlacer({ store }: ProvisioningDeps) {
  const isThere = async ({ id, token, ip, claim }: Chosen) =>
    (await store.ipRequests.one({ id, token, ip, claim })) !== undefined;
  const isFree = async ({ ip, claim }: Chosen) =>
    (await store.ips.one({ id: ip, account: INVENTORY, claim })) !== undefined;

  return {
    async place(request: Chosen): Promise<void> {
      const { account, ip, pool } = request;
      if (pool === DEFAULT_POOL) return;
      await rewrite(store.of(account), async (placement) => {
        if (createPoolFinder(placement)(ip) !== DEFAULT_POOL || !(await isThere(request)) || !(await isFree(request)))
          return undefined;
        // Where the pool was deleted meanwhile, there is the default pool.
        return (await store.pools.one({ id: poolId(account, pool) })) && { elsewhere: placesWith(placement, ip, pool) };
      });
    },
    async unplace(request: Chosen): Promise<void> {
      await rewrite(store.of(request.account), async (placement) => {
        if (createPoolFinder(placement)(request.ip) === DEFAULT_POOL || !(await isThere(request))) return undefined;
        return { elsewhere: placesWith(placement, request.ip) };
      });
    },
  };
}

/** Steps 2 to 4. The answer is false when the address went to somebody else. */
function createGiver(
  { hostname }: ProvisioningSettings,
  deps: ProvisioningDeps,
): (request: Chosen) => Promise<boolean> {
  const { store, clock, log } = deps;
  const { place, unplace } = createPlacer(deps);

  async function hand(request: Chosen): Promise<IpRow | undefined> {
    const { account, ip, claim, token, warmup } = request;
    const now = new Date(clock.now());
    const row = await store.ips.one({ id: ip, account: INVENTORY, claim });
    return (
      row &&
      store.ips.change(
        { id: ip, account: INVENTORY, claim },
        {
          ...PLAIN_IP,
          account,
          claim: token,
          createdAt: now,
          freeAt: null,
          domain: row.homeDomain ?? fallbackDomain(ip, hostname),
          ...(warmup ? { warmupStartAt: now, warmupEndAt: warmupEnd(now) } : {}),
        },
      )
    );
  }

  return async (request) => {
    const { id, token, ip, claim } = request;
    await place(request);
    const handed = await hand(request);
    if (handed) log.info('ip.given', { ip, account: request.account });
    if (handed ?? (await store.ips.one({ id: ip }))?.claim === token) {
      await store.ipRequests.remove({ id, token });
      return true;
    }
    await unplace(request);
    await store.ipRequests.change({ id, token, ip, claim }, { ip: null, claim: null });
    return false;
  };
}

/** Takes what accounts gave back to the inventory, where it rests. */
function createCollector(
  { quarantineDays }: ProvisioningSettings,
  { store, clock, ids, log }: ProvisioningDeps,
): () => Promise<number> {
  return async () => {
    let returned = 0;
    for (const { id, account, claim, releasedAt } of await store.ips.many(
      { releasedAt: { exists: true } },
      { limit: MOST_AT_ONCE },
    )) {
      // Its request was served, even if a crash kept it from going: nothing would show that once the address is elsewhere.
      await store.ipRequests.remove({ id: account, token: claim });
      // Written even when nothing changes, so that a set-pool that saw the address before decides again (store/placements.ts).
      await rewrite(store.of(account), async (placement) => ({ elsewhere: placesWith(placement, id) }));
      const now = clock.now();
      const back = await store.ips.change(
        { id, account, claim, releasedAt },
        {
          ...PLAIN_IP,
          account: INVENTORY,
          claim: ids.key(),
          createdAt: new Date(now),
          freeAt: new Date(now + quarantineDays * DAY_MS),
          domain: '',
        },
      );
      if (!back) continue;
      log.info('ip.returned', { ip: id, account });
      returned++;
    }
    return returned;
  };
}
