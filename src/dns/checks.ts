import { sameName } from './names.ts';
import type { Resolver } from './types.ts';

/** Whether the mail of a domain comes to us. `unknown`: the DNS could not say, and what was known before still holds. */
export type MxCheck = { readonly valid: boolean; readonly error: string | null } | 'unknown';

/**
 * Whether an MX record of the domain names one of our hosts. RFC 5321 section 5.1 would also deliver to the address of a
 * domain without MX; an inbound domain has to say so in words, because nothing else tells that it is meant for us.
 */
export async function checkMx(resolver: Resolver, domain: string, hosts: readonly string[]): Promise<MxCheck> {
  const answer = await resolver.resolve(domain, 'MX');
  if (answer.kind === 'failure') return 'unknown';
  if (answer.kind !== 'records') {
    return {
      valid: false,
      error:
        answer.kind === 'nxdomain' ? `The domain ${domain} does not exist` : `The domain ${domain} has no MX record`,
    };
  }
  const names = answer.records.map((record) => record.exchange.replace(/\.$/, ''));
  if (names.every((name) => name === ''))
    return { valid: false, error: `The domain ${domain} accepts no mail (null MX, RFC 7505)` };
  if (names.some((name) => hosts.some((host) => sameName(name, host)))) return { valid: true, error: null };
  return { valid: false, error: `The MX records of ${domain} name ${names.join(', ')}, not ${hosts.join(' or ')}` };
}
