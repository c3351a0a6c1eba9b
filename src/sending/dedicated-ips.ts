import { type Clock, DAY_MS, MINUTE_MS } from '../base/clock.ts';
import { MAX_TESTED, type Task, testDue } from '../base/service.ts';
import type { Tools } from '../base/tools.ts';
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
  moveIp,
  PENDING_ERROR,
  PLAIN_IP,
  poolId,
  rewrite,
} from '../store/rows/ips.ts';
import type { Store } from '../store/store.ts';
import { warmupEnd } from './transport/sources.ts';

export interface ProvisioningSettings {
  /** Parent domain for addresses without a name of their own. */
  readonly hostname: string;
  /** How long a returned address is unassigned before it can be given again. */
  readonly quarantineDays: number;
}

interface ProvisioningDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly store: Store;
}

/** A request with its chosen address. */
type AssignedRequest = IpRequestRow & { readonly ip: string; readonly claim: string };

/** The interval of log entries about requests that wait for an empty inventory. Milliseconds. */
const REMIND_MS = 3_600_000;
const MAX_AT_ONCE = 1000;

/**
 * Assigns inventory addresses to requests, oldest first, and takes back released ones.
 *
 * A request is fulfilled in steps of one write each, and any process may take the next step at any time, after a crash
 * or concurrently:
 * 1. the request names an address (only if it names none: it never gets two);
 * 2. the address is placed in the pool, so that it never appears in another one;
 * 3. the address goes to the account, if its `claim` is what it was at step 1 (so it is never given twice, and not to a
 *    request that another process has finished), and stores the token of the request;
 * 4. the request is deleted. If the address is already assigned at step 3, its token decides: if it is the request's
 *    own, only step 4 remains; otherwise the request names no address again.
 */
export function provisionIpsTask(settings: ProvisioningSettings, deps: ProvisioningDeps): Task {
  const { store, clock } = deps;
  const tryGive = async (request: IpRequestRow) => isAssigned(request) && (await give(request, settings, deps));
  let remindedAt = Number.NEGATIVE_INFINITY;

  /** Whether the reminder is due again. */
  function remind(): boolean {
    const due = clock.monotonic() - remindedAt >= REMIND_MS;
    if (due) remindedAt = clock.monotonic();
    return due;
  }

  return {
    async run(ending) {
      let given = 0;
      for (const begun of await store.ipRequests.many({ ip: { exists: true } }, { limit: MAX_AT_ONCE })) {
        if (await tryGive(begun)) given++;
      }
      for (;;) {
        const next = ending?.aborted ? 'none' : await choose(deps);
        if (next === 'none') break;
        if (await tryGive(next)) given++;
      }
      const returned = await collect(settings, deps);
      const waiting = (await store.ipRequests.many({}, { limit: MAX_AT_ONCE })).length;
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

/** Step 1 for the oldest request without an address, using the address that has been free longest. */
async function choose({ store, clock }: ProvisioningDeps): Promise<IpRequestRow | 'none'> {
  const [oldest] = await store.ipRequests.many({ ip: null }, { sort: 'requestedAt', limit: 1 });
  if (!oldest) return 'none';
  const [free] = await store.ips.many(
    { account: INVENTORY, freeAt: { range: { lte: new Date(clock.now()) } } },
    { sort: 'freeAt', limit: 1 },
  );
  if (!free) return 'none';
  // If another process was first, it continues with that request, and we with the next.
  return (
    (await store.ipRequests.change(
      { id: oldest.id, token: oldest.token, ip: null },
      { ip: free.id, claim: free.claim },
    )) ?? oldest
  );
}

/** Adds an address to the wanted pool before it is assigned. Only while the request exists. */
async function addToPool(request: AssignedRequest, { store }: ProvisioningDeps): Promise<void> {
  const { account, ip, pool, claim } = request;
  if (pool === DEFAULT_POOL) return;
  const isFree = async () => (await store.ips.one({ id: ip, account: INVENTORY, claim })) !== undefined;
  await rewrite(store.of(account), async (placement) => {
    if (createPoolFinder(placement)(ip) !== DEFAULT_POOL || !(await isThere(request, store)) || !(await isFree()))
      return undefined;
    // If the pool was deleted meanwhile, the address stays in the default pool.
    return (await store.pools.one({ id: poolId(account, pool) })) && { elsewhere: moveIp(placement, ip, pool) };
  });
}

async function removeFromPool(request: AssignedRequest, { store }: ProvisioningDeps): Promise<void> {
  await rewrite(store.of(request.account), async (placement) => {
    if (createPoolFinder(placement)(request.ip) === DEFAULT_POOL || !(await isThere(request, store))) return undefined;
    return { elsewhere: moveIp(placement, request.ip) };
  });
}

async function isThere({ id, token, ip, claim }: AssignedRequest, { ipRequests }: Store): Promise<boolean> {
  return (await ipRequests.one({ id, token, ip, claim })) !== undefined;
}

/** Steps 2 to 4. Returns false if the address was assigned to another request. */
async function give(
  request: AssignedRequest,
  settings: ProvisioningSettings,
  deps: ProvisioningDeps,
): Promise<boolean> {
  const { store, log } = deps;
  const { id, token, ip, claim, account } = request;
  await addToPool(request, deps);
  const handed = await hand(request, settings, deps);
  if (handed) log.info('ip.given', { ip, account });
  if (handed ?? (await store.ips.one({ id: ip }))?.claim === token) {
    await store.ipRequests.remove({ id, token });
    return true;
  }
  await removeFromPool(request, deps);
  await store.ipRequests.change({ id, token, ip, claim }, { ip: null, claim: null });
  return false;
}

/** Step 3. */
async function hand(
  { account, ip, claim, token, warmup }: AssignedRequest,
  { hostname }: ProvisioningSettings,
  { store, clock }: ProvisioningDeps,
): Promise<IpRow | undefined> {
  const now = new Date(clock.now());
  const free = { id: ip, account: INVENTORY, claim };
  const row = await store.ips.one(free);
  return (
    row &&
    store.ips.change(free, {
      ...PLAIN_IP,
      account,
      claim: token,
      createdAt: now,
      freeAt: null,
      domain: row.homeDomain ?? fallbackDomain(ip, hostname),
      ...(warmup ? { warmupStartAt: now, warmupEndAt: warmupEnd(now) } : {}),
    })
  );
}

/** Moves released addresses to the inventory, in quarantine. Returns how many. */
async function collect(
  { quarantineDays }: ProvisioningSettings,
  { store, clock, ids, log }: ProvisioningDeps,
): Promise<number> {
  let returned = 0;
  const released = await store.ips.many({ releasedAt: { exists: true } }, { limit: MAX_AT_ONCE });
  for (const { id, account, claim, releasedAt } of released) {
    // The request was fulfilled, even if a crash prevented its deletion; nothing shows that once it is reassigned.
    await store.ipRequests.remove({ id: account, token: claim });
    // Written even without changes: a concurrent set-pool that saw the address decides again (store/rows/ips.ts).
    await rewrite(store.of(account), async (placement) => ({ elsewhere: moveIp(placement, id) }));
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
}

/** Clears warmups that have ended. API records show them as finished even before this has run. */
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
      // Found and cleared in one write, so that a warmup that was restarted meanwhile is not touched.
      while (!ending?.aborted && (await store.ips.change(over, { warmupStartAt: null, warmupEndAt: null }))) finished++;
      return finished > 0 ? { finished } : undefined;
    },
  };
}

interface ReverseDnsDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'ips'>;
  /** Must not cache: a cached answer would keep a change pending. */
  readonly resolver: Resolver;
}

