import type { Clock } from '../base/clock.ts';
import type { Ids } from '../base/ids.ts';
import type { Log } from '../base/log.ts';
import type { Task } from '../base/service.ts';
import { checkA, checkPtr } from '../dns/checks.ts';
import type { Resolver } from '../dns/types.ts';
import {
  createPoolFinder,
  DEFAULT_POOL,
  fallbackDomain,
  INVENTORY,
  type IpRequestRow,
  type IpRow,
  isPending,
  PENDING_ERROR,
  PLAIN_IP,
  placesWith,
  poolId,
  rewrite,
} from '../store/rows/ips.ts';
import type { Store } from '../store/store.ts';
import { warmupEnd } from './carry/sources.ts';

export interface ProvisioningSettings {
  /** Addresses without a name of their own are named under it. */
  readonly hostname: string;
  /** How long an address that came back is nobody's. */
  readonly quarantineDays: number;
}

interface ProvisioningDeps {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** A request with the address that was chosen for it. */
type AssignedRequest = IpRequestRow & { readonly ip: string; readonly claim: string };

const DAY_MS = 86_400_000;
/** How often the log is told that requests wait for an empty inventory. Milliseconds. */
const REMIND_MS = 3_600_000;
const MOST_AT_ONCE = 1000;

/**
 * Gives addresses of the inventory to those who asked, the oldest request first, and takes back those that were given
 * up.
 *
 * A request comes to its address in steps of one write each, and any process may take the next step at any time, this
 * one after a crash or another beside it:
 * 1. the request names an address (only if it names none: it never gets two);
 * 2. the address is placed in the pool, so that it never shows in another one;
 * 3. the address goes to the account, if its `claim` is what it was at step 1 (so it is never given twice, and not to a
 *    request that somebody else has finished meanwhile), and keeps the token of the request there;
 * 4. the request goes. Who finds the address gone at step 3 looks whose token it has: the request's own, and only step
 *    4 is left; another's, and the request names none again.
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
    async run(ending) {
      let given = 0;
      for (const begun of await store.ipRequests.many({ ip: { exists: true } }, { limit: MOST_AT_ONCE })) {
        if (isAssigned(begun) && (await give(begun))) given++;
      }
      for (;;) {
        const next = ending?.aborted ? 'none' : await choose(deps);
        if (next === 'none') break;
        if (isAssigned(next) && (await give(next))) given++;
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

function isAssigned(request: IpRequestRow): request is AssignedRequest {
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

/**
 * Puts an address that is on its way into the pool that was asked for, and takes it out again; both only while the
 * request is there.
 */
function createPlacer({ store }: ProvisioningDeps) {
  const isThere = async ({ id, token, ip, claim }: AssignedRequest) =>
    (await store.ipRequests.one({ id, token, ip, claim })) !== undefined;
  const isFree = async ({ ip, claim }: AssignedRequest) =>
    (await store.ips.one({ id: ip, account: INVENTORY, claim })) !== undefined;

  return {
    async place(request: AssignedRequest): Promise<void> {
      const { account, ip, pool } = request;
      if (pool === DEFAULT_POOL) return;
      await rewrite(store.of(account), async (placement) => {
        if (createPoolFinder(placement)(ip) !== DEFAULT_POOL || !(await isThere(request)) || !(await isFree(request)))
          return undefined;
        // Where the pool was deleted meanwhile, there is the default pool.
        return (await store.pools.one({ id: poolId(account, pool) })) && { elsewhere: placesWith(placement, ip, pool) };
      });
    },
    async unplace(request: AssignedRequest): Promise<void> {
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
): (request: AssignedRequest) => Promise<boolean> {
  const { store, clock, log } = deps;
  const { place, unplace } = createPlacer(deps);

  async function hand(request: AssignedRequest): Promise<IpRow | undefined> {
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
      // Its request was served, even if a crash kept it from going: nothing would show that once the address is
      // elsewhere.
      await store.ipRequests.remove({ id: account, token: claim });
      // Written even when nothing changes, so that a set-pool that saw the address before decides again
      // (store/rows/ips.ts).
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

/** Ends warmups at their end. Records show an end that has passed as over before this has run. */
export function finishWarmupsTask({
  store,
  clock,
}: {
  readonly store: Pick<Store, 'ips'>;
  readonly clock: Clock;
}): Task {
  return {
    async run(ending) {
      const over = { warmupEndAt: { range: { lte: new Date(clock.now()) } } };
      let finished = 0;
      // Found and cleared in one write: one that has begun again meanwhile is not found.
      while (!ending?.aborted && (await store.ips.change(over, { warmupStartAt: null, warmupEndAt: null }))) finished++;
      return finished > 0 ? { finished } : undefined;
    },
  };
}

interface ReverseDnsDeps {
  readonly store: Pick<Store, 'ips'>;
  /** Asks anew: a cached answer would keep a change pending. */
  readonly resolver: Resolver;
  readonly clock: Clock;
  readonly log: Log;
}

const MINUTE_MS = 60_000;
/** How long until the next look: one who waits for a change, or whose DNS was mute, wants to know soon. */
const NEXT_MS = {
  pending: 5 * MINUTE_MS,
  unknown: 5 * MINUTE_MS,
  invalid: 60 * MINUTE_MS,
  valid: 1440 * MINUTE_MS,
} as const;
const IN_FLIGHT = 20;

type Changes = Pick<IpRow, 'customState' | 'customError' | 'domain'>;

/** Tests the custom reverse DNS of dedicated addresses: pending changes every five minutes, settled ones daily. */
export function retestReverseDnsTask(settings: { readonly hostname: string }, deps: ReverseDnsDeps): Task {
  const { store, clock, log } = deps;

  async function retest(row: IpRow): Promise<boolean> {
    const found = await look(row, deps.resolver);
    const now = new Date(clock.now());
    const changes = found === 'unknown' ? undefined : settle(row, found, now, settings.hostname);
    const next = changes ? NEXT_MS[changes.customState ?? 'invalid'] : NEXT_MS.unknown;
    // Only where nothing happened meanwhile: another change may have been asked for, or the address given back.
    const { id, account, claim, customState, customSetAt, customTestAt } = row;
    const written = await store.ips.change(
      { id, account, claim, releasedAt: null, customState, customSetAt, customTestAt },
      { ...changes, customTestAt: new Date(now.getTime() + next) },
    );
    const turned = written !== undefined && written.customState !== row.customState;
    if (turned)
      log.info('ip.reverse_dns', {
        ip: id,
        account,
        domain: row.customDomain,
        state: written.customState,
        error: written.customError,
      });
    return turned;
  }

  return {
    async run(ending) {
      const due = await store.ips.many(
        { customTestAt: { range: { lte: new Date(clock.now()) } } },
        { sort: 'customTestAt', limit: MOST_AT_ONCE },
      );
      let changed = 0;
      for (let at = 0; at < due.length && !ending?.aborted; at += IN_FLIGHT) {
        changed += (await Promise.all(due.slice(at, at + IN_FLIGHT).map(retest))).filter(Boolean).length;
      }
      return changed > 0 ? { tested: due.length, changed } : undefined;
    },
  };
}

type LookupResult = { readonly forward: string | null; readonly reverse: string | null };

/** What is wrong in either direction: the name must lead to the address, and the address to the name. */
async function look({ id, customDomain }: IpRow, resolver: Resolver): Promise<LookupResult | 'unknown'> {
  const [forward, reverse] = await Promise.all([
    checkA(resolver, customDomain ?? '', id),
    checkPtr(resolver, id, customDomain ?? ''),
  ]);
  return forward === 'unknown' || reverse === 'unknown'
    ? 'unknown'
    : { forward: forward.error, reverse: reverse.error };
}

/** What the row says after a look. */
function settle(row: IpRow, { forward, reverse }: LookupResult, now: Date, hostname: string): Changes {
  if (forward === null && reverse === null)
    return { customState: 'valid', customError: null, domain: row.customDomain ?? row.domain };
  if (isPending(row, now)) return { customState: 'pending', customError: forward ?? PENDING_ERROR, domain: row.domain };
  // What was never valid has not taken the place of the name before.
  const domain = row.customState === 'valid' ? (row.homeDomain ?? fallbackDomain(row.id, hostname)) : row.domain;
  return { customState: 'invalid', customError: forward ?? reverse, domain };
}
