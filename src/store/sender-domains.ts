import { toAsciiDomain } from '../mail/address.ts';
import type { Collection, CollectionSpec, Row } from './collection.ts';

/** A domain that mail is sent from. `id` is `senderDomainId`. */
export interface SenderDomainRow extends Row {
  readonly account: string;
  /** A-label form. */
  readonly domain: string;
  readonly createdAt: Date;
  /** When the DNS last answered a test. */
  readonly lastTestedAt: Date | null;
  /** Null: the DNS has never answered. */
  readonly spfValid: boolean | null;
  /** Set when the record turned valid after having been invalid: before this, caches may still hold the old one. */
  readonly spfValidAfter: Date | null;
  readonly spfError: string | null;
  readonly dkimValid: boolean | null;
  readonly dkimValidAfter: Date | null;
  readonly dkimError: string | null;
  /** When one of the two last turned valid or invalid. */
  readonly changedAt: Date | null;
  readonly nextTestAt: Date;
  /** When this account proved that it reads the domain's mail. */
  readonly verifiedAt: Date | null;
  /** Grows with every test that is written down, so that of two at once neither undoes the other. */
  readonly version: number;
}

export const senderDomains: CollectionSpec<SenderDomainRow> = {
  name: 'sender_domains',
  indexes: [['account', 'domain'], ['nextTestAt']],
  dates: ['createdAt', 'lastTestedAt', 'spfValidAfter', 'dkimValidAfter', 'changedAt', 'nextTestAt', 'verifiedAt'],
};

export function senderDomainId(account: string, domain: string): string {
  return `${account} ${domain}`;
}

/** A domain that nothing is known of yet; it is due for a test at once. */
export function newSenderDomain(account: string, domain: string, now: Date): SenderDomainRow {
  return {
    id: senderDomainId(account, domain),
    account,
    domain,
    createdAt: now,
    lastTestedAt: null,
    spfValid: null,
    spfValidAfter: null,
    spfError: null,
    dkimValid: null,
    dkimValidAfter: null,
    dkimError: null,
    changedAt: null,
    nextTestAt: now,
    verifiedAt: null,
    version: 0,
  };
}

/**
 * For whoever sends a message: adds the domain of its sender to the account, when it is not there yet, and answers its row.
 * `domain` may be in any case and script; undefined when it can be no domain of mail. Its key is made at its first test.
 */
export async function noteSenderDomain(
  store: { readonly senderDomains: Pick<Collection<SenderDomainRow>, 'one' | 'insert'> },
  account: string,
  domain: string,
  now: Date,
): Promise<SenderDomainRow | undefined> {
  const name = toAsciiDomain(domain);
  if (name === undefined || !name.includes('.')) return undefined;
  const row = newSenderDomain(account, name, now);
  const known = await store.senderDomains.one({ id: row.id });
  if (known) return known;
  return (await store.senderDomains.insert(row)) === 'inserted' ? row : store.senderDomains.one({ id: row.id });
}
