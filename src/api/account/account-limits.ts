import { createBoundedCache, createExpiringCache } from '../../base/cache.ts';
import { type Clock, MINUTE_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { OwnedRow } from '../../store/rows/collection.ts';
import type { AccountStore, BoundCollection } from '../../store/store.ts';
import type { LimitedKind, UsageMeter } from '../../store/usage.ts';
import { invalid, tooMany } from '../errors.ts';

/** The limits of one account on rows, bytes and calls, so that no key can use up shared capacity. */
export interface AccountLimitSettings {
  /** Rows of each kind. */
  readonly rows: Readonly<Record<LimitedKind, number>>;
  /** Bytes of all rows. */
  readonly bytes: number;
  /** Sustained calls per second on this host; bursts of ten seconds' worth are allowed. */
  readonly callsPerSecond: number;
}

export type AccountLimits = ReturnType<typeof createAccountLimits>;

const BURST_S = 10;
const SECOND_MS = 1000;
/** Accounts that the rate limiter keeps; the least recently used is dropped first. */
const MAX_REMEMBERED = 10_000;
/** Patches longer than this (characters of JSON) are checked against the storage limit. */
const LARGE_PATCH = 4096;
/** The kinds as named in error messages. */
const WORDS: Readonly<Record<LimitedKind, string>> = {
  tracking_domains: 'tracking domains',
  inbound_domains: 'inbound domains',
  inbound_routes: 'routes',
  sender_domains: 'sender domains',
  subaccounts: 'subaccounts',
  templates: 'templates',
  webhooks: 'webhooks',
  pools: 'IP pools',
  rejects: 'entries in its rejection list',
  whitelists: 'entries in its allow list',
  scheduled: 'scheduled messages',
};

export function createAccountLimits(
  settings: AccountLimitSettings,
  { meter, clock }: { readonly meter: Pick<UsageMeter, 'of' | 'left'>; readonly clock: Clock },
) {
  const rate = createRate(settings.callsPerSecond, clock);
  const trial = createTrialLimit(clock);

  /**
   * Checks the storage limit, the account's share of the disk and, if `kind` is given, the limit on rows of that
   * kind. Throws ValidationError.
   */
  async function check(account: string, kind?: LimitedKind): Promise<void> {
    const usage = await meter.of(account);
    if (usage.bytes >= settings.bytes)
      throw invalid({
        account: `The account has reached its storage limit of ${settings.bytes} bytes; delete something first`,
      });
    const left = meter.left();
    // An account may store at most as much as is still free. If nothing is free, the store itself refuses.
    if (left > 0 && usage.bytes > left)
      throw invalid({
        account:
          `The account uses ${usage.bytes} bytes, and the disk has only ${left} left for all accounts; delete ` +
          'something first, or ask the operator for more disk space',
      });
    if (kind === undefined || usage[kind] < settings.rows[kind]) return;
    throw invalid({ account: `The account has ${settings.rows[kind]} ${WORDS[kind]}, which is its limit` });
  }

  /** Wraps a collection: checks the limits before inserts and before large patches. */
  function withLimits<R extends OwnedRow>(
    account: string,
    rows: BoundCollection<R>,
    kind?: LimitedKind,
  ): BoundCollection<R> {
    return frozen<BoundCollection<R>>({
      ...rows,
      async insert(row) {
        await check(account, kind);
        return rows.insert(row);
      },
      async change(filter, patch) {
        if (JSON.stringify(patch).length > LARGE_PATCH) await check(account);
        return rows.change(filter, patch);
      },
    });
  }

  return frozen({
    check,
    /** Counts a trial post. Returns the function that ends it. Throws RequestLimitExceeded if there are too many. */
    trial,
    /** Counts a call. Throws RequestLimitExceeded if the account is over its rate. */
    call(account: string) {
      if (!rate.take(account)) throw tooMany(1);
    },
    /** Wraps the store of an account so that it enforces the limits on inserts and large patches. */
    limited: (store: AccountStore): AccountStore =>
      Object.freeze<AccountStore>({
        ...store,
        inboundDomains: withLimits(store.account, store.inboundDomains, 'inbound_domains'),
        inboundRoutes: withLimits(store.account, store.inboundRoutes, 'inbound_routes'),
        subaccounts: withLimits(store.account, store.subaccounts, 'subaccounts'),
        templates: withLimits(store.account, store.templates, 'templates'),
        templateLabels: withLimits(store.account, store.templateLabels),
        webhooks: withLimits(store.account, store.webhooks, 'webhooks'),
        pools: withLimits(store.account, store.pools, 'pools'),
        exportJobs: withLimits(store.account, store.exportJobs),
        metadataFields: withLimits(store.account, store.metadataFields),
      }),
  });
}

/** A token bucket for each name: it refills at `perSecond` and holds ten seconds' worth. */
function createRate(perSecond: number, clock: Clock) {
  const buckets = createBoundedCache<{ readonly tokens: number; readonly at: number }>({ most: MAX_REMEMBERED });
  const most = perSecond * BURST_S;
  return {
    take(name: string): boolean {
      const now = clock.monotonic();
      const bucket = buckets.get(name) ?? { tokens: most, at: now };
      const tokens = Math.min(most, bucket.tokens + ((now - bucket.at) * perSecond) / SECOND_MS);
      buckets.set(name, { tokens: tokens >= 1 ? tokens - 1 : tokens, at: now });
      return tokens >= 1;
    },
  };
}

/** Concurrent trial posts of this host, in all and per account: each may take half a minute. */
const MAX_TRIALS = 4;
const MAX_OF_ACCOUNT = 2;
const TRIALS_PER_MINUTE = 10;

function createTrialLimit(clock: Clock): (account: string) => () => void {
  const running: string[] = [];
  const windows = createExpiringCache<{ readonly until: number; count: number }>({ most: MAX_REMEMBERED }, clock);
  return (account) => {
    const now = clock.monotonic();
    const window = windows.get(account) ?? { until: now + MINUTE_MS, count: 0 };
    if (window.count >= TRIALS_PER_MINUTE) throw tooMany(Math.ceil((window.until - now) / SECOND_MS));
    if (running.length >= MAX_TRIALS || running.filter((one) => one === account).length >= MAX_OF_ACCOUNT)
      throw tooMany(1);
    window.count += 1;
    windows.set(account, window, window.until - now);
    running.push(account);
    return () => void running.splice(running.indexOf(account), 1);
  };
}
