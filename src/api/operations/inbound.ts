import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { RESERVED_WORDS } from '../../mail/reserved-names.ts';
import { type InboundDomainRow, isClaim, nameOf } from '../../store/inbound-domains.ts';
import type { Call } from '../operation.ts';
import { operation } from '../operation.ts';
import { inboundDomainRecord, inboundRouteRecord, toDomainRecord, toRouteRecord } from './records.ts';
import { endpointUrl, knownDomain, newDomain, pattern, verifyUrl } from './rules.ts';

const routeId = text(255).meta({ description: 'id of the route' });
const DOMAIN = {
  domain: 'inbound.example.com',
  created_at: '2026-01-05 11:00:00',
  valid_mx: false,
  routed: true,
  verified_at: null,
  txt_name: '_postern-challenge.inbound.example.com',
  txt_value: 'postern-domain=e37a47d6583f78a0b1a4ad9ea2e137a1',
};
const ROUTE = { id: '1.1', pattern: 'mailbox-*', url: 'https://app.example.com/hooks/mail' };

/** The domain's row, or the error that it is not there; for one account another's domain is not there. */
async function findDomain(
  domain: { readonly domain: string; readonly id: string },
  { inbound, refuse }: Call<'Unknown_InboundDomain'>,
) {
  const row = await inbound.find(domain.id);
  if (!row) throw refuse('Unknown_InboundDomain', domain.domain);
  return row;
}

const domains = operation({
  path: '/inbound/domains',
  summary: 'Lists the inbound domains of the account.',
  params: {},
  returns: z.array(inboundDomainRecord),
  errors: [],
  example: { params: {}, answer: [DOMAIN] },
  async handle(_, { store }) {
    const rows = await store.inboundDomains.many({}, { sort: 'createdAt' });
    // For a moment, while a proof is acted on, a domain may be there with its claim.
    const routed = new Set(rows.filter((row) => !isClaim(row)).map(nameOf));
    return rows.filter((row) => !isClaim(row) || !routed.has(nameOf(row))).map(toDomainRecord);
  },
});

const addDomain = operation({
  path: '/inbound/add-domain',
  summary: 'Adds an inbound domain to the account.',
  notes:
    'All mail to the domain comes here once its MX record names this service, which is looked up at once and again by check-domain. ' +
    'A domain belongs to one account. Where `routed` is false, mail is taken once the TXT record `txt_name` with the value `txt_value` is published; ' +
    'so it is wherever the operator asks for a proof (`inbound.ownership`). The record takes the domain over from an account whose own record is not published, ' +
    'so it is worth keeping. Names of the operator, public suffixes and domains of free mail cannot be added. Adding a domain again answers the record that is there.',
  params: { domain: newDomain },
  returns: inboundDomainRecord,
  errors: [],
  example: {
    params: { domain: 'mail.example.com' },
    answer: {
      ...DOMAIN,
      domain: 'mail.example.com',
      created_at: '2026-01-05 12:00:00',
      txt_name: '_postern-challenge.mail.example.com',
      txt_value: 'postern-domain=37a456249131b373f487843d5659f9b8',
    },
  },
  async handle({ domain: { domain, id } }, call) {
    const added = await call.inbound.add(id, domain);
    if ('refused' in added) {
      throw call.invalid(
        'domain',
        added.refused === 'taken' ? 'This domain is already in use' : RESERVED_WORDS[added.refused],
      );
    }
    return toDomainRecord(added.isNew ? ((await looked(added.row, call)) ?? added.row) : added.row);
  },
});

/**
 * The row after a look at the DNS: the MX and the proof. What the DNS does not say stays as it was; while it is silent nobody waits
 * for a second answer. Undefined: the domain was deleted.
 */
async function looked(
  row: InboundDomainRow,
  { store, mxIsOurs, now, inbound }: Call<never>,
): Promise<InboundDomainRow | undefined> {
  const ours = await mxIsOurs(nameOf(row));
  if (ours === 'unknown') return inbound.find(nameOf(row));
  const seen = await store.inboundDomains.change({ id: row.id }, { validMx: ours, testedAt: now() });
  return seen ? inbound.settle(seen) : inbound.find(nameOf(row));
}

const checkDomain = operation({
  path: '/inbound/check-domain',
  summary: 'Looks up the MX records of an inbound domain, and the TXT record that proves it.',
  notes:
    'While DNS cannot be reached, the result of the last look-up stands. A proof comes into force at once; without this call, within the hour.',
  params: { domain: knownDomain },
  returns: inboundDomainRecord,
  errors: ['Unknown_InboundDomain'],
  example: { params: { domain: 'inbound.example.com' }, answer: { ...DOMAIN, valid_mx: true } },
  async handle({ domain }, call) {
    const row = await findDomain(domain, call);
    const checked = await looked(row, call);
    if (!checked) throw call.refuse('Unknown_InboundDomain', domain.domain);
    return toDomainRecord(checked);
  },
});

