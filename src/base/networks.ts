import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';

/**
 * An IP address in its one form: no zone, IPv6 compressed and in lower case, an IPv4-mapped one as IPv4. Undefined for
 * what is none.
 */
export function normalizeAddress(text: string): string | undefined {
  const bare = text.replace(/%.*$/, '');
  if (isIPv4(bare)) return bare; // ipaddr.js would also take `1`, `0x7f.1` and `010.0.0.1`
  if (!isIPv6(bare)) return undefined;
  // By way of a URL, whose host is all hexadecimal: ipaddr.js takes the tail of `::1.2.3.4` for a mapped IPv4 address.
  return ipaddr.process(new URL(`http://[${bare}]`).hostname.slice(1, -1)).toString();
}

/** Whether an address in its one form is of this machine alone. */
export function isLoopback(address: string): boolean {
  return address === '::1' || (isIPv4(address) && address.startsWith('127.'));
}

/**
 * What is counted and capped by, of an address in its one form: an IPv4 address itself, and the /64 of an IPv6 one,
 * because one customer of a network commands all of that.
 */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address;
  const parts = ipaddr.IPv6.parse(address).parts.slice(0, 4);
  return `${parts.map((part) => part.toString(16)).join(':')}::/64`;
}

/** Whether an address is one of these addresses and networks (`10.0.0.0/8`, `::1`). Text that is no address is not. */
export function createAddressList(entries: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  const familyOf = (address: string) => (isIPv6(address) ? 'ipv6' : 'ipv4');
  for (const entry of entries) {
    const [address = '', bits] = entry.split('/');
    if (bits === undefined) list.addAddress(address, familyOf(address));
    else list.addSubnet(address, Number(bits), familyOf(address));
  }
  return (address) => entries.length > 0 && isIP(address) !== 0 && list.check(address, familyOf(address));
}

/** A network that an operator named, in a form that addresses are held against. */
export type Network = readonly [ipaddr.IPv4 | ipaddr.IPv6, number];

/**
 * Reads a setting `allow_private`: addresses or networks ("10.1.2.3", "10.0.0.0/8", "fd00::/8", "[::1]").
 * Throws when an entry is neither, because a guard that silently ignores a line of its settings is worse than none.
 */
function parseNetworks(entries: readonly string[]): readonly Network[] {
  return entries.map((entry) => {
    const text = entry.trim().replace(/^\[(.*)\]/, '$1');
    if (ipaddr.isValidCIDR(text)) return ipaddr.parseCIDR(text);
    if (!ipaddr.isValid(text) || (!text.includes(':') && !ipaddr.IPv4.isValidFourPartDecimal(text))) {
      throw new Error(`allow_private: "${entry}" is neither an IP address nor a network`);
    }
    const address = ipaddr.parse(text);
    return [address, address.kind() === 'ipv4' ? 32 : 128];
  });
}

const LOOPBACK: readonly Network[] = parseNetworks(['127.0.0.0/8', '::1/128']);

/** What an operator opens beside the public Internet. */
export interface OpenNetworks {
  /** `webhooks.allow_private` for posts, `outbound.allow_private` for mail; null when it is not set. */
  readonly allowPrivate: readonly string[] | null;
  /** Whether every listener of this daemon is on loopback. */
  readonly loopbackOnly: boolean;
}

/** The networks that are open: those that were named, or loopback on a developer's machine where nothing was. */
export function allowedNetworks({ allowPrivate, loopbackOnly }: OpenNetworks): readonly Network[] {
  if (allowPrivate) return parseNetworks(allowPrivate);
  return loopbackOnly ? LOOPBACK : [];
}

// What ipaddr.js calls unicast and what we must still not reach for somebody else.
const FORBIDDEN: readonly Network[] = parseNetworks([
  '168.63.129.16/32', // the host's own services, as every Azure machine sees them
  '3ffe::/16', // 6bone, given back (RFC 3701)
]);
// Everything the IPv6 Internet uses (RFC 4291 section 2.4). ::/8 with its mapped, compatible, translated and NAT64
// forms, unique local, link-local, site-local, discard and multicast addresses are all outside.
const GLOBAL_V6: readonly Network[] = parseNetworks(['2000::/3']);

/**
 * Whether the address is on the public Internet, or in a network that the operator opened. Text that is no address is
 * not.
 */
export function isReachable(text: string, allowed: readonly Network[]): boolean {
  // ipaddr.js also reads 0x7f.1 and the like, and a zone ("%eth0") is for link-local addresses only.
  if (isIP(text) === 0 || text.includes('%') || !ipaddr.isValid(text)) return false;
  const address = ipaddr.parse(text);
  return within(address, allowed) || isPublic(address);
}

function isPublic(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  if (address.range() !== 'unicast' || within(address, FORBIDDEN)) return false;
  return address.kind() === 'ipv4' || (within(address, GLOBAL_V6) && !isIsatap(address));
}

/**
 * ISATAP writes an IPv4 address behind ::0:5efe or ::200:5efe of any prefix (RFC 5214 section 6.1): a tunnel inwards.
 */
function isIsatap(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  const bytes = address.toByteArray();
  return (bytes[8] === 0 || bytes[8] === 2) && bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe;
}

function within(address: ipaddr.IPv4 | ipaddr.IPv6, networks: readonly Network[]): boolean {
  return networks.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}
