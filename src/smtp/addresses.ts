import { BlockList, isIPv4, isIPv6, SocketAddress } from 'node:net';

/** An IP address in its one form: no zone, IPv6 compressed and in lower case, a mapped IPv4 address as IPv4. `undefined` for what is none. */
export function normalizeAddress(text: string): string | undefined {
  const bare = text.replace(/%.*$/, '');
  if (isIPv4(bare)) return bare;
  if (!isIPv6(bare)) return undefined;
  const { address } = new SocketAddress({ address: bare, family: 'ipv6' });
  const mapped = /^::ffff:([\d.]+)$/.exec(address)?.[1];
  return mapped ?? address;
}

/** Whether an address is one of these addresses and networks (`10.0.0.0/8`, `::1`). */
export function createNetworks(entries: readonly string[]): (address: string) => boolean {
  const list = new BlockList();
  for (const entry of entries) {
    const [network = '', bits] = entry.split('/');
    const family = isIPv6(network) ? 'ipv6' : 'ipv4';
    if (bits === undefined) list.addAddress(network, family);
    else list.addSubnet(network, Number(bits), family);
  }
  return (address) => entries.length > 0 && list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4');
}
