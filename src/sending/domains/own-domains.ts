import { getDomain } from 'tldts';
import { frozen } from '../../base/frozen.ts';
import { toAsciiDomain } from '../../mail/address.ts';
import type { Store } from '../../store/store.ts';

// Our return domain and our signing domain authenticate the mail of every account. DMARC aligns them with all names of
// their organizational domain (RFC 7489 section 3.1), so whoever could write From such a name would pass as its owner.

interface OwnDomainsSettings {
  /**
   * Who may write From the domains of the operator: `open`, every account; `verified`, those that verified the domain
   * (/senders/verify-domain). `auto` is `open` while there is one account, and `verified` once there are two.
   */
  readonly fromOwnDomains: 'auto' | 'open' | 'verified';
  readonly returnDomain: string;
  /** Empty: none. */
  readonly signingDomain: string;
}

/** Says who may write From the domains that we authenticate for everybody. */
export interface OwnDomains {
  /** `from` is the address of the From field. Throws `StoreAway`. */
  mayWriteFrom(account: string, from: string): Promise<boolean>;
}

/** Protects the organizational domains of the return domain and of the signing domain. */
export function createOwnDomains(
  { fromOwnDomains, returnDomain, signingDomain }: OwnDomainsSettings,
  { store }: { readonly store: Pick<Store, 'accounts' | 'senderDomains'> },
): OwnDomains {
  const own = new Set([returnDomain, signingDomain].filter((name) => name !== '').map(organizationOf));

  async function isOpen(): Promise<boolean> {
    if (fromOwnDomains !== 'auto') return fromOwnDomains === 'open';
    return (await store.accounts.many({}, { limit: 2 })).length < 2;
  }

  return frozen({
    async mayWriteFrom(account, from) {
      const domain = toAsciiDomain(from.slice(from.lastIndexOf('@') + 1));
      if (domain === undefined) return true; // no domain that DMARC could align
      const organization = organizationOf(domain);
      if (!own.has(organization) || (await isOpen())) return true;
      const rows = await store.senderDomains.many({ account, domain: { in: namesUpTo(domain, organization) } });
      return rows.some(({ verifiedAt }) => verifiedAt !== null);
    },
  });
}

/**
 * The organizational domain by the public suffix list (publicsuffix.org); a name that is itself a suffix stands for
 * itself.
 */
function organizationOf(domain: string): string {
  return getDomain(domain, { allowPrivateDomains: true, extractHostname: false, validateHostname: false }) ?? domain;
}

/** A domain and those above it, up to its organizational domain: who verified one of them speaks for what is below. */
function namesUpTo(domain: string, organization: string): string[] {
  const names = [domain];
  for (let name = domain; name.length > organization.length; ) {
    name = name.slice(name.indexOf('.') + 1);
    names.push(name);
  }
  return names;
}
