import { createPrivateKey } from 'node:crypto';
import { createReadCache } from '../base/cache.ts';
import { toTimestamp, withTimeout } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { domainOf, toAsciiDomain } from '../mail/addresses/address.ts';
import { withSendableHeader } from '../mail/compose/sendable.ts';
import type { Outgoing } from '../mail/outgoing.ts';
import { type SenderDomainRow, senderDomainId } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { sign } from './compose/sign.ts';
import { countsFrom, type DomainTests, mayBeSigned } from './domains/domain-tests.ts';
import { type DomainKeys, selectorOf } from './domains/keys.ts';
import type { ComposeJob, SigningOutlook } from './types.ts';

interface SigningSettings {
  /** Signs if the sender's domain cannot; empty: such mail is not signed. The operator publishes its DKIM record. */
  readonly ownDomain: string;
  readonly dkimSelector: string;
}

interface SigningDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'senderDomains'>;
  readonly keys: DomainKeys;
  /** Tests records without a cache, which could have outdated ones. */
  readonly freshTests: DomainTests;
}

type Signer = ComposeJob['dkim'];

/** Chooses the domain that signs the mail of accounts. */
export type Signing = ReturnType<typeof createSigning>;

/** How long the signer is cached: short, because a domain may just have been verified. Milliseconds. */
const FRESH_MS = 10_000;
/** Mail does not wait longer for a test of records; its result counts for the next message. */
const TEST_MS = 3_000;
/** The log reports unsigned mail of a domain once in this number of milliseconds. */
const TOLD_MS = 3_600_000;

/**
 * Chooses the signer of a message: the domain that its account named, else the sender's, if allowed; else our own; else
 * none. If the records of a verified domain are not valid yet, they are looked up again, because they may have just
 * been published.
 */
export function createSigning({ ownDomain, dkimSelector }: SigningSettings, deps: SigningDeps) {
  const { store, keys, freshTests, clock, log } = deps;
  const now = () => new Date(clock.now());
  const known = createReadCache(find, FRESH_MS);
  const told = createReadCache(async (key) => {
    const { account, domain, why } = JSON.parse(key);
    log.warn('message.unsigned', { account, domain, signed_by: ownDomain || null, reason: why });
  }, TOLD_MS);

  /** `key` is an account and candidate domains, between spaces, which neither contains; the sender's comes last. */
  async function find(key: string): Promise<SigningOutlook & { readonly signer: Signer }> {
    const [account = '', ...wanted] = key.split(' ');
    let why = '';
    for (const domain of wanted) {
      const row = await testedRow(account, domain);
      if (row && mayBeSigned(row, now())) return { signer: await signAs(domain), signedBy: domain, warning: null };
      why = reasonOf(domain, row, now());
    }
    const domain = wanted.at(-1) ?? '';
    const signer = ownDomain === '' ? null : await signAs(ownDomain);
    if (domain === ownDomain) return { signer, signedBy: ownDomain, warning: null };
    await told.get(JSON.stringify({ account, domain, why }), clock.monotonic());
    return { signer, signedBy: signer?.domain ?? null, warning: `Not signed by ${domain}: ${why}` };
  }

  async function testedRow(account: string, domain: string): Promise<SenderDomainRow | undefined> {
    const row = await store.senderDomains.one({ id: senderDomainId(account, domain) });
    if (!row || row.verifiedAt === null || (row.spfValid === true && row.dkimValid === true)) return row;
    const test = freshTests.test(row).catch(() => row);
    return (await withTimeout(clock, TEST_MS, test)) ?? row;
  }

  async function signAs(domain: string): Promise<NonNullable<Signer>> {
    const { privateKey, ...key } = await keys.keyOf(domain);
    return { domain, selector: selectorOf(key, { dkimSelector }), privateKey };
  }

  const look = (account: string, { sender, signingDomain }: Outgoing) => {
    const named = [signingDomain ?? '', domainOf(sender)];
    const wanted = new Set(named.flatMap((name) => toAsciiDomain(name) ?? []));
    return known.get([account, ...wanted].join(' '), clock.monotonic());
  };
  return frozen({
    /** The key for a message; null: it is sent unsigned. Throws `StoreAway`. */
    signerOf: async (account: string, outgoing: Outgoing): Promise<Signer> => (await look(account, outgoing)).signer,
    /** The current signing domain, and why it is not that of the sender. Throws `StoreAway`. */
    async outlookOf(account: string, outgoing: Outgoing): Promise<SigningOutlook> {
      const { signedBy, warning } = await look(account, outgoing);
      return { signedBy, warning };
    },
  });
}

/** Why a domain does not sign, and the remedy. */
function reasonOf(domain: string, row: SenderDomainRow | undefined, now: Date): string {
  if (!row || row.verifiedAt === null)
    return (
      'the account has not verified the domain ' +
      `(/senders/verify-domain, or postern sender add ${domain} on the host)`
    );
  const from = countsFrom(row, now);
  if (row.spfValid === true && row.dkimValid === true && from !== null)
    return `its DNS records are right, and count from ${toTimestamp(from)} UTC, when caches have none of before`;
  const error = (row.dkimValid === true ? row.spfError : row.dkimError) ?? 'Its DNS records have not been found yet.';
  return `${error} (/senders/check-domain)`;
}

// Our own mail: notices and delivery reports.

interface OwnSignatureSettings {
  /** The author of our own mail (`mail.from`). */
  readonly from: string;
  /** `outbound.signing_domain`; empty: none. */
  readonly signingDomain: string;
  readonly dkimSelector: string;
}

/** Signs our own mail: notices and delivery reports. Throws `StoreAway`. */
export type SignOwn = (message: Buffer) => Promise<Buffer>;

/** The domain that signs our own mail: the signing domain if From is at or below it (DMARC), else that of From. */
export function ownSigner({ from, signingDomain }: Omit<OwnSignatureSettings, 'dkimSelector'>): string | undefined {
  const domain = toAsciiDomain(domainOf(from));
  return signingDomain !== '' && domain !== undefined && `.${domain}`.endsWith(`.${signingDomain}`)
    ? signingDomain
    : domain;
}

/**
 * Our own mail is always signed, whether or not the record of the key is found: until it is published, receivers take
 * the mail as unsigned (RFC 6376 section 6.1.2).
 */
export function createOwnSignature(
  settings: OwnSignatureSettings,
  { domainKeys }: { readonly domainKeys: DomainKeys },
): SignOwn {
  const domain = ownSigner(settings);
  return async (composed) => {
    const message = withSendableHeader(composed, { charset: () => '', utf8: false });
    if (domain === undefined) return message;
    const { privateKey, ...key } = await domainKeys.keyOf(domain);
    return sign(message, { domain, selector: selectorOf(key, settings), privateKey: createPrivateKey(privateKey) });
  };
}
