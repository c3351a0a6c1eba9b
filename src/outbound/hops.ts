import { isIPv4 } from 'node:net';
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
  /** `any`: encrypted where the server offers it, whoever it says it is, for plain text would be the alternative. */
  readonly tls: 'verified' | 'any' | 'none';
}

/** The operator chose the relay, so it may be anywhere. */
export async function relayExchange({ host }: Relay, resolver: Resolver): Promise<Exchanges> {
  const answer = await resolver.addresses(host);
  if (answer.kind !== 'records') return { kind: 'deferred', reason: `the relay ${host} has no address (mail.relay)` };
  return { kind: 'found', exchanges: [{ host, addresses: answer.records }] };
}

const isLoopback = (address: string) => address === '::1' || (isIPv4(address) && address.startsWith('127.'));

/** Every address that is worth a try, in order. */
export function* hopsTo(exchanges: readonly Exchange[], relay: Relay | undefined, mxPort: number): Generator<Hop> {
  for (const { host, addresses } of exchanges) {
    for (const address of addresses) {
      if (!relay) yield { host, address, port: mxPort, secure: false, auth: undefined, tls: 'any' };
      // A password travels encrypted to the one it is meant for, or not off this machine.
      else yield { host, address, port: relay.port, secure: relay.secure, auth: relay.auth, tls: (relay.auth || relay.secure) && !isLoopback(address) ? 'verified' : 'any' };
    }
  }
}
