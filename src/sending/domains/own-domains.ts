import { getDomain } from 'tldts';
import { frozen } from '../../base/frozen.ts';
import { domainOf, toAsciiDomain } from '../../mail/addresses/address.ts';
import type { Store } from '../../store/store.ts';

// Our return and signing domains authenticate every account's mail. DMARC aligns them with all names of their
// organizational domain (RFC 7489 section 3.1), so anybody allowed to use such a From address would pass as its owner.

interface OwnDomainsSettings {
  /**
   * Who may use From addresses in the operator's domains: `open`, every account; `verified`, accounts that verified
   * the domain (/senders/verify-domain). `auto` is `open` while there is one account, and `verified` with two or
   * more.
   */
  readonly fromOwnDomains: 'auto' | 'open' | 'verified';
  readonly returnDomain: string;
  /** Empty: none. */
  readonly signingDomain: string;
}

/** Decides who may use From addresses in domains that we authenticate for everybody. */
export type OwnDomains = ReturnType<typeof createOwnDomains>;

/** Protects the organizational domains of the return and signing domains. */
export function createOwnDomains(
  { fromOwnDomains, returnDomain, signingDomain }: OwnDomainsSettings,
  { store }: { readonly store: Pick<Store, 'accounts' | 'senderDomains'> },
) {
  const own = new Set([returnDomain, signingDomain].filter((name) => name !== '').map(organizationOf));

  async function isOpen(): Promise<boolean> {
    if (fromOwnDomains !== 'auto') return fromOwnDomains === 'open';
    return (await store.accounts.many({}, { limit: 2 })).length < 2;
  }

  return frozen({
    /** `from` is the address in the From field. Throws `StoreAway`. */
    async mayWriteFrom(account: string, from: string): Promise<boolean> {
      const domain = toAsciiDomain(domainOf(from));
      if (domain === undefined) return true; // no domain that DMARC could align
      const organization = organizationOf(domain);
      if (!own.has(organization) || (await isOpen())) return true;
      const rows = await store.senderDomains.many({ account, domain: { in: namesUpTo(domain, organization) } });
      return rows.some(({ verifiedAt }) => verifiedAt !== null);
    },
  });
}

/** The organizational domain according to the public suffix list (publicsuffix.org); a public suffix is its own. */
function organizationOf(domain: string): string {
  return getDomain(domain, { allowPrivateDomains: true, extractHostname: false, validateHostname: false }) ?? domain;
}

/** A domain and its parents up to the organizational domain; verifying a parent covers its subdomains. */
function namesUpTo(domain: string, organization: string): string[] {
  const names = [domain];
  for (let name = domain; name.length > organization.length; ) {
    name = name.slice(name.indexOf('.') + 1);
    names.push(name);
  }
  return names;
}
