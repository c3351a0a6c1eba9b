import { Readable } from 'node:stream';
import { z } from 'zod';
import { optional, text } from '../../base/schema.ts';
import { isPulled, PULL_URL } from '../../inbound/pulled.ts';
import { routeOfTarget } from '../../queue/delivery.ts';
import type { JsonText } from '../../webhooks/message-views.ts';
import type { PreparedDelivery } from '../../webhooks/pull-preparation.ts';
import type { PulledMail } from '../../webhooks/pulling.ts';
import { localCursor } from '../hosts/join-hosts.ts';
import { ROUND_S, tapAll } from '../hosts/join-taps.ts';
import { type AskedHost, type Call, type Hosts, operation, textOperation } from '../operation.ts';
import { bool, hostCursor, int, listOf, MAX_URL, record, shownUrl, str, time, toTime } from './fields.ts';
import { findRoute } from './inbound-routes.ts';

// Pull of mail from routes with the URL `pull:`, and tap of any other route.

const MAX_PULLED = 100;
const MAX_LEASES = 1000;
/** Below the 60 s after which usual proxies end a call. */
const MAX_WAIT_S = 50;
const MAX_LEASE_S = 43_200;

const wait = optional(z.int().min(0).max(MAX_WAIT_S)).describe(
  `seconds to wait if there is no mail, at most ${MAX_WAIT_S}; 0 if omitted`,
);
const limit = optional(z.int().min(1).max(MAX_PULLED)).describe(
  `maximum number of messages, 1 to ${MAX_PULLED}; 10 if omitted. Up to 8 MB in total, at least one message`,
);

const shown = z.object({
  id: str('id of the delivery: `_id` of the event, and webhook-id'),
  message_id: str('the message; several recipients share one'),
  route: str('id of the route'),
  email: str('the recipient'),
  attempts: int('number of earlier leases and POSTs'),
  url: str('the URL of the route, over which X-Mandrill-Signature is computed'),
  content_type: str('Content-Type of the body'),
  headers: z
    .record(z.string(), z.string())
    .describe('the headers of the corresponding POST: Content-Type and signatures'),
  body: str('the body of the corresponding POST, in base64'),
});

const pulledRecord = z
  .object({
    lease: str('the lease, for /inbound/ack and /inbound/nack'),
    expires_at: time('when the lease ends and an unacknowledged message is due again'),
  })
  .extend(shown.shape)
  .meta({ title: 'pulled message' });

function toShown({ delivery, post: { headers } }: PreparedDelivery): Omit<z.input<typeof shown>, 'body'> {
  const { id, messageId, routeId, recipient, attempts, url } = delivery;
  return {
    id,
    message_id: messageId,
    route: routeOfTarget(routeId),
    email: recipient,
    attempts,
    url,
    content_type: headers['Content-Type'] ?? '',
    headers,
  };
}

const toPulled = (mail: PulledMail) => ({
  lease: mail.lease,
  expires_at: toTime(mail.until),
  ...toShown(mail),
});

/** The URL that the call names, by itself or by a route. Throws Unknown_Endpoint also for that of another account. */
async function urlOf(
  { url, id }: { readonly url?: string | undefined; readonly id?: string | undefined },
  call: Call<'Unknown_Endpoint' | 'Unknown_InboundRoute'>,
): Promise<string> {
  const { store, inbound, endpoints, refuse, invalid } = call;
  if (id !== undefined) {
    const route = await findRoute(id, call);
    if (!isPulled(route.url))
      throw invalid('id', `The mail of this route is posted to ${shownUrl(route.url)}: please give it the URL pull:`);
    return route.url;
  }
  const wanted = url ?? PULL_URL;
  const [route] = await store.inboundRoutes.many({ url: wanted }, { limit: 1 });
  if (!route) await inbound.refresh();
  if (!route && inbound.routesTo(wanted, 1).length === 0 && (endpoints.one(wanted)?.waiting ?? 0) === 0)
    throw refuse('Unknown_Endpoint', wanted);
  if (!isPulled(wanted)) throw invalid('url', 'The mail for this URL is posted there: please name a URL as pull:');
  return wanted;
}

const LEASE = '01kcexamplepulled000000000-86VOL8iLh_6y.1';

/** One call in this many asks the other hosts first, so that a busy host does not delay their mail. */
const OTHERS_FIRST = 4;

