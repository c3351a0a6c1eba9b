import type { IncomingMessage } from 'node:http';
import { BlockList, isIP } from 'node:net';

/** Addresses in front of the one that counts; more are not looked at. */
const MAX_HOPS = 20;

/** Says who really calls: the peer, or, behind a trusted proxy, the last address in X-Forwarded-For that is not trusted. */
export function createClientAddress(trustedProxies: readonly string[]): (req: IncomingMessage) => string {
  const isTrusted = createAddressList(trustedProxies);
  return (req) => {
    const peer = plainAddress(req.socket.remoteAddress ?? '');
    if (!isTrusted(peer)) return peer;
    const header = req.headers['x-forwarded-for'];
    const hops = (Array.isArray(header) ? header.join(',') : (header ?? ''))
      .split(',')
      .slice(-MAX_HOPS)
      .map((hop) => plainAddress(hop.trim()));
    let client = peer;
    for (const hop of hops.reverse()) {
      // Whoever wrote something else than an address is not to be believed about those further out.
      if (isIP(hop) === 0) return client;
      client = hop;
      if (!isTrusted(hop)) return client;
    }
    return client;
  };
}

/** An address as it is counted and shown: an IPv4 address in IPv6 form is written as IPv4; a zone is left out. */
export function plainAddress(address: string): string {
  const [bare = ''] = address.split('%');
  return /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(bare)?.[1] ?? bare;
}

/** Whether an address is in one of the networks. */
export function createAddressList(networks: readonly string[]): (address: string) => boolean {
  const list = toBlockList(networks);
  return (address) => isIP(address) !== 0 && list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
}

function toBlockList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const entry of networks) {
    const [address = '', prefix] = entry.split('/');
    const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
    if (prefix === undefined) list.addAddress(address, family);
    else list.addSubnet(address, Number(prefix), family);
  }
  return list;
}
