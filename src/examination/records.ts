import { isIP } from 'node:net';
import { getDomain } from 'tldts';
import type { Clock } from '../base/clock.ts';
import { POLICY_PREFIX } from '../certificates/names.ts';
import { transportPolicySettings } from '../composition/slices.ts';
import { acceptsMail, checkA, checkDkim, checkMx, checkPtr, checkSpf, toReverseName } from '../dns/checks.ts';
import type { Resolver } from '../dns/types.ts';
import { mtaStsRecord } from '../inbound/mta-sts.ts';
import { domainOf } from '../mail/addresses/address.ts';
import { memberOf } from '../mail/addresses/wildcard-domain.ts';
import { createDomainKeys, keyRecord, keyRecordNames, newKeyPair, selectorOf } from '../sending/domains/keys.ts';
import { ownSigner } from '../sending/signing.ts';
import { parseRelay } from '../sending/transport/hops.ts';
import type { Settings } from '../settings.ts';
import { pagesById } from '../store/pages.ts';
import { type DomainKeyRow, isClaim, nameOf } from '../store/rows/domains.ts';
import type { Store } from '../store/store.ts';
import { type Finding, type fault, ok, skipped, warning } from './finding.ts';

/**
 * receiving: mail to us does not arrive without it · sending: mail from us is refused or distrusted without it ·
 * advised: everything works without it.
 */
export type RecordNeed = 'receiving' | 'sending' | 'advised';

/** Whether a record is published correctly, or what was found instead. `unknown`: the DNS did not answer. */
export type RecordVerdict =
  | { readonly valid: boolean; readonly error: string | null; readonly seen?: string | undefined }
  | 'unknown';

/** The verdict on a record as a finding of the doctor. */
export function toFinding(
  check: string,
  verdict: RecordVerdict,
  { seen = 'valid', advice, bad = warning }: { seen?: string; advice: string; bad?: typeof fault },
): Finding {
  if (verdict === 'unknown') return skipped(check, 'no DNS answer');
  return verdict.valid ? ok(check, verdict.seen ?? seen) : bad(check, verdict.error ?? 'another value', advice);
}

/** A record that should be in the DNS. */
export interface WantedRecord {
  /** A-labels, without a final dot. */
  readonly name: string;
  readonly type: 'A' | 'AAAA' | 'PTR' | 'MX' | 'TXT';
  /** As in a zone file, but without quotes. */
  readonly value: string;
  readonly need: RecordNeed;
  /** Its purpose, as text. */
  readonly purpose: string;
  check(resolver: Resolver): Promise<RecordVerdict>;
}

/** Records of one thing: this host, an inbound domain, a sender domain. */
export interface RecordGroup {
  readonly title: string;
  readonly records: readonly WantedRecord[];
}

/** The input for the records of this host. */
interface HostWorld {
  readonly settings: Settings;
  readonly clock: Clock;
  /** Its public addresses. */
  readonly addresses: readonly string[];
}

interface RecordWorld extends HostWorld {
  readonly resolver: Resolver;
  /** Undefined: the daemon has not run here yet. */
  readonly store: Store | undefined;
  /** Whether a domain of an account is requested. */
  readonly isAsked: (domain: string) => boolean;
}

/** Maximum domains of each kind: there may be 100,000. One requested by name is always found. */
const MOST = 500;

/** Yields the records of this host, of its own mail, and of the domains in the store. Throws `StoreAway`. */
export async function* wantedRecords(world: RecordWorld): AsyncGenerator<RecordGroup> {
  const { settings, store } = world;
  yield { title: `this host, ${settings.hostname}`, records: hostRecords(world) };
  yield { title: 'mail from Postern itself, and bounces', records: await ownRecords(world) };
  if (!store) return;
  let left = MOST;
  for await (const page of domainPages(store))
    for (const name of page.map(nameOf).filter(world.isAsked))
      if (left-- > 0) yield { title: `inbound domain ${name}`, records: inboundRecords(world, name) };
  for (const domain of (await verifiedDomains(store)).filter(world.isAsked).slice(0, MOST))
    yield { title: `sender domain ${domain}`, records: await senderRecords(world, store, domain) };
}

