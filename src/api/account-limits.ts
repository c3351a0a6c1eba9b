import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { createMemory } from '../base/memory.ts';
import type { OwnedRow } from '../store/rows/collection.ts';
import type { AccountStore, BoundCollection } from '../store/store.ts';
import type { LimitedKind, UsageMeter } from '../store/usage.ts';
import { invalid, tooMany } from './errors.ts';

/** What one account may have and do, so that no key can take what is there for all. */
export interface AccountLimitSettings {
  /** Rows of each kind. */
  readonly rows: Readonly<Record<LimitedKind, number>>;
  /** Bytes of all rows. */
  readonly bytes: number;
  /** Calls a second on this host, in the long run; ten seconds' worth may come at once. */
  readonly callsPerSecond: number;
}

export interface AccountLimits {
  /** Counts a call. Throws RequestLimitExceeded. */
  call(account: string): void;
  /** Whether the account may have more; `kind` when a row of that kind is to be added. Throws ValidationError. */
  check(account: string, kind?: LimitedKind): Promise<void>;
  /** The store of an account, in which nothing is added beyond its limits. */
  limited(store: AccountStore): AccountStore;
}

const BURST_S = 10;
const SECOND_MS = 1000;
/** Accounts whose calls are remembered; one that called least recently is forgotten first. */
const MAX_REMEMBERED = 10_000;
/** A patch that is larger makes a row grow. */
const LARGE_PATCH = 4096;
/** How the kinds are called where a person reads of them. */
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
  { meter, clock }: { readonly meter: Pick<UsageMeter, 'of'>; readonly clock: Clock },
): AccountLimits {
  const rate = createRate(settings.callsPerSecond, clock);

  async function check(account: string, kind?: LimitedKind): Promise<void> {
    const usage = await meter.of(account);
    if (usage.bytes >= settings.bytes)
      throw invalid({
        account: `The account has reached its storage limit of ${settings.bytes} bytes; delete something first`,
      });
    if (kind === undefined || usage[kind] < settings.rows[kind]) return;
    throw invalid({ account: `The account has ${settings.rows[kind]} ${WORDS[kind]}, which is its limit` });
  }

  /** The collection, with a look at the limits before anything is added, and before a row is made much larger. */
  function held<R extends OwnedRow>(account: string, rows: BoundCollection<R>, kind?: LimitedKind): BoundCollection<R> {
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
    call(account) {
      if (!rate.take(account)) throw tooMany(1);
    },
    limited: (store) =>
      Object.freeze<AccountStore>({
        ...store,
        inboundDomains: held(store.account, store.inboundDomains, 'inbound_domains'),
        inboundRoutes: held(store.account, store.inboundRoutes, 'inbound_routes'),
        subaccounts: held(store.account, store.subaccounts, 'subaccounts'),
        templates: held(store.account, store.templates, 'templates'),
        templateLabels: held(store.account, store.templateLabels),
        webhooks: held(store.account, store.webhooks, 'webhooks'),
        pools: held(store.account, store.pools, 'pools'),
        exportJobs: held(store.account, store.exportJobs),
        metadataFields: held(store.account, store.metadataFields),
      }),
  });
}

/** A bucket for each name: it fills with so many tokens a second, and holds ten seconds' worth. */
function createRate(perSecond: number, clock: Clock) {
  const buckets = createMemory<{ readonly tokens: number; readonly at: number }>({ most: MAX_REMEMBERED });
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