/** Returns mail of the first host that has some. Undefined: no host knows the endpoint. */
async function pullFromAll({ here, others }: Hosts<JsonText>, wait: number, call: Call<never>) {
  const began = call.now().getTime();
  const end = began + wait * 1000;
  const first = began % Math.max(1, others.length);
  const inTurn = [...others.slice(first), ...others.slice(0, first)];
  let empty: JsonText | undefined;

  async function ask(host: AskedHost<JsonText>, seconds: number): Promise<JsonText | undefined> {
    const text = await host.ask({ wait: seconds });
    if (!text || text.size > NOTHING.length) return text;
    if (text.content instanceof Readable) text.content.resume();
    empty = { size: NOTHING.length, content: Buffer.from(NOTHING) };
    return undefined;
  }
  async function askOthers(): Promise<JsonText | undefined> {
    for (const host of inTurn) {
      const text = call.gone.aborted ? undefined : await ask(host, 0);
      if (text) return text;
    }
    return undefined;
  }

  const early = began % OTHERS_FIRST === 0 ? await askOthers() : undefined;
  if (early) return early;
  for (let left = 0; ; left = Math.min(ROUND_S, Math.ceil((end - call.now().getTime()) / 1000))) {
    const text = (await ask(here, Math.max(0, left))) ?? (await askOthers());
    if (text) return text;
    if (!empty || call.gone.aborted || call.now().getTime() >= end) return empty;
  }
}

const NOTHING = '[]';

const pull = textOperation({
  path: '/inbound/pull',
  access: 'content',
  extension: true,
  waits: true,
  summary: 'Fetches mail of routes with the URL `pull:`, and leases it to the caller.',
  notes:
    'Instead of a webhook, a route may have the URL `pull:`, or `pull:NAME` with a name of 1 to 64 of a-z, 0-9, `.`, ' +
    '`_` and `-`; routes with the same URL share a queue. Each message has the format, headers and signatures of a ' +
    'POST. It is leased to the caller until `expires_at`, or until `/inbound/ack` or `/inbound/nack`. A lease ' +
    'survives a restart. Unacknowledged messages are delivered again, so ignore ids that you have processed, as with ' +
    'POSTs. A message that is not acknowledged within delivery.retry_hours becomes a dead letter, which can be ' +
    'replayed. The headers do not include the password of a route. An account can make 50 such calls at a time. ' +
    `With several hosts, a host that has no mail asks the others, every ${ROUND_S} seconds while it waits; a result ` +
    'has the mail of one host. The header Postern-Hosts-Missing names hosts that did not respond.',
  params: {
    url: optional(text(MAX_URL)).describe('the URL of the routes; `pull:` if omitted'),
    id: optional(text(255)).describe('id of a route, instead of the URL'),
    limit,
    lease: optional(z.int().min(5).max(MAX_LEASE_S)).describe(
      `seconds of the lease, 5 to ${MAX_LEASE_S}; 60 if omitted`,
    ),
    wait,
  },
  returns: z.array(pulledRecord),
  errors: ['Unknown_InboundRoute'],
  notHereError: 'Unknown_Endpoint',
  across: { join: (hosts, { wait = 0 }, call) => pullFromAll(hosts, wait, call) },
  example: { url: 'pull:', limit: 1 },
  async text({ url, id, limit = 10, lease = 60, wait = 0 }, call) {
    const wish = { limit, leaseMs: lease * 1000, waitMs: wait * 1000 };
    return call.pulling.pull(await urlOf({ url, id }, call), wish, toPulled);
  },
});

const lease = optional(text(255)).describe('a lease from /inbound/pull');
const leases = optional(z.array(text(255)).min(1).max(MAX_LEASES)).describe(`several leases, at most ${MAX_LEASES}`);

const ended = z.object({
  ended: int('number of leases that were ended'),
  unknown: listOf(z.string(), 'leases that no longer exist: the message was leased again, or its delivery has ended'),
});

const leasesOf = (given: { readonly lease?: string | undefined; readonly leases?: readonly string[] | undefined }) => [
  ...new Set([...(given.lease === undefined ? [] : [given.lease]), ...(given.leases ?? [])]),
];

/** Ends each lease. Throws Unknown_Lease if all are unknown. */
async function endAll(
  given: { readonly lease?: string | undefined; readonly leases?: readonly string[] | undefined },
  call: Call<'Unknown_Lease'>,
  said: Parameters<Call<never>['pulling']['end']>[1],
): Promise<z.input<typeof ended>> {
  const all = leasesOf(given);
  const [first] = all;
  if (first === undefined) throw call.invalid('lease', 'Please enter a lease or leases');
  const known = await Promise.all(all.map((one) => call.pulling.end(one, said)));
  const unknown = all.filter((_, i) => !known[i]);
  if (unknown.length === all.length) throw call.refuse('Unknown_Lease', first);
  return { ended: all.length - unknown.length, unknown };
}