/** The inbound domains without the claims, in pages: in the daemon, reading 100,000 at once would hold up mail. */
export async function* domainPages({ inboundDomains }: Pick<Store, 'inboundDomains'>) {
  for await (const page of pagesById(inboundDomains)) yield page.filter((row) => !isClaim(row));
}

/** The sender domains that an account has verified, each once. */
async function verifiedDomains({ senderDomains }: Pick<Store, 'senderDomains'>): Promise<string[]> {
  const domains = new Set<string>();
  for await (const page of pagesById(senderDomains))
    for (const { domain, verifiedAt } of page) if (verifiedAt) domains.add(domain);
  return [...domains];
}

/** The name of this host and of its API: forward and reverse. */
function hostRecords({ settings, addresses }: RecordWorld): WantedRecord[] {
  const { hostname } = settings;
  const web = new URL(settings.public_url).hostname;
  const names = [...new Set([hostname, ...(isIP(web) === 0 && web.includes('.') ? [web] : [])])];
  const forward = names.flatMap((name) =>
    addresses.map(
      (address): WantedRecord => ({
        name,
        type: isIP(address) === 6 ? 'AAAA' : 'A',
        value: address,
        // A proxy elsewhere may stand in front of the API.
        need: name === hostname ? 'receiving' : 'advised',
        purpose: name === hostname ? 'this host' : 'the API, the console and links (public_url)',
        check: (resolver) => checkA(resolver, name, address),
      }),
    ),
  );
  const reverse = addresses.flatMap((address): WantedRecord[] => {
    const name = toReverseName(address);
    if (name === undefined) return [];
    return [
      {
        name,
        type: 'PTR',
        value: `${hostname}.`,
        need: 'sending',
        purpose: `reverse DNS of ${address}, which its provider sets; many servers refuse mail without it`,
        check: (resolver) => checkPtr(resolver, address, hostname),
      },
    ];
  });
  return [...forward, ...reverse];
}

/** The records that authenticate notices, delivery reports and the reverse-path of all mail, and route bounces. */
async function ownRecords(world: RecordWorld): Promise<WantedRecord[]> {
  const { settings, store } = world;
  const records = unsignedRecords(world);
  for (const domain of store ? ownSigners(settings) : [])
    if (store) records.push(await signingRecord(world, store, domain, 'signs mail from Postern itself'));
  return records.filter(
    ({ name }, at) => records.findIndex((one) => one.name === name && one.type === records[at]?.type) === at,
  );
}

/** These records without DKIM. */
export function unsignedRecords(world: HostWorld): WantedRecord[] {
  const { hostname, mail, outbound, senders } = world.settings;
  const author = domainOf(mail.from);
  const back = outbound.return_domain;
  return [
    ...[...new Set([hostname, author])].map((name) =>
      ownSpf(world, name, mail.relay, 'notices (mail.from) and delivery reports come from this name'),
    ),
    mxRecord(world, back, 'sending', 'the return domain, where bounces arrive'),
    ownSpf(world, back, outbound.relay, 'receivers check it for all mail that accounts send'),
    ownSpf(world, senders.spf_include, outbound.relay, 'the SPF records of sender domains include it'),
  ];
}

/** The domains that sign notices, and mail that no sender domain signs. */
export function ownSigners({ mail, outbound }: Settings): string[] {
  const signingDomain = outbound.signing_domain;
  const own = ownSigner({ from: mail.from, signingDomain }) ?? '';
  return [...new Set([own, signingDomain])].filter((domain) => domain !== '');
}

function inboundRecords(world: RecordWorld, domain: string): WantedRecord[] {
  const { postmaster } = world.settings.smtp;
  return [
    mxRecord(world, memberOf(domain), 'receiving', 'routes its mail to this host', domain),
    ...(postmaster === '' || domain.startsWith('*') ? [] : [tlsReports(domain, postmaster)]),
    ...(world.settings.inbound.mta_sts === 'none' || domain.startsWith('*') ? [] : policyRecords(world, domain)),
  ];
}

