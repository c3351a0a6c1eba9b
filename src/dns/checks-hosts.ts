import { checkMx } from './checks.ts';
import type { RecordCheck } from './checks-sender.ts';
import { sameName } from './names.ts';
import type { Resolver } from './types.ts';

/**
 * Whether a name leads to a host: as an alias of it, or because all its addresses are the host's. What the DNS cannot say counts as
 * no. `host` may be an IP address.
 */
export async function leadsTo(resolver: Resolver, name: string, host: string): Promise<boolean> {
  if (await isAliasOf(resolver, name, [host])) return true;
  const [found, own] = await Promise.all([resolver.addresses(name), resolver.addresses(host)]);
  if (found.kind !== 'records' || own.kind !== 'records' || found.records.length === 0) return false;
  return found.records.every((address) => own.records.includes(address));
}

/** As `leadsTo`, in the words of a record test: what is wrong, and for how long caches may hold what was there before. */
export async function checkLeadsTo(resolver: Resolver, name: string, host: string): Promise<RecordCheck> {
  const alias = await resolver.resolve(name, 'CNAME');
  if (alias.kind === 'records' && alias.records.some((target) => sameName(target, host)))
    return { valid: true, error: null, ttl: alias.ttl };
  const [found, own] = await Promise.all([resolver.addresses(name), resolver.addresses(host)]);
  if (alias.kind === 'failure' || found.kind === 'failure' || own.kind === 'failure') return 'unknown';
  if (found.kind === 'nxdomain' && alias.kind !== 'records')
    return { valid: false, error: `The domain ${name} does not exist.` };
  const same =
    found.kind === 'records' &&
    own.kind === 'records' &&
    found.records.every((address) => own.records.includes(address));
  if (same) return { valid: true, error: null, ttl: found.ttl };
  const where = alias.kind === 'records' ? `is an alias of ${alias.records.join(', ')}` : 'has no CNAME record';
  return { valid: false, error: `The domain ${name} ${where}; it must be an alias of ${host}.` };
}

/**
 * Whether mail to a name comes to one of our hosts: an MX names one, or there is none and the name is an alias of one (RFC 5321
 * section 5.1). What the DNS cannot say counts as no.
 */
export async function mailComesTo(resolver: Resolver, name: string, hosts: readonly string[]): Promise<boolean> {
  const exchanges = await resolver.resolve(name, 'MX');
  if (exchanges.kind === 'none') return isAliasOf(resolver, name, hosts);
  const check = exchanges.kind === 'records' ? await checkMx(resolver, name, hosts) : 'unknown';
  return check !== 'unknown' && check.valid;
}

/**
 * Whether mail can be sent to a domain: it has an MX that is not null (RFC 7505), or no MX but an address (RFC 5321 section 5.1).
 * `unknown`: the DNS could not say.
 */
export async function takesMail(resolver: Resolver, name: string): Promise<boolean | 'unknown'> {
  const exchanges = await resolver.resolve(name, 'MX');
  if (exchanges.kind === 'records') return exchanges.records.some(({ exchange }) => exchange.replace(/\.$/, '') !== '');
  if (exchanges.kind !== 'none') return exchanges.kind === 'nxdomain' ? false : 'unknown';
  const addresses = await resolver.addresses(name);
  return addresses.kind === 'failure' ? 'unknown' : addresses.kind === 'records' && addresses.records.length > 0;
}

async function isAliasOf(resolver: Resolver, name: string, hosts: readonly string[]): Promise<boolean> {
  const alias = await resolver.resolve(name, 'CNAME');
  return alias.kind === 'records' && alias.records.some((target) => hosts.some((host) => sameName(target, host)));
}
