import { createReadCache } from '../../base/cache.ts';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { bareHost } from '../../base/networks.ts';
import { pointsTo, receivesMailAt } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { Extras } from '../../mail/outgoing.ts';
import type { Store } from '../../store/store.ts';
import type { ComposeSettings } from '../types.ts';
import { withParents } from './tracking-domains.ts';

interface CustomDomainSettings {
  /** Default base of links, without a trailing slash. */
  readonly publicUrl: string;
  /** Default return domain. */
  readonly returnDomain: string;
  /** Valid names of our MX hosts. */
  readonly mxHosts: readonly string[];
  /** Whether this service gets the certificates of tracking domains, and links begin with https. */
  readonly certifies: boolean;
}

interface CustomDomainDeps {
  readonly store: Pick<Store, 'senderDomains' | 'certificates'>;
  /** Caches answers for their TTL. */
  readonly resolver: Resolver;
  readonly clock: Clock;
}

/** Tracking and return domains of messages. */
export type CustomDomains = ReturnType<typeof createCustomDomains>;

/** How long a result is cached: short, because a domain may just have been set up. Milliseconds. */
const FRESH_MS = 10_000;

/**
 * A message may name its account's domains instead of ours. One is used if its DNS points to us, and it is a domain
 * that the account verified, or a subdomain: a name that only points here could belong to another account. Otherwise it
 * is ignored. A tracking domain also needs its certificate, or readers would get a warning.
 */
export function createCustomDomains(settings: CustomDomainSettings, { store, resolver, clock }: CustomDomainDeps) {
  const { publicUrl, returnDomain, mxHosts, certifies } = settings;
  const url = new URL(publicUrl);
  const host = bareHost(url);
  // Keys are an account and a domain, separated by a space, which neither contains.
  const tracking = createReadCache(
    (key) => usable(key, async (domain) => (await hasCertificate(domain)) && pointsTo(resolver, domain, host)),
    FRESH_MS,
  );
  // An alias of the return domain receives its mail wherever that does.
  const returning = createReadCache(
    (key) => usable(key, (domain) => receivesMailAt(resolver, domain, [...mxHosts, returnDomain])),
    FRESH_MS,
  );

  async function usable(key: string, isOurs: (domain: string) => Promise<boolean>): Promise<boolean> {
    const [account = '', domain = ''] = key.split(' ');
    const rows = await store.senderDomains.many({ account, domain: { in: withParents(domain) } });
    return rows.some(({ verifiedAt }) => verifiedAt !== null) && isOurs(domain);
  }

  async function hasCertificate(domain: string): Promise<boolean> {
    if (!certifies) return true;
    const row = await store.certificates.one({ id: domain });
    return row?.chain != null && (row.notAfter?.getTime() ?? 0) > clock.now();
  }

  return frozen({
    /** Throws `StoreAway` if the account's domains cannot be read. */
    async of(
      account: string,
      extras: Extras | undefined,
    ): Promise<Pick<ComposeSettings, 'publicUrl' | 'ownUrl' | 'returnDomain' | 'ownReturns'>> {
      const { trackingDomain, returnPathDomain } = extras ?? {};
      const ask = (known: typeof tracking, domain: string | undefined) =>
        domain === undefined ? false : known.get(`${account} ${domain}`, clock.monotonic());
      const [tracks, returns] = await Promise.all([ask(tracking, trackingDomain), ask(returning, returnPathDomain)]);
      return {
        ...(tracks && trackingDomain !== undefined
          ? { publicUrl: atHost(url, trackingDomain), ownUrl: publicUrl }
          : { publicUrl }),
        ...(returns && returnPathDomain !== undefined
          ? { returnDomain: returnPathDomain, ownReturns: true }
          : { returnDomain }),
      };
    },
  });
}

/** The same URL with another host, without a trailing slash. */
function atHost({ protocol, port, pathname }: URL, host: string): string {
  return `${protocol}//${host}${port === '' ? '' : `:${port}`}${pathname.replace(/\/+$/, '')}`;
}
