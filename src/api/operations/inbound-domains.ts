import { z } from 'zod';
import { checkMx } from '../../dns/checks.ts';
import { ownershipRecordOf, toMxResult } from '../../inbound/ownership.ts';
import { RESERVED_WORDS } from '../../mail/addresses/reserved-names.ts';
import { memberOf } from '../../mail/addresses/wildcard-domain.ts';
import { pagesByTime } from '../../store/pages.ts';
import { type InboundDomainRow, isClaim, nameOf } from '../../store/rows/domains.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { bool, knownDomain, listOf, newDomain, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';

const inboundDomainRecord = record('inbound domain record', {
  domain: str('the domain, as it was added'),
  created_at: time('when it was added'),
  valid_mx: bool('whether an MX record points to this service'),
  routed: bool('whether mail to it is accepted; if false, publish the TXT record first'),
  verified_at: timeOrNull('when the TXT record was first found; null if never'),
  txt_name: str('name of the TXT record that proves ownership of the domain'),
  txt_value: str('the value of that record'),
  mx_hosts: listOf(z.string(), 'host names of this service: an MX record of the domain must point to one of them'),
  mx_error: strOrNull('the problem with the MX records at the last check that the DNS answered, or null'),
  tested_at: timeOrNull('when the MX records were last checked, which is at least every hour', 'null if not yet'),
});

const mxHostsOf = ({ hostname, mxHosts }: Call<never>['settings']) => [hostname, ...mxHosts];

function toDomainRecord(row: InboundDomainRow, settings: Call<never>['settings']) {
  const { name, value } = ownershipRecordOf(row);
  return {
    domain: row.domain,
    created_at: toTime(row.createdAt),
    valid_mx: row.validMx,
    routed: !isClaim(row),
    verified_at: toTime(row.verifiedAt),
    txt_name: name,
    txt_value: value,
    mx_hosts: mxHostsOf(settings),
    mx_error: row.mxError ?? null,
    tested_at: toTime(row.testedAt),
  };
}

/** Returns the domain's row. Throws Unknown_InboundDomain, also for a domain of another account. */
export async function findDomain(
  domain: { readonly domain: string; readonly id: string },
  { inbound, orRefuse }: Call<'Unknown_InboundDomain'>,
) {
  return orRefuse(await inbound.find(domain.id), 'Unknown_InboundDomain', domain.domain);
}

const domains = listOperation({
  path: '/inbound/domains',
  access: 'numbers',
  summary: 'Lists the inbound domains of the account.',
  params: {},
  returns: z.array(inboundDomainRecord),
  pages: (_, { store, settings }) =>
    mapPages(pagesByTime(store.inboundDomains, 'createdAt', { after: new Date(0) }), async (rows) => {
      // While a proof takes effect, a domain may briefly be listed together with its claim.
      const names = rows.filter(isClaim).map(nameOf);
      const found = names.length === 0 ? [] : await store.inboundDomains.many({ id: { in: names } });
      const routed = new Set(found.map(nameOf));
      return rows
        .filter((row) => !isClaim(row) || !routed.has(nameOf(row)))
        .map((row) => toDomainRecord(row, settings));
    }),
});

const addDomain = operation({
  path: '/inbound/add-domain',
  access: 'settings',
  summary: 'Adds an inbound domain to the account.',
  notes:
    'Mail to the domain arrives once its MX record points to this service; the record is checked now, and again by ' +
    'check-domain. A domain belongs to one account. If `routed` is false, mail is accepted once the TXT record ' +
    '`txt_name` with the value `txt_value` is published; this applies if the operator requires proof of ownership ' +
    '(`inbound.ownership`). An account that publishes its record takes the domain over from an account whose record ' +
    'is missing, so keep yours published. `*.inbound.example.com` includes all names below inbound.example.com, at ' +
    'any depth, except domains that were added themselves; its MX record is a wildcard too, and its TXT record is at ' +
    'inbound.example.com. A domain below the wildcard of another account always needs the proof. Names of the ' +
    'operator, public suffixes and free mail domains cannot be added. Adding a domain again returns the existing ' +
    'record.',
  params: { domain: newDomain },
  returns: inboundDomainRecord,
  example: { domain: 'mail.example.com' },
  async handle({ domain: { domain, id } }, call) {
    const note = await call.actions.begin();
    const added = await call.inbound.add(id, domain);
    if ('refused' in added) {
      throw call.invalid(
        'domain',
        added.refused === 'taken' ? 'This domain is already in use' : RESERVED_WORDS[added.refused],
      );
    }
    if (added.isNew) note('domain added', 1, domain);
    const row = added.isNew ? ((await checkDns(added.row, call)) ?? added.row) : added.row;
    return toDomainRecord(row, call.settings);
  },
});

/**
 * Looks up the MX and the proof in the DNS and returns the updated row. If the DNS does not answer, the result stays
 * unchanged; without an answer for the MX, the proof is not looked up. Undefined if the domain was deleted.
 */
async function checkDns(
  row: InboundDomainRow,
  { store, resolver, settings, now, inbound }: Call<never>,
): Promise<InboundDomainRow | undefined> {
  const mx = await checkMx(resolver, memberOf(nameOf(row)), mxHostsOf(settings));
  if (mx === 'unknown') return inbound.find(nameOf(row));
  const seen = await store.inboundDomains.change({ id: row.id }, toMxResult(row, mx, now()));
  return seen ? inbound.settle(seen) : inbound.find(nameOf(row));
}

const checkDomain = operation({
  path: '/inbound/check-domain',
  access: 'settings',
  summary: 'Checks the MX records of an inbound domain and the TXT record that proves ownership.',
  notes:
    'If the DNS does not answer, the last result is kept. A proof takes effect immediately; without this call, ' +
    'within an hour.',
  params: { domain: knownDomain },
  returns: inboundDomainRecord,
  errors: ['Unknown_InboundDomain'],
  example: { domain: 'inbound.example.com' },
  async handle({ domain }, call) {
    const row = await findDomain(domain, call);
    const checked = call.orRefuse(await checkDns(row, call), 'Unknown_InboundDomain', domain.domain);
    return toDomainRecord(checked, call.settings);
  },
});

const deleteDomain = operation({
  path: '/inbound/delete-domain',
  access: 'settings',
  summary: 'Deletes an inbound domain with its routes; new mail for it is refused immediately.',
  notes: 'Mail that was already accepted is still delivered.',
  params: { domain: knownDomain },
  returns: inboundDomainRecord,
  errors: ['Unknown_InboundDomain'],
  example: { domain: 'inbound.example.com' },
  async handle({ domain }, call) {
    const id = nameOf(await findDomain(domain, call));
    const note = await call.actions.begin();
    const { routes, removed } = await call.inbound.change(id, async () => {
      // Routes first: if this is interrupted, no route is left behind for a domain that another account may claim next.
      const routes = await removeRoutes(id, call);
      const removed = await call.inbound.remove(id);
      await removeRoutes(id, call); // added meanwhile
      return { routes, removed };
    });
    const row = call.orRefuse(removed, 'Unknown_InboundDomain', domain.domain);
    note('domain removed', 1, `${row.domain} with its routes (${routes})`);
    return toDomainRecord(row, call.settings);
  },
});

async function removeRoutes(domain: string, { store }: Call<never>): Promise<number> {
  let count = 0;
  while (await store.inboundRoutes.remove({ domain })) count++;
  return count;
}

export const inboundDomainOperations = [domains, addDomain, checkDomain, deleteDomain];