const deleteDomain = operation({
  path: '/inbound/delete-domain',
  summary: 'Deletes an inbound domain with its routes; mail stops routing for it immediately.',
  notes: 'What was accepted before is still delivered.',
  params: { domain: knownDomain },
  returns: inboundDomainRecord,
  errors: ['Unknown_InboundDomain'],
  example: { params: { domain: 'inbound.example.com' }, answer: DOMAIN },
  async handle({ domain }, call) {
    const id = nameOf(await findDomain(domain, call));
    // Routes first: should we be cut off, no route is left behind for a domain that another account may claim next.
    await removeRoutes(id, call);
    const removed = await call.inbound.remove(id);
    await removeRoutes(id, call); // one that came in between
    await call.routingChanged(id);
    if (!removed) throw call.refuse('Unknown_InboundDomain', domain.domain);
    return toDomainRecord(removed);
  },
});

async function removeRoutes(domain: string, { store }: Call<never>): Promise<void> {
  while (await store.inboundRoutes.remove({ domain }));
}

const routes = operation({
  path: '/inbound/routes',
  summary: 'Lists the routes of an inbound domain, the oldest first.',
  params: { domain: knownDomain },
  returns: z.array(inboundRouteRecord),
  errors: ['Unknown_InboundDomain'],
  example: { params: { domain: 'inbound.example.com' }, answer: [ROUTE] },
  async handle({ domain }, call) {
    const id = nameOf(await findDomain(domain, call));
    return (await call.store.inboundRoutes.many({ domain: id }, { sort: 'createdAt' })).map(toRouteRecord);
  },
});

const addRoute = operation({
  path: '/inbound/add-route',
  summary: 'Adds a route: mail to mailboxes of the domain that match the pattern is posted to the URL.',
  notes:
    'One recipient hits one route: an exact name first, then the pattern with the most literal characters, then the oldest route.',
  params: { domain: knownDomain, pattern, url: endpointUrl },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundDomain'],
  example: {
    params: { domain: 'inbound.example.com', pattern: 'support', url: 'https://app.example.com/hooks/support' },
    answer: { id: '1.2', pattern: 'support', url: 'https://app.example.com/hooks/support' },
  },
  async handle({ domain, pattern, url }, call) {
    const domainId = nameOf(await findDomain(domain, call));
    await verifyUrl(url, call);
    const row = { id: await call.newRouteId(), domain: domainId, pattern, url, createdAt: call.now() };
    await call.store.inboundRoutes.insert(row);
    // The domain may have been deleted meanwhile, and nobody would ever remove this route.
    if (!(await call.inbound.find(domainId))) {
      await call.store.inboundRoutes.remove({ id: row.id });
      throw call.refuse('Unknown_InboundDomain', domain.domain);
    }
    await call.routingChanged(domainId);
    return toRouteRecord(row);
  },
});

const updateRoute = operation({
  path: '/inbound/update-route',
  summary: 'Changes the pattern or the URL of a route; null fields remain unchanged.',
  notes:
    'With a new URL, mail that still waits for this route goes there too, and the key that signs stays, unless a webhook or another route of the account has that URL and so a key for it.',
  params: { id: routeId, pattern: optional(pattern), url: optional(endpointUrl) },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundRoute'],
  example: { params: { id: '1.1', pattern: 'box-*' }, answer: { ...ROUTE, pattern: 'box-*' } },
  async handle({ id, pattern, url }, call) {
    const before = await call.store.inboundRoutes.one({ id });
    if (!before) throw call.refuse('Unknown_InboundRoute', id);
    if (url !== undefined) await verifyUrl(url, call);
    if (url !== undefined && url !== before.url) await call.carryKey(before.url, url);
    const row = await call.store.inboundRoutes.change({ id }, { pattern, url });
    if (!row) throw call.refuse('Unknown_InboundRoute', id);
    await call.routingChanged(row.domain);
    // After the routing, so that nothing can still be accepted for the old URL behind this step.
    if (url !== undefined) await call.redirect(row, url);
    return toRouteRecord(row);
  },
});

const deleteRoute = operation({
  path: '/inbound/delete-route',
  summary: 'Deletes a route.',
  notes: 'What was accepted before is still delivered.',
  params: { id: routeId },
  returns: inboundRouteRecord,
  errors: ['Unknown_InboundRoute'],
  example: { params: { id: '1.1' }, answer: ROUTE },
  async handle({ id }, call) {
    const row = await call.store.inboundRoutes.remove({ id });
    if (!row) throw call.refuse('Unknown_InboundRoute', id);
    await call.routingChanged(row.domain);
    return toRouteRecord(row);
  },
});

/** Inbound domains and their routes, as the documented interface has them. */
export const inbound = [domains, addDomain, checkDomain, deleteDomain, routes, addRoute, updateRoute, deleteRoute];
