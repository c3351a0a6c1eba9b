import { z } from 'zod';
import { RESERVED_WORDS } from '../../mail/reserved-names.ts';
import { type IpRow, isPending, PENDING_ERROR } from '../../store/ips.ts';
import { type Call, operation } from '../operation.ts';
import { IP, ipParam, ipRecord, reverseDomain } from './ip-records.ts';
import { findIp, showIp } from './ips.ts';

const checkCustomDns = operation({
  path: '/ips/check-custom-dns',
  summary: 'Looks whether a domain can be the custom reverse DNS of a dedicated IP.',
  notes: 'It can when its A record (AAAA for an IPv6 address) points to the IP.',
  params: { ip: ipParam, domain: reverseDomain },
  returns: z.object({
    valid: z.boolean().meta({ description: 'whether the domain has an A record that points to the IP' }),
    error: z.string().nullable().meta({ description: 'why not' }),
  }),
  errors: ['Unknown_IP'],
  example: { params: { ip: '192.0.2.1', domain: 'out.example.com' }, answer: { valid: true, error: null } },
  async handle({ ip, domain }, call) {
    const row = await findIp(ip, call);
    if (call.names.isOurs(domain)) return { valid: false, error: RESERVED_WORDS.ours };
    const found = await call.pointsTo(domain, row.id);
    return found === 'unknown'
      ? { valid: false, error: `The DNS of ${domain} does not answer; please try again later` }
      : found;
  },
});

const setCustomDns = operation({
  path: '/ips/set-custom-dns',
  summary: 'Configures a custom domain for the reverse DNS of a dedicated IP.',
  notes:
    'Its A record (AAAA for an IPv6 address) must point to the IP. The change is pending until the PTR record of the IP, which the operator sets, names the domain; then ' +
    '`custom_dns.valid` is true and `domain` is the new one. What is not so after 7 days has failed, and another change may be made. All of it is tested again every day.',
  params: { ip: ipParam, domain: reverseDomain },
  returns: ipRecord,
  errors: ['Unknown_IP', 'Invalid_CustomDNS', 'Invalid_CustomDNSPending', 'ServiceUnavailable'],
  example: {
    params: { ip: '192.0.2.1', domain: 'out.example.com' },
    answer: { ...IP, custom_dns: { enabled: true, valid: false, error: PENDING_ERROR } },
  },
  async handle({ ip, domain }, call) {
    const row = await findIp(ip, call);
    // An address that greets as the operator would be taken for him.
    if (call.names.isOurs(domain)) throw call.invalid('domain', RESERVED_WORDS.ours);
    if (isPending(row, call.now())) throw call.refuse('Invalid_CustomDNSPending');
    if (row.customState === 'valid' && row.customDomain === domain) return showIp(row, call);
    const found = await call.pointsTo(domain, row.id);
    if (found === 'unknown') throw call.refuse('ServiceUnavailable');
    if (!found.valid) throw call.refuse('Invalid_CustomDNS');
    return showIp(await begin(row, domain, call), call);
  },
});

/** Begins a change where the row is as it was read: of several at once, one begins and the others find it pending. */
async function begin(
  row: IpRow,
  domain: string,
  call: Call<'Unknown_IP' | 'Invalid_CustomDNSPending'>,
): Promise<IpRow> {
  const { customState, customSetAt } = row;
  const now = call.now();
  const changed = await call.store.ips.change(
    { id: row.id, releasedAt: null, customState, customSetAt },
    {
      customDomain: domain,
      customState: 'pending',
      customError: PENDING_ERROR,
      customSetAt: now,
      customTestAt: now,
    },
  );
  if (changed) return changed;
  const present = await findIp(row.id, call);
  if (isPending(present, now)) throw call.refuse('Invalid_CustomDNSPending');
  return begin(present, domain, call);
}

/** Custom reverse DNS of dedicated IPs. */
export const customDns = [checkCustomDns, setCustomDns];