/** Time until the next check: sooner while a change is pending or DNS did not answer. */
const NEXT_MS = {
  pending: 5 * MINUTE_MS,
  unknown: 5 * MINUTE_MS,
  invalid: 60 * MINUTE_MS,
  valid: 1440 * MINUTE_MS,
} as const;

type Changes = Pick<IpRow, 'customState' | 'customError' | 'domain'>;

/** Checks the custom reverse DNS of dedicated addresses: pending changes every five minutes, settled ones daily. */
export function retestReverseDnsTask(settings: { readonly hostname: string }, deps: ReverseDnsDeps): Task {
  const { store, clock, log } = deps;

  async function retest(row: IpRow): Promise<boolean> {
    const found = await look(row, deps.resolver);
    const now = new Date(clock.now());
    const changes = found === 'unknown' ? undefined : settle(row, found, now, settings.hostname);
    const next = changes ? NEXT_MS[changes.customState ?? 'invalid'] : NEXT_MS.unknown;
    // Only if nothing changed meanwhile: another change may have been requested, or the address released.
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
        { sort: 'customTestAt', limit: MAX_TESTED },
      );
      const found = await testDue(due, retest, ending);
      return found && found.changed > 0 ? found : undefined;
    },
  };
}

type LookupResult = { readonly forward: string | null; readonly reverse: string | null };

/** Checks both directions: the name must resolve to the address, and the address to the name. */
async function look({ id, customDomain }: IpRow, resolver: Resolver): Promise<LookupResult | 'unknown'> {
  const [forward, reverse] = await Promise.all([
    checkA(resolver, customDomain ?? '', id),
    checkPtr(resolver, id, customDomain ?? ''),
  ]);
  return forward === 'unknown' || reverse === 'unknown'
    ? 'unknown'
    : { forward: forward.error, reverse: reverse.error };
}

/** The changes to the row after a check. */
function settle(row: IpRow, { forward, reverse }: LookupResult, now: Date, hostname: string): Changes {
  if (forward === null && reverse === null)
    return { customState: 'valid', customError: null, domain: row.customDomain ?? row.domain };
  if (isPending(row, now)) return { customState: 'pending', customError: forward ?? PENDING_ERROR, domain: row.domain };
  // A domain that was never valid never replaced the previous name.
  const domain = row.customState === 'valid' ? (row.homeDomain ?? fallbackDomain(row.id, hostname)) : row.domain;
  return { customState: 'invalid', customError: forward ?? reverse, domain };
}
