import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { sameName } from './names.ts';
import type { Resolver } from './types.ts';

/** What a look at a domain's records came to. `unknown`: the DNS could not say, and what was known before still holds. */
export type AddressCheck = { readonly valid: boolean; readonly error: string | null } | 'unknown';

const VALID: AddressCheck = { valid: true, error: null };
const invalid = (error: string): AddressCheck => ({ valid: false, error });

/** Whether an A record of the domain (AAAA for an IPv6 address) points at the address, as custom reverse DNS wants it. */
export async function checkA(resolver: Resolver, domain: string, ip: string): Promise<AddressCheck> {
  if (isIP(ip) === 0) return invalid(`${ip} is no IP address`);
  const type = isIP(ip) === 6 ? 'AAAA' : 'A';
  const answer = await resolver.resolve(domain, type);
  if (answer.kind === 'failure') return 'unknown';
  if (answer.kind !== 'records')
    return invalid(answer.kind === 'nxdomain' ? `${domain} does not exist` : `No ${type} record found`);
  if (answer.records.some((record) => sameAddress(record, ip))) return VALID;
  return invalid(`${domain} points to ${answer.records.slice(0, 5).join(', ')}, not to ${ip}`);
}

/** Whether the reverse DNS of the address names the domain. */
export async function checkPtr(resolver: Resolver, ip: string, domain: string): Promise<AddressCheck> {
  const name = toReverseName(ip);
  if (name === undefined) return invalid(`${ip} is no IP address`);
  const answer = await resolver.resolve(name, 'PTR');
  if (answer.kind === 'failure') return 'unknown';
  const named = answer.kind === 'records' && answer.records.some((record) => sameName(record, domain));
  return named ? VALID : invalid('Invalid reverse DNS');
}

/** The name under which the DNS keeps the name of an address (RFC 1035 section 3.5, RFC 3596 section 2.5); undefined for what is none. */
export function toReverseName(ip: string): string | undefined {
  if (isIP(ip) === 4) return `${ip.split('.').toReversed().join('.')}.in-addr.arpa`;
  if (isIP(ip) !== 6 || ip.includes('%')) return undefined;
  const hex = ipaddr
    .parse(ip)
    .toByteArray()
    .map((byte) => byte.toString(16).padStart(2, '0'))
    .join('');
  return `${[...hex].toReversed().join('.')}.ip6.arpa`;
}

function sameAddress(a: string, b: string): boolean {
  return (
    isIP(a) !== 0 &&
    isIP(a) === isIP(b) &&
    ipaddr.parse(a).toNormalizedString() === ipaddr.parse(b).toNormalizedString()
  );
}
