import { isIP } from 'node:net';
import { frozen } from '../base/frozen.ts';
import { isLocalhost, type Resolver, toQuestionName } from '../dns/types.ts';
import type { Row } from '../store/driver/port.ts';
import { pagesById, type Readable } from '../store/pages.ts';
import { isClaim } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';

/** own: of this service · policy: `mta-sts.` of an inbound domain · tracking: of an account's links. */
export const NAME_KINDS = ['own', 'policy', 'tracking'] as const;
export type NameKind = (typeof NAME_KINDS)[number];

/** A name that should have a certificate. */
export interface WantedName {
  readonly name: string;
  readonly kind: NameKind;
}

interface NamesSettings {
  /** Our host names and URLs; those that cannot have a certificate are left out. */
  readonly own: readonly string[];
  /** Whether inbound domains have an MTA-STS policy here. */
  readonly policies: boolean;
}

interface NamesDeps {
  readonly store: Pick<Store, 'inboundDomains' | 'trackingDomains'>;
  readonly resolver: Pick<Resolver, 'addresses'>;
}

/** The prefix of the host that has a domain's policy (RFC 8461 section 3.2). */
export const POLICY_PREFIX = 'mta-sts.';

/** Names of accounts that get certificates, of each kind. */
const MAX_NAMES = 2000;
/** Rows that are read for them: most of an account's tracking domains may be invalid. */
const MAX_ROWS = 10_000;

export type CertificateNames = ReturnType<typeof createCertificateNames>;

/** The names that this service answers to over HTTPS and SMTP. */
export function createCertificateNames(settings: NamesSettings, { store, resolver }: NamesDeps) {
  const own = [...new Set(settings.own.flatMap((one) => publicName(one) ?? []))];

  async function addressesOf(name: string): Promise<readonly string[]> {
    const found = await resolver.addresses(name);
    return found.kind === 'records' ? found.records : [];
  }

  return frozen({
    own,
    /** All names, our own first. Throws `StoreAway`. */
    async all(): Promise<readonly WantedName[]> {
      const policies = settings.policies
        ? await idsOf(store.inboundDomains, (row) =>
            isClaim(row) ? undefined : publicName(`${POLICY_PREFIX}${row.id}`),
          )
        : [];
      const tracking = await idsOf(store.trackingDomains, ({ valid, domain }) =>
        valid === true ? publicName(domain) : undefined,
      );
      const kinds = new Map<string, NameKind>();
      for (const [kind, names] of [
        ['own', own],
        ['policy', policies],
        ['tracking', tracking],
      ] as const)
        for (const name of names) if (!kinds.has(name)) kinds.set(name, kind);
      return [...kinds].map(([name, kind]) => ({ name, kind }));
    },
    /** Whether a name resolves to the same address as one of our own. */
    async pointsHere(name: string): Promise<boolean> {
      const ours = new Set((await Promise.all(own.map(addressesOf))).flat());
      return (await addressesOf(name)).some((address) => ours.has(address));
    },
  });
}

/** Reads rows in pages, and returns the names that `nameOf` finds in them. */
async function idsOf<R extends Row>(
  rows: Readable<R>,
  nameOf: (row: R) => string | undefined,
): Promise<readonly string[]> {
  const names: string[] = [];
  let read = 0;
  for await (const page of pagesById(rows)) {
    names.push(...page.flatMap((row) => nameOf(row) ?? []));
    read += page.length;
    if (read >= MAX_ROWS || names.length >= MAX_NAMES) break;
  }
  return names.slice(0, MAX_NAMES);
}

/** The host name of a name or https URL, in A-labels; undefined if no public authority certifies it. */
function publicName(nameOrUrl: string): string | undefined {
  if (/^http:/i.test(nameOrUrl)) return undefined;
  const host = URL.canParse(nameOrUrl) ? new URL(nameOrUrl).hostname : nameOrUrl;
  const name = toQuestionName(host);
  if (name === undefined || isIP(host.replace(/^\[|\]$/g, '')) !== 0 || isLocalhost(name)) return undefined;
  // A name without a dot, a wildcard, or a character that certificates do not have.
  return /^(?:[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?\.)+[a-z0-9-]+$/.test(name) ? name : undefined;
}
