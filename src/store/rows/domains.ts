import { createHash } from 'node:crypto';
import { toAsciiDomain } from '../../mail/address.ts';
import type { Collection, Row } from '../driver/port.ts';
import { collection, type OwnedRow } from './collection.ts';

/** A domain that mail is sent from. `id` is `senderDomainId`. */
export interface SenderDomainRow extends OwnedRow {
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

export const senderDomains = collection<SenderDomainRow>()({
  name: 'sender_domains',
  access: 'own',
  limited: true,
  indexes: [['account', 'domain'], ['nextTestAt']],
  dates: ['createdAt', 'lastTestedAt', 'spfValidAfter', 'dkimValidAfter', 'changedAt', 'nextTestAt', 'verifiedAt'],
});

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
 * For whoever sends a message: adds the domain of its sender to the account, when it is not there yet, and answers its
 * row. `domain` may be in any case and script; undefined when it can be no domain of mail. Its key is made at its first
 * test.
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

/** A pair that is to sign once its public half is in the DNS. */
export interface NextKey {
  readonly selector: string;
  readonly publicKey: string;
  readonly privateKey: string;
  /** When it takes over, once the DNS was seen to show it; null before. */
  readonly usableAt: Date | null;
}

/** A pair that signed before: what it signed is still under way, so its record has to stay for a while. */
interface PreviousKey {
  readonly selector: string;
  readonly publicKey: string;
  readonly keepUntil: Date;
}

/**
 * The key pair that signs the mail of a domain. `id` is the domain as A-labels: a selector has one record in the DNS,
 * so accounts that share a domain share its key, and what keeps one from signing for another is that each must verify
 * the domain.
 */
export interface DomainKeyRow extends Row {
  /** Where the public half is published; absent for a key that was never rotated: `senders.dkim_selector`. */
  readonly selector?: string;
  /** SubjectPublicKeyInfo as base64, which is the `p=` of the record. */
  readonly publicKey: string;
  /** PKCS #8 in PEM. Never leaves the store but to sign. */
  readonly privateKey: string;
  readonly createdAt: Date;
  /** Set while `next` waits to be seen in the DNS. */
  readonly rotatingSince?: Date | null;
  readonly next?: NextKey | null;
  readonly previous?: PreviousKey | null;
}

export const domainKeys = collection<DomainKeyRow>()({
  name: 'domain_keys',
  access: 'none',
  indexes: [['rotatingSince']],
  dates: ['createdAt', 'rotatingSince'],
});

/**
 * A link that proves who reads the mail of a domain. The store never holds the token itself: `id` is its SHA-256, as
 * `tokenHash` makes it.
 */
interface VerificationRow extends OwnedRow {
  /** A-label form. */
  readonly domain: string;
  /** Where the link was mailed to. */
  readonly email: string;
  readonly createdAt: Date;
  readonly expiresAt: Date;
  readonly usedAt: Date | null;
}

export const verifications = collection<VerificationRow>()({
  name: 'verifications',
  access: 'hidden',
  indexes: [['expiresAt']],
  dates: ['createdAt', 'expiresAt', 'usedAt'],
});

/** A token has 128 random bits, so one fast hash is enough to make the stored form useless to a thief. */
export function tokenHash(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}

/** A domain that an account wants its tracked links to begin with. `id` is `trackingDomainId`. */
export interface TrackingDomainRow extends OwnedRow {
  /** A-label form. */
  readonly domain: string;
  readonly createdAt: Date;
  /** When the DNS last answered a test. */
  readonly lastTestedAt: Date | null;
  /** Whether the domain leads to us. Null: the DNS has never answered. */
  readonly valid: boolean | null;
  /** Set when it turned valid after having been invalid: before this, caches may still hold the old record. */
  readonly validAfter: Date | null;
  readonly error: string | null;
  readonly nextTestAt: Date;
  /** Grows with every test that is written down, so that of two at once neither undoes the other. */
  readonly version: number;
}

export const trackingDomains = collection<TrackingDomainRow>()({
  name: 'tracking_domains',
  access: 'own',
  limited: true,
  indexes: [['account', 'domain'], ['nextTestAt']],
  dates: ['createdAt', 'lastTestedAt', 'validAfter', 'nextTestAt'],
});

/** The id of the row of an account's tracking domain. */
export function trackingDomainId(account: string, domain: string): string {
  return `${account} ${domain}`;
}

/**
 * An inbound domain of an account. Mail is taken for the one whose `id` is the lower-case A-label form of the name, and
 * there is one of these in all. Any number of accounts may have a claim beside it, whose `id` is the name and the
 * account: it waits for a proof.
 */
export interface InboundDomainRow extends OwnedRow {
  /** As the account wrote it; echoed in records. */
  readonly domain: string;
  readonly createdAt: Date;
  readonly validMx: boolean;
  readonly testedAt: Date | null;
  /** When the account was seen to have the DNS of the domain; null or absent: never. */
  readonly verifiedAt?: Date | null;
}

export const inboundDomains = collection<InboundDomainRow>()({
  name: 'inbound_domains',
  access: 'own',
  limited: true,
  indexes: [['account', 'createdAt'], ['testedAt']],
  dates: ['createdAt', 'testedAt', 'verifiedAt'],
});

/** `id` of the claim that an account has to a name. Neither holds a space. */
export function claimId(name: string, account: string): string {
  return `${name} ${account}`;
}

/** The name of an inbound domain, as lower-case A-labels. */
export function nameOf({ id }: Pick<InboundDomainRow, 'id'>): string {
  return id.split(' ', 1)[0] ?? id;
}

/** Whether it is only a claim: no mail is taken for it. */
export function isClaim({ id }: Pick<InboundDomainRow, 'id'>): boolean {
  return id.includes(' ');
}

/**
 * A route: mail to mailboxes of `domain` that match `pattern` is posted to `url`. `id` is `<account
 * number>.<sequence>`.
 */
export interface InboundRouteRow extends OwnedRow {
  /** `id` of the inbound domain. */
  readonly domain: string;
  readonly pattern: string;
  readonly url: string;
  /** The most messages that share a POST; absent: one. */
  readonly batchEvents?: number;
  readonly createdAt: Date;
}

export const inboundRoutes = collection<InboundRouteRow>()({
  name: 'inbound_routes',
  access: 'own',
  limited: true,
  indexes: [
    ['account', 'createdAt'],
    ['domain', 'createdAt'],
  ],
  dates: ['createdAt'],
});
