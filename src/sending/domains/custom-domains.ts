import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { createRecent } from '../../base/memory.ts';
import { leadsTo, mailComesTo } from '../../dns/checks.ts';
import type { Resolver } from '../../dns/types.ts';
import type { Extras } from '../../mail/outgoing.ts';
import type { Store } from '../../store/store.ts';
import type { ComposeSettings } from '../types.ts';
import { withParents } from './tracking-domains.ts';

interface CustomDomainSettings {
  /** Where links begin when a message says nothing, without a final slash. */
  readonly publicUrl: string;
  /** Where mail comes back to when a message says nothing. */
  readonly returnDomain: string;
  /** The names that an MX of ours may have. */
  readonly mxHosts: readonly string[];
}

interface CustomDomainDeps {
  readonly store: Pick<Store, 'senderDomains'>;
  /** Its answers are kept for their TTL. */
  readonly resolver: Resolver;
  readonly clock: Clock;
}

/** Where links of messages begin, and where mail about them comes back to. */
export interface CustomDomains {
  /** Throws `StoreAway` when it cannot be known what belongs to the account. */
  of(
    account: string,
    extras: Extras | undefined,
  ): Promise<Pick<ComposeSettings, 'publicUrl' | 'ownUrl' | 'returnDomain' | 'ownReturns'>>;
}

/** How long an answer is believed: who has just set up a domain need not wait for long. Milliseconds. */
const FRESH_MS = 10_000;

/**
 * A message may name hosts of its account instead of ours. One is used when its DNS leads to us, and it is a domain
 * that the account verified or one below: a name that only points here could be another account's. Else it is as if the
 * message had named none.
 */
export function createCustomDomains(
  settings: CustomDomainSettings,
  { store, resolver, clock }: CustomDomainDeps,
): CustomDomains {
  const { publicUrl, returnDomain, mxHosts } = settings;
  const url = new URL(publicUrl);
  const host = url.hostname.replace(/^\[|\]$/g, '');
  // Keys are an account and a domain, apart by a space: neither holds one.
  const tracking = createRecent((key) => usable(key, (domain) => leadsTo(resolver, domain, host)), FRESH_MS);
  // A name that is an alias of the return domain gets its mail wherever that does.
  const returning = createRecent(
    (key) => usable(key, (domain) => mailComesTo(resolver, domain, [...mxHosts, returnDomain])),
    FRESH_MS,
  );

  async function usable(key: string, isOurs: (domain: string) => Promise<boolean>): Promise<boolean> {
    const [account = '', domain = ''] = key.split(' ');
    const rows = await store.senderDomains.many({ account, domain: { in: withParents(domain) } });
    return rows.some(({ verifiedAt }) => verifiedAt !== null) && isOurs(domain);
  }

  return frozen({
    async of(account, extras) {
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

/** The same place under another host. */
function atHost({ protocol, port, pathname }: URL, host: string): string {
  return `${protocol}//${host}${port === '' ? '' : `:${port}`}${pathname.replace(/\/+$/, '')}`;
}
