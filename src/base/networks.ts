import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';
import ipaddr from 'ipaddr.js';

/** The canonical form of an IP address: no zone, IPv6 compressed, IPv4-mapped as IPv4. Undefined for other text. */
export function normalizeAddress(text: string): string | undefined {
  const bare = text.replace(/%.*$/, '');
  if (isIPv4(bare)) return bare; // ipaddr.js also accepts `1`, `0x7f.1` and `010.0.0.1`
  if (!isIPv6(bare)) return undefined;
  // A URL makes the host all hexadecimal: ipaddr.js reads the end of `::1.2.3.4` as a mapped IPv4 address.
  return ipaddr.process(new URL(`http://[${bare}]`).hostname.slice(1, -1)).toString();
}

/** Whether an address in canonical form is a loopback address. */
export function isLoopback(address: string): boolean {
  return address === '::1' || (isIPv4(address) && address.startsWith('127.'));
}

/** Whether a host name, as in a URL, is this machine's own: `localhost`, `127.0.0.1` or `[::1]`. */
export function isLoopbackName(name: string): boolean {
  return name === 'localhost' || name === '[::1]' || isLoopback(name);
}

/** The host at which a listener is reached from its own machine. */
export const reachableHost = (host: string): string =>
  host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;

/** The address and port on which something listens. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** A host name or an address as URLs have it. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${host}]` : host);

/** The same with a port: `[2001:db8::1]:443`. */
export const withPort = (host: string, port: number): string => `${urlHost(host)}:${port}`;

/** The host of a URL without the brackets of an IPv6 address. */
export const bareHost = ({ hostname }: Pick<URL, 'hostname'>): string => hostname.replace(/^\[(.*)\]$/, '$1');

/**
 * The key for counters and limits per client, from an address in canonical form: an IPv4 address itself, or the /64 of
 * an IPv6 address, all of which one customer controls.
 */
export function networkOf(address: string): string {
  return prefixOf(address, 64);
}

/**
 * The key for counters of a whole site: an IPv4 address itself, or the /48 of an IPv6 address, which a provider gives
 * to one site with all its networks (RFC 6177).
 */
export function siteOf(address: string): string {
  return prefixOf(address, 48);
}

function prefixOf(address: string, bits: 48 | 64): string {
  if (!isIPv6(address)) return address;
  const parts = ipaddr.IPv6.parse(address).parts.slice(0, bits / 16);
  return `${parts.map((part) => part.toString(16)).join(':')}::/${bits}`;
}

/** The limit of a site, as a multiple of that of one of its networks. */
export const SITE_LIMIT_FACTOR = 4;

/** Creates a test for membership in a list of addresses and networks (`10.0.0.0/8`, `::1`); false for other text. */
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

/** A parsed network that addresses are matched against. */
export type Network = readonly [ipaddr.IPv4 | ipaddr.IPv6, number];

/**
 * Parses a setting `allow_private`: addresses or networks ("10.1.2.3", "10.0.0.0/8", "fd00::/8", "[::1]").
 * Throws if an entry is neither, because a guard that silently ignores part of its settings is worse than none.
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

/** The networks that are allowed in addition to the public Internet. */
export interface OpenNetworks {
  /** `webhooks.allow_private` for posts, `outbound.allow_private` for mail; null when it is not set. */
  readonly allowPrivate: readonly string[] | null;
  /** Whether every listener of this daemon is on loopback. */
  readonly loopbackOnly: boolean;
}

/** The allowed networks: those in the setting; if it is not set and all listeners are on loopback, loopback. */
export function allowedNetworks({ allowPrivate, loopbackOnly }: OpenNetworks): readonly Network[] {
  if (allowPrivate) return parseNetworks(allowPrivate);
  return loopbackOnly ? LOOPBACK : [];
}

// Networks that ipaddr.js calls unicast but that must not be reachable for clients.
const FORBIDDEN: readonly Network[] = parseNetworks([
  '168.63.129.16/32', // platform services of the host, on every Azure machine
  '3ffe::/16', // 6bone, returned (RFC 3701)
]);
// Everything the IPv6 Internet uses (RFC 4291 section 2.4). ::/8 with its mapped, compatible, translated and NAT64
// forms, unique local, link-local, site-local, discard and multicast addresses are all outside.
const GLOBAL_V6: readonly Network[] = parseNetworks(['2000::/3']);

/** Whether `text` is an address on the public Internet or in an allowed network; false if it is not an address. */
export function isAllowedAddress(text: string, allowed: readonly Network[]): boolean {
  // ipaddr.js also accepts 0x7f.1 and the like; a zone ("%eth0") is for link-local addresses only.
  if (isIP(text) === 0 || text.includes('%') || !ipaddr.isValid(text)) return false;
  const address = ipaddr.parse(text);
  return within(address, allowed) || isPublic(address);
}

function isPublic(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  if (address.range() !== 'unicast' || within(address, FORBIDDEN)) return false;
  return address.kind() === 'ipv4' || (within(address, GLOBAL_V6) && !isIsatap(address));
}

/** ISATAP puts an IPv4 address after ::0:5efe or ::200:5efe in any prefix (RFC 5214 section 6.1): a tunnel inwards. */
function isIsatap(address: ipaddr.IPv4 | ipaddr.IPv6): boolean {
  const bytes = address.toByteArray();
  return (bytes[8] === 0 || bytes[8] === 2) && bytes[9] === 0 && bytes[10] === 0x5e && bytes[11] === 0xfe;
}

function within(address: ipaddr.IPv4 | ipaddr.IPv6, networks: readonly Network[]): boolean {
  return networks.some(([network, bits]) => network.kind() === address.kind() && address.match(network, bits));
}
