import { networkInterfaces } from 'node:os';
import { isAllowedAddress, normalizeAddress } from '../base/networks.ts';
import type { Resolver } from '../dns/types.ts';

// The addresses of a name and of this machine.

/** The addresses of a name in the DNS, without the hosts file. Undefined if there is no answer. */
export async function publishedAddresses(resolver: Resolver, name: string): Promise<readonly string[] | undefined> {
  const literal = normalizeAddress(name);
  if (literal !== undefined) return [literal];
  const answers = await Promise.all([resolver.resolve(name, 'A'), resolver.resolve(name, 'AAAA')]);
  const records = answers.flatMap((answer) => (answer.kind === 'records' ? answer.records : []));
  return records.length === 0 && answers.some(({ kind }) => kind === 'failure') ? undefined : records;
}

/** The addresses at which others reach this host: the public ones of its name in the DNS, else of this machine. */
export async function publicAddresses(resolver: Resolver, hostname: string): Promise<readonly string[]> {
  const isPublic = (address: string) => isAllowedAddress(address, []);
  const published = (await publishedAddresses(resolver, hostname))?.filter(isPublic) ?? [];
  return published.length > 0 ? published : ownAddresses().filter(isPublic);
}

/** The addresses of the network interfaces. */
function ownAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .flatMap(({ address }) => normalizeAddress(address) ?? []);
}

/** Whether an address is one of this machine. */
export function isOwnAddress(address: string): boolean {
  return ownAddresses().includes(normalizeAddress(address) ?? '');
}