/** The records for the MTA-STS policy of a domain (RFC 8461 section 3). */
function policyRecords({ settings, addresses }: RecordWorld, domain: string): WantedRecord[] {
  const [host, name] = [`${POLICY_PREFIX}${domain}`, `_mta-sts.${domain}`];
  const value = mtaStsRecord(transportPolicySettings(settings));
  return [
    ...addresses.map(
      (address): WantedRecord => ({
        name: host,
        type: isIP(address) === 6 ? 'AAAA' : 'A',
        value: address,
        need: 'advised',
        purpose: 'the policy for senders (MTA-STS), which this host serves over HTTPS',
        check: (resolver) => checkA(resolver, host, address),
      }),
    ),
    {
      name,
      type: 'TXT',
      value,
      need: 'advised',
      purpose: 'announces the policy; its id changes with inbound.mta_sts and inbound.mx_hosts',
      check: (resolver) => checkPrefix(resolver, [name], new RegExp(`^${value}\\s*;?\\s*$`)),
    },
  ];
}

async function senderRecords(world: RecordWorld, store: Store, domain: string): Promise<WantedRecord[]> {
  const { resolver, settings } = world;
  const include = settings.senders.spf_include;
  const takes = await acceptsMail(resolver, domain);
  return [
    {
      name: domain,
      type: 'TXT',
      value: await spfWith(resolver, domain, include),
      need: 'sending',
      purpose: 'lets this host send its mail (SPF); a domain has only one SPF record, so replace an existing one',
      check: (from) => checkSpf(from, domain, include),
    },
    await signingRecord(world, store, domain, 'signs mail From it'),
    {
      name: `_dmarc.${domain}`,
      type: 'TXT',
      value: `v=DMARC1; p=none${settings.smtp.postmaster === '' ? '' : `; rua=mailto:${settings.smtp.postmaster}`}`,
      need: 'advised',
      purpose: 'tells receivers what to do with forged mail From it; large receivers require one',
      check: (from) => checkDmarc(from, domain),
    },
    ...(takes === false
      ? [mxRecord(world, domain, 'advised', 'receivers may distrust mail From a domain that accepts none')]
      : []),
  ];
}

export function mxRecord(
  { settings }: Pick<HostWorld, 'settings'>,
  domain: string,
  need: RecordNeed,
  purpose: string,
  shown = domain,
): WantedRecord {
  const hosts = [settings.hostname, ...settings.inbound.mx_hosts];
  return {
    name: shown,
    type: 'MX',
    value: `10 ${settings.hostname}.`,
    need,
    purpose,
    check: (resolver) => checkMx(resolver, domain, hosts),
  };
}

/** The SPF record that allows nobody: of a host without a known address. */
export const NO_SENDERS = 'v=spf1 -all';

/** The SPF record of a name of ours. Behind a relay, it needs the addresses of the relay, which are unknown here. */
function ownSpf(world: HostWorld, name: string, relay: string, purpose: string): WantedRecord {
  const addresses = relay === '' ? world.addresses : [];
  const terms = relay === '' ? addresses.map(toTerm) : [toTerm(parseRelay(relay)?.host ?? '')];
  return {
    name,
    type: 'TXT',
    value: terms.length === 0 ? NO_SENDERS : ['v=spf1', ...terms, '-all'].join(' '),
    need: 'sending',
    purpose: `SPF: ${purpose}`,
    async check(resolver) {
      const answer = await resolver.resolve(name, 'TXT');
      if (answer.kind === 'failure') return 'unknown';
      const records = answer.kind === 'records' ? answer.records.filter(isSpf) : [];
      if (records.length !== 1)
        return { valid: false, error: records.length === 0 ? 'no SPF record' : 'more than one SPF record' };
      const ask = async (address: string) => ({ address, result: await spfResult(world, resolver, name, address) });
      const results = await Promise.all(addresses.map(ask));
      if (results.some(({ result }) => result === 'temperror')) return 'unknown';
      const bad = results.filter(({ result }) => result !== 'pass');
      const error = bad.map(({ address, result }) => `${result} for ${address}`).join(', ');
      if (bad.length > 0) return { valid: false, error };
      const seen = addresses.length === 0 ? records[0] : `pass for ${addresses.join(', ')}`;
      return { valid: true, error: null, seen };
    },
  };
}

