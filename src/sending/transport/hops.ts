import { isIPv6 } from 'node:net';
import { bareHost, isAllowedAddress, isLoopback, type Network } from '../../base/networks.ts';
import type { Resolver } from '../../dns/types.ts';

/** One server address, and how to connect to it. */
export interface Hop {
  readonly host: string;
  readonly address: string;
  readonly port: number;
  readonly secure: boolean;
  readonly auth: Relay['auth'];
  readonly tls: TlsRequirement;
}

/**
 * `verified`: TLS with a valid certificate of that host. `encrypted`: TLS with any certificate. `any`: TLS if offered
 * and working, because the alternative is plain text.
 */
export type TlsRequirement = 'verified' | 'encrypted' | 'any' | 'none';

/** Resolves the relay. The operator chose it, so its address may be anywhere. `setting` names the setting in errors. */
export async function relayExchange({ host }: Relay, resolver: Resolver, setting: string): Promise<Exchanges> {
  const answer = await resolver.addresses(host);
  if (answer.kind !== 'records') return { kind: 'deferred', reason: `the relay ${host} has no address (${setting})` };
  return { kind: 'found', exchanges: [{ host, addresses: answer.records }] };
}

/** The hops to a relay, in order. */
export function* hopsToRelay(
  exchanges: readonly Exchange[],
  { port, secure, auth }: Relay,
  wish: TlsRequirement,
): Generator<Hop> {
  for (const { host, addresses } of exchanges) {
    for (const address of addresses) {
      // A password is sent only over verified TLS, or not beyond this machine.
      const here = wish === 'none' ? 'none' : 'any';
      yield { host, address, port, secure, auth, tls: isLoopback(address) ? here : auth || secure ? 'verified' : wish };
    }
  }
}

/** The hops to the hosts of a domain, in order. Per host, addresses of the first source's family come first. */
export function* hopsToExchanges(
  exchanges: readonly Exchange[],
  port: number,
  tls: TlsRequirement,
  sources: readonly string[],
): Generator<Hop> {
  for (const { host, addresses } of exchanges) {
    for (const address of addresses.toSorted((a, b) => rank(a, sources) - rank(b, sources)))
      yield { host, address, port, secure: false, auth: undefined, tls };
  }
}

/** The sources of the same IP family as an address. */
export function sourcesFor(address: string, sources: readonly string[]): readonly string[] {
  return sources.filter((source) => isIPv6(source) === isIPv6(address));
}

function rank(address: string, sources: readonly string[]): number {
  const first = sources.findIndex((source) => isIPv6(source) === isIPv6(address));
  return first < 0 ? sources.length : first;
}

interface Exchange {
  readonly host: string;
  readonly addresses: readonly string[];
}

export type Exchanges =
  | { readonly kind: 'found'; readonly exchanges: readonly Exchange[] }
  /** As in `MailOutcome`. */
  | { readonly kind: 'deferred' | 'failed'; readonly reason: string };

/** A domain may list any number of hosts; we try this many. */
const MAX_HOSTS = 5;
const MAX_ADDRESSES = 4;

/**
 * The mail hosts of a domain by preference: its MX records, or the domain itself if it has none (RFC 5321 section 5.1).
 * A null MX accepts no mail (RFC 7505). Every address is checked, because these names are untrusted.
 */
export async function findExchanges(
  resolver: Resolver,
  domain: string,
  allowed: readonly Network[],
  jitter: () => number,
): Promise<Exchanges> {
  const answer = await resolver.resolve(domain, 'MX');
  if (answer.kind === 'failure')
    return { kind: 'deferred', reason: `the MX records of ${domain} could not be looked up` };
  if (answer.kind !== 'records') {
    return answer.kind === 'none'
      ? addressesOf(resolver, [domain], domain, allowed)
      : { kind: 'failed', reason: `the domain ${domain} does not exist` };
  }
  const records = answer.records.map(({ exchange, priority }) => ({
    host: exchange.replace(/\.$/, ''),
    priority,
    chance: jitter(),
  }));
  if (records.every(({ host }) => host === ''))
    return { kind: 'failed', reason: `the domain ${domain} accepts no mail (null MX)` };
  // Equal preferences in random order, to spread the load (RFC 5321 section 5.1).
  const hosts = records
    .toSorted((a, b) => a.priority - b.priority || a.chance - b.chance)
    .map(({ host }) => host)
    .filter((host) => host !== '');
  return addressesOf(resolver, [...new Set(hosts)].slice(0, MAX_HOSTS), domain, allowed);
}

async function addressesOf(
  resolver: Resolver,
  hosts: readonly string[],
  domain: string,
  allowed: readonly Network[],
): Promise<Exchanges> {
  const exchanges: Exchange[] = [];
  let [unknown, forbidden] = [false, false];
  for (const host of hosts) {
    const answer = await resolver.addresses(host);
    if (answer.kind === 'failure') unknown = true;
    if (answer.kind !== 'records') continue;
    // One forbidden address rejects the whole host, because any of its addresses might be used.
    if (answer.records.every((address) => isAllowedAddress(address, allowed)))
      exchanges.push({ host, addresses: answer.records.slice(0, MAX_ADDRESSES) });
    else forbidden = true;
  }
  if (exchanges.some(({ addresses }) => addresses.length > 0)) return { kind: 'found', exchanges };
  if (unknown) return { kind: 'deferred', reason: `the mail hosts of ${domain} could not be looked up` };
  return {
    kind: 'failed',
    reason: forbidden
      ? `the mail hosts of ${domain} have forbidden addresses`
      : `the mail hosts of ${domain} have no address`,
  };
}

/** A server that relays all our mail. */
export interface Relay {
  readonly host: string;
  readonly port: number;
  /** TLS from the first byte (smtps). */
  readonly secure: boolean;
  readonly auth: { readonly user: string; readonly pass: string } | undefined;
}

const SUBMISSIONS_PORT = 465; // RFC 8314 section 3.3
const SUBMISSION_PORT = 587; // RFC 6409 section 3.1

/** Parses `smtp://[user:password@]host[:port]` or `smtps://…`, with user and password percent-encoded. */
export function parseRelay(text: string): Relay | undefined {
  const url = /^smtps?:\/\/[^/]/.test(text) ? URL.parse(text) : null;
  if (!url || url.hostname === '' || !/^\/?$/.test(url.pathname) || url.search !== '' || url.hash !== '')
    return undefined;
  const secure = url.protocol === 'smtps:';
  const auth = readAuth(url);
  if (auth === 'wrong') return undefined;
  return {
    host: bareHost(url),
    port: Number(url.port) || (secure ? SUBMISSIONS_PORT : SUBMISSION_PORT),
    secure,
    auth,
  };
}

function readAuth({ username, password }: URL): Relay['auth'] | 'wrong' {
  if (username === '') return password === '' ? undefined : 'wrong';
  try {
    return { user: decodeURIComponent(username), pass: decodeURIComponent(password) };
  } catch {
    return 'wrong';
  }
}