/** Ends each lease on the host that knows it. Undefined if none of them is known. */
async function endOnAll(
  { here, others }: Hosts<z.output<typeof ended>>,
  given: Parameters<typeof endAll>[0],
): Promise<z.output<typeof ended> | undefined> {
  const own = await here.ask();
  const unknown = own?.unknown ?? leasesOf(given);
  if (unknown.length === 0 || others.length === 0) return own;
  const asked = await Promise.all(others.map((host) => host.ask({ lease: undefined, leases: unknown })));
  const answers = asked.filter((answer) => answer !== undefined);
  const count = answers.reduce((sum, one) => sum + one.ended, own?.ended ?? 0);
  if (count === 0) return undefined;
  return { ended: count, unknown: unknown.filter((lease) => answers.every((one) => one.unknown.includes(lease))) };
}

const ack = operation({
  path: '/inbound/ack',
  access: 'content',
  extension: true,
  summary: 'Acknowledges pulled messages, which are then delivered.',
  notes:
    'An expired lease can still be acknowledged until the message is leased again. With several leases, the error ' +
    'Unknown_Lease means that none of them exists. With several hosts, any of them accepts the leases of all; the ' +
    'header Postern-Hosts-Missing names hosts that did not respond.',
  params: { lease, leases },
  returns: ended,
  notHereError: 'Unknown_Lease',
  example: { lease: LEASE },
  handle: (given, call) => endAll(given, call, { kind: 'acknowledged' }),
  across: { join: endOnAll },
});

const nack = operation({
  path: '/inbound/nack',
  access: 'content',
  extension: true,
  summary: 'Returns pulled messages, which are then due again.',
  notes: '`/inbound/deliveries` shows the attempt with its reason.',
  params: {
    lease,
    leases,
    delay: optional(z.int().min(0).max(MAX_LEASE_S)).describe(
      `seconds until they are due again, at most ${MAX_LEASE_S}; as after a failed POST if omitted (5 s, 30 s, ` +
        '5 minutes and more)',
    ),
    reason: optional(z.string().max(1000)).describe('the reason; the first 512 characters are kept'),
    status: optional(z.int().min(100).max(599)).describe(
      'HTTP status of your own receiver. After 413, attachments become links, as for a POST (`attachments: auto`)',
    ),
  },
  returns: ended,
  notHereError: 'Unknown_Lease',
  example: { lease: LEASE, delay: 30, reason: 'no room' },
  handle({ delay, reason = '', status, ...given }, call) {
    const ms = delay === undefined ? undefined : delay * 1000;
    return endAll(given, call, { kind: 'refused', status: status ?? null, reason, delay: ms });
  },
  across: { join: endOnAll },
});

async function checkRoute(id: string, { store, refuse }: Call<'Unknown_InboundRoute'>): Promise<void> {
  if (!(await store.inboundRoutes.one({ id }))) throw refuse('Unknown_InboundRoute', id);
}

const tap = textOperation({
  path: '/inbound/tap',
  access: 'content',
  extension: true,
  waits: true,
  summary: 'Watches a live route: returns a copy of each new message as it is posted, without consuming it.',
  notes:
    'Make the first call without `cursor`; pass the `cursor` of each result in the next call to get newer messages. ' +
    'The payloads are rendered again with fresh signatures; the real deliveries are not affected. A route is watched ' +
    'until two minutes after the last call, and up to 1,000 messages are kept; if there were more, `gap` is true. An ' +
    'account may watch 10 routes. With several hosts, the host that is called asks the others, every ' +
    `${ROUND_S} seconds while it waits; a result has the mail of one host. The header Postern-Hosts-Missing ` +
    'names hosts that did not respond.',
  params: {
    id: text(255).describe('id of the route'),
    cursor: optional(z.union([z.int().min(0), hostCursor('cursor')])).describe(
      '`cursor` of the previous result; starts now if omitted',
    ),
    limit,
    wait,
  },
  returns: record('tapped messages', {
    cursor: z.union([z.int(), z.string()]).describe('cursor for the next call: a number, or a text with several hosts'),
    gap: bool('true if messages were skipped'),
    messages: z.array(shown.meta({ title: 'message of a route' })),
  }),
  errors: ['Unknown_InboundRoute'],
  example: { id: '1.1' },
  across: {
    async join(hosts, { id, cursor, wait = 0 }, call) {
      await checkRoute(id, call);
      return tapAll(hosts, { cursor, waitS: wait }, call);
    },
  },
  async text({ id, cursor, limit = 10, wait = 0 }, call) {
    await checkRoute(id, call);
    return call.pulling.tap(id, { cursor: localCursor(cursor, call, 'cursor'), limit, waitMs: wait * 1000 }, toShown);
  },
});

export const inboundPull = [pull, ack, nack, tap];
