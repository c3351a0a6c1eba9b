import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { matches } from '../../mail/pattern.ts';
import { toSigningSecret } from '../../mail/signature.ts';
import type { InboundRouteRow } from '../../store/inbound-routes.ts';
import { operation } from '../operation.ts';
import { inboundRouteRecord, toRouteRecord } from './records.ts';
import { emailAddress, knownDomain } from './rules.ts';

const ROUTE = { id: '1.1', pattern: 'mailbox-*', url: 'https://app.example.com/hooks/mail' };

const routeKey = operation({
  path: '/inbound/route-key',
  extension: true,
  summary: 'Shows the key that signs the posts of a route, or makes a new one.',
  notes:
    'The key belongs to the account and the URL: routes with one URL have one key. It is the key of X-Mandrill-Signature; signing_secret is the same key in the form that Standard Webhooks libraries take, which have to be told that the body is no JSON (jsonParse: false). After a rotation posts carry the signatures of both keys (webhook-signature) for a day.',
  params: {
    id: text(255).meta({ description: 'id of the route' }),
    rotate: optional(z.boolean()).meta({ description: 'true makes a new key' }),
  },
  returns: z.object({
    id: z.string().meta({ description: 'id of the route' }),
    url: z.string().meta({ description: 'the URL that the key belongs to' }),
    auth_key: z.string().meta({ description: 'the key' }),
    signing_secret: z.string().meta({ description: '`whsec_` and the base64 of the key' }),
  }),
  errors: ['Unknown_InboundRoute', 'ServiceUnavailable'],
  example: {
    params: { id: '1.1' },
    answer: {
      id: '1.1',
      url: ROUTE.url,
      auth_key: 'ExampleSigningKey000000000000001',
      signing_secret: 'whsec_RXhhbXBsZVNpZ25pbmdLZXkwMDAwMDAwMDAwMDAwMDE=',
    },
  },
  async handle({ id, rotate = false }, { store, signingKey, newSigningKey, refuse }) {
    const route = await store.inboundRoutes.one({ id });
    if (!route) throw refuse('Unknown_InboundRoute', id);
    const key = rotate ? await newSigningKey(route.url) : await signingKey(route.url);
    if (key === undefined) throw refuse('ServiceUnavailable');
    return { id, url: route.url, auth_key: key, signing_secret: toSigningSecret(key) };
  },
});

const VERDICTS = ['hit', 'less specific', 'no match'] as const;

const testRoute = operation({
  path: '/inbound/test-route',
  extension: true,
  summary: 'Says which route an address would hit, why the others would not, and what would be posted.',
  notes: 'Give `address`, or `domain` and `mailbox`. Nothing is sent.',
  params: {
    address: optional(emailAddress).meta({ description: 'the address to try' }),
    domain: optional(knownDomain),
    mailbox: optional(text(64)).meta({ description: 'the part before the @' }),
  },
  returns: z.object({
    email: z.string().meta({ description: 'the address that was tried' }),
    route: inboundRouteRecord
      .nullable()
      .meta({ description: 'the route that it hits; null: mail to it is refused with 550 5.1.1' }),
    routes: z
      .array(
        inboundRouteRecord.extend({
          result: z.enum(VERDICTS).meta({
            description: 'no match: the pattern does not fit; less specific: it fits, and another route goes first',
          }),
        }),
      )
      .meta({ description: 'every route of the domain, the oldest first' }),
    payload: z
      .unknown()
      .meta({ description: 'what would be posted for a sample message: the value of mandrill_events, or null' }),
  }),
  errors: ['Unknown_InboundDomain', 'ServiceUnavailable'],
  example: {
    params: { address: 'mailbox-123@inbound.example.com' },
    answer: {
      email: 'mailbox-123@inbound.example.com',
      route: ROUTE,
      routes: [{ ...ROUTE, result: 'hit' }],
      payload: [{ event: 'inbound', ts: 1767614400, msg: { email: 'mailbox-123@inbound.example.com' } }],
    },
  },
  async handle({ address, domain, mailbox }, { store, inbound, lookup, sample, refuse, invalid }) {
    const tried =
      address ??
      (domain && mailbox !== undefined
        ? { mailbox, domain: domain.id, text: `${mailbox}@${domain.domain}` }
        : undefined);
    if (!tried) throw invalid('address', 'Please enter an address, or a domain and a mailbox');
    const row = await inbound.find(tried.domain);
    if (!row) throw refuse('Unknown_InboundDomain', domain?.domain ?? tried.domain);
    const found = lookup(tried.mailbox, tried.domain);
    if (found.kind === 'unknown') throw refuse('ServiceUnavailable');
    const rows = await store.inboundRoutes.many({ domain: tried.domain }, { sort: 'createdAt' });
    const hit = found.kind === 'matched' ? found.match : undefined;
    return {
      email: tried.text,
      route: hit ? { id: hit.routeId, pattern: hit.pattern, url: hit.url } : null,
      routes: rows.map((route) => ({ ...toRouteRecord(route), result: verdict(route, tried.mailbox, hit?.routeId) })),
      payload: hit ? await sample(tried.text, hit) : null,
    };
  },
});

function verdict(route: InboundRouteRow, mailbox: string, hit: string | undefined): (typeof VERDICTS)[number] {
  if (route.id === hit) return 'hit';
  return matches(route.pattern, mailbox) ? 'less specific' : 'no match';
}

/** What helps to set up and to find faults in routes; beyond the documented interface. */
export const routeTools = [routeKey, testRoute];
