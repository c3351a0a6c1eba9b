import { toAsciiDomain } from '../../mail/addresses/address.ts';
import type { Scan } from '../../mail/scan.ts';
import type { Collection, Row } from '../driver/port.ts';
import type { GatedRow } from '../features.ts';
import { pagesByTime, type Readable } from '../pages.ts';
import { collection, type OwnedRow } from './collection.ts';

/** A domain that mail is sent from. `id` is `senderDomainId`. */
export interface SenderDomainRow extends OwnedRow {
  /** A-label form. */
  readonly domain: string;
  readonly createdAt: Date;
  /** When DNS last answered a test. */
  readonly lastTestedAt: Date | null;
  /** Null: DNS has never answered. */
  readonly spfValid: boolean | null;
  /** Set when an invalid record became valid: until then caches may still have the old one. */
  readonly spfValidAfter: Date | null;
  readonly spfError: string | null;
  readonly dkimValid: boolean | null;
  readonly dkimValidAfter: Date | null;
  readonly dkimError: string | null;
  /** When either record last became valid or invalid. */
  readonly changedAt: Date | null;
  readonly nextTestAt: Date;
  /** When this account proved that it receives the domain's mail. */
  readonly verifiedAt: Date | null;
  /** Incremented by every stored test, so that concurrent ones do not overwrite each other. */
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

/** A domain about which nothing is known yet, due for a test immediately. */
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
 * Adds the domain of a message's sender to the account if needed, and returns its row. `domain` may be in any case and
 * script; undefined if it is not a valid mail domain. Its key is created at its first test.
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

/**
 * Marks a domain as verified in an account, adding it if needed; undefined if the name is invalid. For the operator,
 * who knows which records are published: wrong ones become valid at the next test that finds them right.
 */
export async function proveSenderDomain(
  store: { readonly senderDomains: Pick<Collection<SenderDomainRow>, 'one' | 'insert' | 'change'> },
  account: string,
  domain: string,
  now: Date,
): Promise<SenderDomainRow | undefined> {
  const row = await noteSenderDomain(store, account, domain, now);
  if (!row) return undefined;
  const proven = await store.senderDomains.change({ id: row.id, verifiedAt: null }, { verifiedAt: now });
  const { spfValid, dkimValid, version } = proven ?? row;
  const anew = { spfValid: spfValid || null, dkimValid: dkimValid || null, spfValidAfter: null, dkimValidAfter: null };
  return (
    (await store.senderDomains.change({ id: row.id, version }, { ...anew, version: version + 1 })) ?? proven ?? row
  );
}

/** A key pair that will sign once its public key is in DNS. */
export interface NextKey {
  readonly selector: string;
  readonly publicKey: string;
  readonly privateKey: string;
  /** When it takes over, once DNS was seen to have it; null before. */
  readonly usableAt: Date | null;
}

/** The previous key pair: mail that it signed is still in transit, so its record has to stay for a while. */
interface PreviousKey {
  readonly selector: string;
  readonly publicKey: string;
  readonly keepUntil: Date;
}

/**
 * The key pair that signs the mail of a domain. `id` is the domain in A-labels: a selector has one DNS record, so
 * accounts that share a domain share its key; they cannot sign for each other, because each must verify the domain.
 */
export interface DomainKeyRow extends Row {
  /** Where the public key is published; absent for a key that was never rotated: `senders.dkim_selector`. */
  readonly selector?: string;
  /** SubjectPublicKeyInfo as base64, the `p=` of the record. */
  readonly publicKey: string;
  /** PKCS #8 in PEM. Leaves the store only for signing. */
  readonly privateKey: string;
  readonly createdAt: Date;
  /** Set while `next` is not in DNS yet. */
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

/** A link that verifies a sender domain. `id` is `tokenHash` of the token, which is not stored. */
interface VerificationRow extends OwnedRow {
  /** A-label form. */
  readonly domain: string;
  /** The address that the link was mailed to. */
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

/** A domain that an account wants to use in its tracked links. `id` is `trackingDomainId`. */
export interface TrackingDomainRow extends OwnedRow {
  /** A-label form. */
  readonly domain: string;
  readonly createdAt: Date;
  /** When DNS last answered a test. */
  readonly lastTestedAt: Date | null;
  /** Whether the domain points to us. Null: DNS has never answered. */
  readonly valid: boolean | null;
  /** Set when an invalid domain became valid: until then caches may still have the old record. */
  readonly validAfter: Date | null;
  readonly error: string | null;
  readonly nextTestAt: Date;
  /** Incremented by every stored test, so that concurrent ones do not overwrite each other. */
  readonly version: number;
}

export const trackingDomains = collection<TrackingDomainRow>()({
  name: 'tracking_domains',
  access: 'own',
  limited: true,
  indexes: [['account', 'domain'], ['nextTestAt']],
  dates: ['createdAt', 'lastTestedAt', 'validAfter', 'nextTestAt'],
});

/** The id of an account's tracking domain. */
export function trackingDomainId(account: string, domain: string): string {
  return `${account} ${domain}`;
}

/**
 * An inbound domain of an account. Mail is accepted for the row whose `id` is the name in lower-case A-labels, of which
 * there is one per name. Besides it any number of accounts may have a claim, whose `id` is the name and the account,
 * until they prove ownership.
 */
export interface InboundDomainRow extends OwnedRow, GatedRow {
  /** As the account wrote it; returned in API records. */
  readonly domain: string;
  readonly createdAt: Date;
  readonly validMx: boolean;
  /** The wrong record found in the DNS at the last check; null or absent: no fault is known. */
  readonly mxError?: string | null;
  readonly testedAt: Date | null;
  /** Since when the checks have had the present result; null or absent: not known. */
  readonly mxSince?: Date | null;
  /** When the account was found to control the domain's DNS; null or absent: never. */
  readonly verifiedAt?: Date | null;
  /** Signs reply addresses of the domain (mail/addresses/reply-address.ts); null or absent: not created yet. */
  readonly replyKey?: string | null;
  /** The key before it, whose addresses are still accepted. */
  readonly previousReplyKey?: string | null;
}

export const inboundDomains = collection<InboundDomainRow>()({
  name: 'inbound_domains',
  access: 'own',
  limited: true,
  indexes: [['account', 'createdAt'], ['testedAt']],
  dates: ['createdAt', 'testedAt', 'mxSince', 'verifiedAt'],
  features: {
    mxError: null,
    mxSince: null,
    verifiedAt: null,
    replyKey: { feature: 'reply-addresses' },
    previousReplyKey: null,
  },
});

/** The `id` of an account's claim to a name. Neither contains a space. */
export function claimId(name: string, account: string): string {
  return `${name} ${account}`;
}

/** The name of an inbound domain, in lower-case A-labels. */
export function nameOf({ id }: Pick<InboundDomainRow, 'id'>): string {
  return id.split(' ', 1)[0] ?? id;
}

/** Whether it is only a claim: no mail is accepted for it. */
export function isClaim({ id }: Pick<InboundDomainRow, 'id'>): boolean {
  return id.includes(' ');
}

/** A route: mail to mailboxes of `domain` that match `pattern` goes to `url`. `id` is `<account number>.<sequence>`. */
export interface InboundRouteRow extends OwnedRow, GatedRow {
  /** `id` of the inbound domain. */
  readonly domain: string;
  readonly pattern: string;
  /** The pattern in the form in which patterns are compared; absent in rows of earlier versions. */
  readonly folded?: string;
  readonly url: string;
  /** Maximum number of messages that share a POST; absent: one. */
  readonly batchEvents?: number;
  /** The form of its posts; absent: Mandrill's. */
  readonly format?: string;
  /** false: the raw message is left out; absent: it is in the post. */
  readonly raw?: boolean;
  /** How attachments reach the receiver (inbound/formats.ts); absent: auto. */
  readonly attachments?: string;
  /** Files up to this size in bytes are not posted as links; absent: all are. */
  readonly linkOver?: number;
  /** Whether posts include the facts about the message; absent: no. */
  readonly facts?: boolean;
  /** For Basic authentication; null or absent: none. */
  readonly password?: string | null;
  /** The order of its deliveries (inbound/order.ts); absent: none. */
  readonly order?: string;
  /** Further URLs, each with a delivery of its own. */
  readonly also?: readonly AlsoRow[];
  /** The highest number that a further URL has had; absent: none. */
  readonly lastAlso?: number;
  /** The conditions for matching a message; null or absent: it matches every message. */
  readonly when?: When | null;
  /** Its action (inbound/decision.ts); absent: it posts the mail. */
  readonly action?: string;
  /** The tags it adds to mail that it matches. */
  readonly tags?: readonly string[];
  /** Routes with a higher priority are tried first, regardless of patterns; absent: 0. */
  readonly priority?: number;
  readonly createdAt: Date;
}

/** A further URL of a route. */
export interface AlsoRow
  extends Pick<InboundRouteRow, 'url' | 'format' | 'raw' | 'attachments' | 'linkOver' | 'facts' | 'password'> {
  /** Its number, by which waiting mail refers to it. Numbers are never reused within the route. */
  readonly n: number;
}

/** The conditions for a route to match a message: all that are given. Lists are alternatives. */
export interface When {
  /** MAIL FROM matches one of these globs; `<>` is the empty reverse-path. */
  readonly sender?: readonly string[];
  /** The address in From matches one of these globs. */
  readonly from?: readonly string[];
  /** The decoded subject matches one of these globs. */
  readonly subject?: readonly string[];
  /** A field of this name has a value that matches one of the globs; without globs: there is no such field. */
  readonly header?: readonly { readonly name: string; readonly is: readonly string[] }[];
  /** The size of the message as received, in bytes. */
  readonly size?: { readonly over?: number; readonly under?: number };
  /** Whether a program wrote or distributed it (mail/automated.ts). */
  readonly automated?: boolean;
  /** Whether the author may be believed (mail/sender-auth.ts). */
  readonly authenticated?: boolean;
  readonly dmarc?: readonly ('pass' | 'fail' | 'none' | 'unknown')[];
  readonly spam?: readonly Scan['spam'][];
  readonly virus?: readonly Scan['virus'][];
}

export const inboundRoutes = collection<InboundRouteRow>()({
  name: 'inbound_routes',
  access: 'own',
  limited: true,
  indexes: [
    ['account', 'createdAt'],
    ['domain', 'createdAt'],
    ['domain', 'folded'],
  ],
  dates: ['createdAt'],
  features: {
    folded: null,
    batchEvents: { feature: 'batch', plain: 1 },
    format: { feature: 'format', plain: 'mandrill', each: (format) => [format] },
    raw: { feature: 'raw', plain: true },
    attachments: { feature: 'attachments', plain: 'auto', each: (mode) => [mode] },
    linkOver: { feature: 'link-over', plain: 0 },
    facts: { feature: 'facts', plain: false },
    password: { feature: 'password' },
    order: { feature: 'order', plain: 'none', each: (order) => [order] },
    also: { feature: 'also', each: (urls) => urls.map(({ format = 'mandrill' }) => format) },
    lastAlso: null,
    when: { feature: 'when', each: (when) => Object.keys(when) },
    action: { feature: 'action', plain: 'post', each: (action) => [action] },
    tags: { feature: 'tags' },
    priority: { feature: 'priority', plain: 0 },
  },
});

/** A change of an inbound domain or its routes: each host reads that domain again (inbound/route-changes.ts). */
export interface RoutingChangeRow extends Row {
  /** `id` of the inbound domain. */
  readonly domain: string;
  /** The revision `routing` that announced it; null: in progress, or its host died during it. */
  readonly revision: number | null;
}

export const routingChanges = collection<RoutingChangeRow>()({
  name: 'routing_changes',
  access: 'none',
  indexes: [['revision']],
  dates: [],
  upkeep: true,
});

/** The routes of a domain, the oldest first, in pages; of an account's store only its own. */
export const pagesOfRoutes = (
  { inboundRoutes }: { readonly inboundRoutes: Readable<InboundRouteRow> },
  domain: string,
) => pagesByTime(inboundRoutes, 'createdAt', { filter: { domain }, after: new Date(0) });
