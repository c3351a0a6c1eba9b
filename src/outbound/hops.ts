import { isIPv4, isIPv6 } from 'node:net';
import type { Resolver } from '../dns/types.ts';
import type { Exchange, Exchanges } from './exchanges.ts';
import type { Relay } from './relay.ts';

/** One server, and how it is spoken to. */
export interface Hop {
  readonly host: string;
  readonly address: string;
  readonly port: number;
  readonly secure: boolean;
  readonly auth: Relay['auth'];
  readonly tls: TlsWish;
}

/**
 * `verified`: only with a certificate of that host. `encrypted`: only encrypted, whoever it says it is. `any`: encrypted where
 * the server offers it and it works, for plain text would be the alternative.
 */
export type TlsWish = 'verified' | 'encrypted' | 'any' | 'none';

/** The operator chose the relay, so it may be anywhere. `setting` is where the operator finds it. */
export async function relayExchange({ host }: Relay, resolver: Resolver, setting: string): Promise<Exchanges> {
  const answer = await resolver.addresses(host);
  if (answer.kind !== 'records') return { kind: 'deferred', reason: `the relay ${host} has no address (${setting})` };
  return { kind: 'found', exchanges: [{ host, addresses: answer.records }] };
}

const isLoopback = (address: string) => address === '::1' || (isIPv4(address) && address.startsWith('127.'));

/** The ways to a relay, in order. */
export function* hopsToRelay(
  exchanges: readonly Exchange[],
  { port, secure, auth }: Relay,
  wish: TlsWish,
): Generator<Hop> {
  for (const { host, addresses } of exchanges) {
    for (const address of addresses) {
      // A password travels encrypted to the one it is meant for, or not off this machine.
      const here = wish === 'none' ? 'none' : 'any';
      yield { host, address, port, secure, auth, tls: isLoopback(address) ? here : auth || secure ? 'verified' : wish };
    }
  }
}

/** The ways to the hosts of a domain, in order. Of one host, those come first that the first of the sources can go. */
export function* hopsToExchanges(
  exchanges: readonly Exchange[],
  port: number,
  tls: TlsWish,
  sources: readonly string[],
): Generator<Hop> {
  for (const { host, addresses } of exchanges) {
    for (const address of addresses.toSorted((a, b) => rank(a, sources) - rank(b, sources)))
      yield { host, address, port, secure: false, auth: undefined, tls };
  }
}

/** The sources of the family of an address. */
export function sourcesFor(address: string, sources: readonly string[]): readonly string[] {
  return sources.filter((source) => isIPv6(source) === isIPv6(address));
}

function rank(address: string, sources: readonly string[]): number {
  const first = sources.findIndex((source) => isIPv6(source) === isIPv6(address));
  return first < 0 ? sources.length : first;
}
