import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { FORMAT_NAMES, toStyle } from '../../inbound/formats.ts';
import { matches } from '../../inbound/routing.ts';
import { isWildcard, memberOf } from '../../mail/wildcard-domain.ts';
import { type InboundRouteRow, nameOf } from '../../store/rows/domains.ts';
import { toSigningSecret } from '../../webhooks/signing.ts';
import { operation } from '../operation.ts';
import { emailAddress, knownDomain, shownUrl } from './fields.ts';
import { inboundRouteRecord, ROUTE, toRouteRecord } from './inbound-routes.ts';

// Tools to set up and debug routes.

const routeKey = operation({
  path: '/inbound/route-key',
  extension: true,
  summary: 'Shows the key that signs the posts of a route, or rotates it.',
  notes:
    'The key belongs to the account and the URL: routes with the same URL share a key. It is the key of X-Mandrill-Signature; signing_secret is the same key in the form that Standard Webhooks libraries expect; turn off their JSON parsing (jsonParse: false), because the body is a form. After a rotation, posts carry the signatures of both keys (webhook-signature) for a day.',
  params: {
    id: text(255).meta({ description: 'id of the route' }),
    rotate: optional(z.boolean()).meta({ description: 'true creates a new key' }),
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
  async handle({ id, rotate = false }, { store, signingKeys, actions, refuse }) {
    const route = await store.inboundRoutes.one({ id });
    if (!route) throw refuse('Unknown_InboundRoute', id);
    const note = rotate ? await actions.begin() : undefined;
    const key = rotate ? await signingKeys.rotate(route.url) : await signingKeys.of(route.url);
    if (key === undefined) throw refuse('ServiceUnavailable');
    note?.('signing key changed', 1, shownUrl(route.url));
    return { id, url: route.url, auth_key: key, signing_secret: toSigningSecret(key) };
  },
});

const VERDICTS = ['hit', 'less specific', 'no match'] as const;

const testRoute = operation({
  path: '/inbound/test-route',
  extension: true,
  summary: 'Shows which route an address matches, why the others do not, and what would be posted.',
  notes: 'Give `address`, or `domain` and `mailbox`. Nothing is sent.',
  params: {
    address: optional(emailAddress).meta({ description: 'the address to try' }),
    domain: optional(knownDomain),
    mailbox: optional(text(64)).meta({ description: 'the part before the @' }),
    format: optional(z.enum(FORMAT_NAMES)).meta({
      description: 'shows the post in this format; in that of the route if omitted',
    }),
  },
  returns: z.object({
    email: z.string().meta({ description: 'the address that was tried' }),
    route: inboundRouteRecord
      .nullable()
      .meta({ description: 'the route that it matches; null: mail to it is rejected with 550 5.1.1' }),
    routes: z
      .array(
        inboundRouteRecord.extend({
          result: z.enum(VERDICTS).meta({
            description:
              'no match: the pattern does not match; less specific: it matches, but another route takes precedence',
          }),
        }),
      )
      .meta({ description: 'every route of the domain, oldest first' }),
    payload: z.unknown().meta({
      description:
        'what would be posted for a sample message: the value of mandrill_events, the JSON of another format, or the body as text; null if no route matches',
    }),
    content_type: z.string().nullable().meta({ description: 'Content-Type of that post; null if no route matches' }),
  }),
  errors: ['Unknown_InboundDomain', 'ServiceUnavailable'],
  example: {
    params: { address: 'mailbox-123@inbound.example.com' },
    answer: {
      email: 'mailbox-123@inbound.example.com',
      route: ROUTE,
      routes: [{ ...ROUTE, result: 'hit' }],
      payload: [{ event: 'inbound', ts: 1767614400, msg: { email: 'mailbox-123@inbound.example.com' } }],
      content_type: 'application/x-www-form-urlencoded',
    },
  },
  async handle({ address, domain, mailbox, format }, { store, inbound, refuse, invalid }) {
    const tried =
      address ??
      (domain && mailbox !== undefined
        ? {
            mailbox,
            domain: memberOf(domain.id),
            text: `${mailbox}@${isWildcard(domain.id) ? memberOf(domain.id) : domain.domain}`,
          }
        : undefined);
    if (!tried) throw invalid('address', 'Please enter an address, or a domain and a mailbox');
    const covering = await inbound.covering(tried.domain);
    if (!covering) throw refuse('Unknown_InboundDomain', domain?.domain ?? tried.domain);
    const found = inbound.lookup(tried.mailbox, tried.domain);
    if (found.kind === 'unknown') throw refuse('ServiceUnavailable');
    const rows = await store.inboundRoutes.many({ domain: nameOf(covering) }, { sort: 'createdAt' });
    const hit = found.kind === 'matched' ? found.match : undefined;
    const row = rows.find(({ id }) => id === hit?.routeId);
    const own = toStyle(row ?? {});
    const style = { ...own, format: format ?? own.format };
    const sample = hit && (await inbound.sample(tried.text, hit, style));
    return {
      email: tried.text,
      route: hit ? toRouteRecord({ ...row, ...hit, id: hit.routeId }) : null,
      routes: rows.map((one) => ({ ...toRouteRecord(one), result: verdict(one, tried.mailbox, hit?.routeId) })),
      payload: sample?.payload ?? null,
      content_type: sample?.type ?? null,
    };
  },
});

function verdict(route: InboundRouteRow, mailbox: string, hit: string | undefined): (typeof VERDICTS)[number] {
  if (route.id === hit) return 'hit';
  return matches(route.pattern, mailbox) ? 'less specific' : 'no match';
}

/** Tools to set up and debug routes; not part of Mandrill's API. */
export const routeTools = [routeKey, testRoute];
