import { networkInterfaces } from 'node:os';
import { normalizeAddress } from '../base/networks.ts';
import type { Resolver } from '../dns/types.ts';

// The published addresses of a name, and whether they belong to this machine.

/** The addresses of a name in the DNS, without the hosts file. Undefined if there is no answer. */
export async function publishedAddresses(resolver: Resolver, name: string): Promise<readonly string[] | undefined> {
  const literal = normalizeAddress(name);
  if (literal !== undefined) return [literal];
  const answers = await Promise.all([resolver.resolve(name, 'A'), resolver.resolve(name, 'AAAA')]);
  const records = answers.flatMap((answer) => (answer.kind === 'records' ? answer.records : []));
  return records.length === 0 && answers.some(({ kind }) => kind === 'failure') ? undefined : records;
}

/** Whether an address is one of this machine. */
export function isOwnAddress(address: string): boolean {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .some((one) => normalizeAddress(one.address) === normalizeAddress(address));
}