/** The result of our own check for a sender. */
async function spfResult(
  { settings: { hostname, dns }, clock }: HostWorld,
  resolver: Resolver,
  domain: string,
  address: string,
): Promise<string> {
  const limits = { questionsPerMessage: dns.questions_per_message, budgetMs: dns.budget_ms, trustedSealers: [] };
  // Loaded on demand, because `serve` loads this module as part of the command line.
  const { createAuthenticator } = await import('../inbound/verdicts/authenticate.ts');
  const { authenticate } = createAuthenticator({ resolver, settings: { hostname, ...limits }, clock });
  const client = { address, helo: domain, tls: null };
  const envelope = { mailFrom: `postmaster@${domain}`, client };
  return (await authenticate({ kind: 'memory', bytes: Buffer.from('\r\n') }, envelope)).spf.result;
}

const toTerm = (host: string): string => (isIP(host) === 0 ? `a:${host}` : `ip${isIP(host)}:${host}`);

/** Whether a TXT record is one of SPF. */
export const isSpf = (text: string) => /^v=spf1( |$)/i.test(text);

/** The SPF record of a domain with our include added to its existing terms. */
async function spfWith(resolver: Resolver, domain: string, include: string): Promise<string> {
  const answer = await resolver.resolve(domain, 'TXT');
  const [known] = answer.kind === 'records' ? answer.records.filter(isSpf) : [];
  if (known === undefined) return `v=spf1 include:${include} ~all`;
  const terms = known
    .split(' ')
    .slice(1)
    .filter((term) => term !== '' && !term.toLowerCase().endsWith(`include:${include}`));
  return ['v=spf1', `include:${include}`, ...terms].join(' ');
}

/** The record of the current signing key, which is created if missing. */
async function signingRecord({ settings, clock }: RecordWorld, store: Store, domain: string, purpose: string) {
  return dkimRecord(settings, await createDomainKeys({ store, clock, newKeyPair }).keyOf(domain), purpose);
}

export function dkimRecord(settings: Settings, key: DomainKeyRow, purpose: string): WantedRecord {
  const { publicKey } = key;
  const selector = selectorOf(key, { dkimSelector: settings.senders.dkim_selector });
  const names = keyRecordNames(settings, key.id, { selector, publicKey });
  return {
    name: names.name,
    type: 'TXT',
    value: keyRecord(publicKey),
    need: 'sending',
    purpose: `DKIM: ${purpose}`,
    check: (resolver) => checkDkim(resolver, names, publicKey),
  };
}

function tlsReports(domain: string, postmaster: string): WantedRecord {
  const name = `_smtp._tls.${domain}`;
  return {
    name,
    type: 'TXT',
    value: `v=TLSRPTv1; rua=mailto:${postmaster}`,
    need: 'advised',
    purpose: 'asks senders to report failed TLS to this host (RFC 8460)',
    check: (resolver) => checkPrefix(resolver, [name], /^v=TLSRPTv1\s*(;|$)/i),
  };
}

/** Checks the policy of a domain, else of its organizational domain (RFC 7489 section 6.6.3). */
function checkDmarc(resolver: Resolver, domain: string): Promise<RecordVerdict> {
  const names = [...new Set([domain, getDomain(domain) ?? domain])].map((name) => `_dmarc.${name}`);
  return checkPrefix(resolver, names, /^v=DMARC1\s*;/i);
}

async function checkPrefix(resolver: Resolver, names: readonly string[], prefix: RegExp): Promise<RecordVerdict> {
  for (const name of names) {
    const answer = await resolver.resolve(name, 'TXT');
    if (answer.kind === 'failure') return 'unknown';
    if (answer.kind === 'records' && answer.records.some((text) => prefix.test(text)))
      return { valid: true, error: null };
  }
  return { valid: false, error: 'no such record' };
}
