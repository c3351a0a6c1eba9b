import { z } from 'zod';
import { optionalTime, text } from '../../base/schema.ts';
import type { AttemptFigures, EndpointHistory } from '../../queue/history.ts';
import type { Making } from '../../queue/insight.ts';
import { HOLDERS, LONGEST_HOLD } from '../../queue/schedule/breaker.ts';
import { pagesByKey, pagesByTime } from '../../store/pages.ts';
import type { InboundRouteRow } from '../../store/rows/domains.ts';
import type { WebhookRow } from '../../store/rows/webhooks.ts';
import type { KnownEndpoint } from '../account-queue.ts';
import { type Call, listing, operation } from '../operation.ts';
import { MAX_URL, str, time, timeOrNull, toTime, toTimeOrNull } from './fields.ts';

// The endpoints of an account: the URLs of its routes and webhooks.

/** The most ids of routes, and of webhooks, in a record. */
const MAX_IDS = 100;

const endpointRecord = z
  .object({
    url: str('the URL, exactly as in its routes and webhooks'),
    kind: z.enum(['inbound', 'events']).meta({
      description: 'inbound: receives mail, and events if a webhook has the same URL; events: receives only events',
    }),
    routes: z.array(z.string()).meta({ description: `ids of the routes with this URL, at most ${MAX_IDS}` }),
    webhooks: z.array(z.int()).meta({ description: `ids of the webhooks with this URL, at most ${MAX_IDS}` }),
    breaker: z.enum(['up', 'down', 'gone']).meta({
      description:
        'down: too many POSTs failed, so only one delivery at a time is posted, as a probe; gone: it answered ' +
        '410, and is probed once a day',
    }),
    since: timeOrNull('when it went down', 'null while it is up'),
    next_probe_at: timeOrNull('when the next probe may be sent', 'null while it is up or paused'),
    paused: z.boolean().meta({ description: 'true if its deliveries are paused' }),
    paused_by: z.enum(HOLDERS).nullable().meta({
      description: 'account: by /endpoints/pause; operator: by the operator of the service; null if it is not paused',
    }),
    paused_until: timeOrNull('when the pause ends', 'null if it is not paused'),
    waiting: z.int().meta({ description: 'number of unfinished deliveries, including those in flight' }),
    oldest_at: timeOrNull('when the oldest of them was accepted', 'null if none waits'),
    in_flight: z.int().meta({ description: 'POSTs in flight' }),
    last_status: z.int().nullable().meta({ description: 'HTTP status of the last POST; null without an answer' }),
    last_error: z.string().nullable().meta({ description: 'why the last POST got no answer' }),
    last_at: timeOrNull('when the last POST ended', 'null if there was none since this host started'),
  })
  .meta({ title: 'endpoint record' });

const figures = z
  .object({
    attempts: z.int().meta({ description: 'POSTs; one shared by several deliveries counts once' }),
    ok: z.int().meta({ description: 'answered with 2xx' }),
    failed: z.int().meta({ description: 'all others' }),
    p50_ms: z.int().nullable().meta({ description: 'median duration; null without POSTs' }),
    p95_ms: z.int().nullable().meta({ description: '95th percentile of the duration; null without POSTs' }),
  })
  .meta({ title: 'attempt figures' });

const endpointDetail = endpointRecord
  .extend({
    hour: figures.meta({ description: 'the last hour' }),
    day: figures.meta({ description: 'the last 24 hours' }),
    strip: z
      .array(
        z.object({
          at: time('when the POST started'),
          status: z.int().nullable().meta({ description: 'HTTP status; null without an answer' }),
          ms: z.int().meta({ description: 'how long it took' }),
          error: z.string().nullable().meta({ description: 'why there was no answer' }),
        }),
      )
      .meta({ description: 'the last 100 POSTs, oldest first' }),
    answers: z
      .array(
        z.object({
          status: z.int().nullable().meta({ description: 'HTTP status; null without an answer' }),
          error: z.string().nullable().meta({ description: 'why there was no answer' }),
          text: str('the start of the answer, at most 120 characters; words with digits are replaced by #'),
          count: z.int().meta({ description: 'number of POSTs with this answer' }),
          last_at: time('when the last of them began'),
          example_id: str('id of a delivery with this answer'),
        }),
      )
      .meta({ description: 'answers grouped by similarity, at most 50 groups: failures first, then by frequency' }),
    most_in_flight: z.int().nullable().meta({
      description: 'maximum number of concurrent POSTs from this host; null if nothing was posted recently',
    }),
    sampled: z.boolean().meta({
      description: 'true if the figures include only the POSTs of the newest deliveries',
    }),
    making: z
      .array(
        z.object({
          id: str('id of the delivery'),
          since: time('when its preparation started'),
          waits_for: z.enum(['preparing', 'verdicts', 'parsing', 'place']).meta({
            description:
              'verdicts: waits for SPF, DKIM, DMARC and ARC, and so for the DNS; parsing: the message is being ' +
              'parsed; place: waits until fewer POSTs are in flight to the endpoint; preparing: everything else',
          }),
          question: z.string().nullable().meta({
            description: 'the pending DNS query, such as `TXT example.org`; null if none is known',
          }),
        }),
      )
      .meta({ description: 'deliveries that are being prepared, oldest first, at most 100' }),
  })
  .meta({ title: 'endpoint detail' });

type EndpointRecord = z.input<typeof endpointRecord>;

/** The routes and webhooks of a URL. */
interface Names {
  readonly routes: string[];
  readonly webhooks: number[];
}

const NOBODY: Names = { routes: [], webhooks: [] };

function toRecord(
  url: string,
  { routes, webhooks }: Names,
  known: KnownEndpoint | undefined,
  oldestAt: number | undefined,
): EndpointRecord {
  const { lane, waiting = 0 } = known ?? {};
  const { hold = null, last = null } = lane ?? {};
  const named = routes.length > 0 ? 'inbound' : webhooks.length > 0 ? 'events' : known?.kind;
  return {
    url,
    kind: named === 'events' ? 'events' : 'inbound',
    routes,
    webhooks,
    breaker: lane?.breaker ?? 'up',
    since: toTimeOrNull(lane?.since),
    next_probe_at: toTimeOrNull(lane?.nextProbeAt),
    paused: hold !== null,
    paused_by: hold?.by ?? null,
    paused_until: toTimeOrNull(hold?.until),
    waiting,
    oldest_at: waiting > 0 ? toTimeOrNull(oldestAt) : null,
    in_flight: lane?.inFlight ?? 0,
    last_status: last?.result.kind === 'answered' ? last.result.status : null,
    last_error: last?.result.kind === 'unanswered' ? last.result.error : null,
    last_at: toTimeOrNull(last?.at),
  };
}

/** Whether it is an endpoint even without a route or webhook. */
const standsAlone = ({ waiting, lane }: KnownEndpoint) => waiting > 0 || Boolean(lane?.hold);

/** Returns the routes and webhooks of each URL. */
async function namesOf({ store }: Call<never>): Promise<Map<string, Names>> {
  const names = new Map<string, Names>();
  const of = (url: string) => {
    const known = names.get(url) ?? { routes: [], webhooks: [] };
    names.set(url, known);
    return known;
  };
  const routes = pagesByTime(
    { time: new Date(0) },
    ({ createdAt, id }: InboundRouteRow) => ({ time: createdAt, id }),
    ({ time, ...rest }, order, limit) =>
      store.inboundRoutes.many({ createdAt: time, ...rest }, { sort: order === 'id' ? 'id' : 'createdAt', limit }),
  );
  for await (const page of routes)
    for (const { id, url, also = [] } of page)
      for (const one of new Set([url, ...also.map((further) => further.url)]))
        if (one !== '' && of(one).routes.length < MAX_IDS) of(one).routes.push(id);
  const webhooks = pagesByKey(
    0,
    ({ number }: WebhookRow) => number,
    (behind, limit) => store.webhooks.many({ number: { range: { gt: behind } } }, { sort: 'number', limit }),
  );
  for await (const page of webhooks)
    for (const { number, url } of page) if (of(url).webhooks.length < MAX_IDS) of(url).webhooks.push(number);
  return names;
}

/** Returns a function that makes the current record. Throws Unknown_Endpoint, also for another account's endpoint. */
async function findEndpoint(
  url: string,
  { store, inbound, endpoints, refuse }: Call<'Unknown_Endpoint'>,
): Promise<() => EndpointRecord> {
  const [routes, webhooks, oldest] = await Promise.all([
    store.inboundRoutes.many({ url }, { sort: 'createdAt', limit: MAX_IDS }),
    store.webhooks.many({ url }, { sort: 'number', limit: MAX_IDS }),
    endpoints.oldest([url]),
    inbound.refresh(),
  ]);
  const known = endpoints.one(url);
  // The table in memory also knows further URLs of routes.
  const ids = new Set([...routes.map(({ id }) => id), ...inbound.routesTo(url, MAX_IDS)]);
  if (ids.size + webhooks.length === 0 && !(known && standsAlone(known))) throw refuse('Unknown_Endpoint', url);
  const names = { routes: [...ids], webhooks: webhooks.map(({ number }) => number) };
  return () => toRecord(url, names, endpoints.one(url), oldest.get(url));
}

const HOSTS = 'Each host delivers its own mail, so the answer is about this host only.';
const endpointUrl = text(MAX_URL).meta({ description: 'a URL as /endpoints/list shows it' });

/** Endpoints per page of the list. */
const PAGE = 500;

const list = listing({
  path: '/endpoints/list',
  access: 'numbers',
  extension: true,
  summary: 'Lists the endpoints of the account by URL, with their states and waiting deliveries.',
  notes:
    'An endpoint is the URL of routes or webhooks. After these are deleted, it is still listed while deliveries ' +
    `wait for it or it is paused. ${HOSTS}`,
  params: {},
  returns: z.array(endpointRecord),
  errors: [],
  example: {},
  async *pages(_, call) {
    const { endpoints, inTurn } = call;
    // One at a time: an account may have a hundred thousand routes.
    const names = await inTurn('endpoints', () => namesOf(call));
    const known = endpoints.all();
    const oldest = await endpoints.oldest([...known].flatMap(([url, { waiting }]) => (waiting > 0 ? [url] : [])));
    for (const [url, one] of known) if (!names.has(url) && standsAlone(one)) names.set(url, NOBODY);
    const urls = [...names.keys()].sort();
    for (let at = 0; at < urls.length; at += PAGE)
      yield urls
        .slice(at, at + PAGE)
        .map((url) => toRecord(url, names.get(url) ?? NOBODY, known.get(url), oldest.get(url)));
  },
});

const MAX_MAKING = 100;

function toFigures({ attempts, ok, p50, p95 }: AttemptFigures): z.input<typeof figures> {
  const rounded = (ms: number | null) => (ms === null ? null : Math.round(ms));
  return { attempts, ok, failed: attempts - ok, p50_ms: rounded(p50), p95_ms: rounded(p95) };
}

function toDetail(
  record: EndpointRecord,
  lane: KnownEndpoint['lane'],
  history: EndpointHistory,
  making: readonly Making[],
) {
  return {
    ...record,
    hour: toFigures(history.hour),
    day: toFigures(history.day),
    strip: history.strip.map(({ at, status, ms, error }) => ({ at: toTime(at), status, ms: Math.round(ms), error })),
    answers: history.answers.map(({ status, error, text, count, lastAt, example }) => ({
      status,
      error,
      text,
      count,
      last_at: toTime(lastAt),
      example_id: example,
    })),
    most_in_flight: lane?.mostPlaces ?? null,
    sampled: history.sampled,
    making: making.slice(0, MAX_MAKING).map(({ id, since, waitsFor, question }) => ({
      id,
      since: toTime(since),
      waits_for: waitsFor,
      question,
    })),
  };
}

const info = operation({
  path: '/endpoints/info',
  access: 'numbers',
  ofMail: ['answers', 'making'], // an answer may quote the mail
  extension: true,
  summary: 'Shows an endpoint: figures for the last hour and day, the last 100 POSTs, and its answers by cause.',
  notes:
    'Covers the POSTs of deliveries that are still kept (delivery.keep_delivered_hours, delivery.keep_dead_days), ' +
    `at most the newest 10,000. ${HOSTS}`,
  params: { url: endpointUrl },
  returns: endpointDetail,
  errors: ['Unknown_Endpoint'],
  example: { url: 'https://app.example.com/hooks/mail' },
  async handle({ url }, call) {
    const show = await findEndpoint(url, call);
    // One at a time: it may keep the queue's reader busy for a tenth of a second.
    const history = await call.inTurn('endpoints', () => call.endpoints.history(url));
    return toDetail(show(), call.endpoints.one(url)?.lane, history, await call.endpoints.making(url));
  },
});

/** A paused endpoint stays in memory, so their number is limited. */
export const MAX_PAUSED = 1000;

/** Throws Endpoint_Held if the operator has paused it. */
function mustBeOurs({ paused_by: by, paused_until: until }: EndpointRecord, call: Call<'Endpoint_Held'>): void {
  if (by === 'operator') throw call.refuse('Endpoint_Held', `${until} UTC`);
}

const pause = operation({
  path: '/endpoints/pause',
  access: 'settings',
  extension: true,
  summary: 'Pauses an endpoint: nothing is posted to it until the pause ends.',
  notes:
    'Mail for it is still accepted, and waits. The pause does not extend delivery.retry_hours: a delivery that ' +
    'has waited that long becomes a dead letter, which can be replayed. POSTs in flight are completed. A second ' +
    'call changes the end of the pause. The pause survives a restart. It belongs to the URL: a route that moves ' +
    `to another URL is not paused there. An account can pause at most ${MAX_PAUSED.toLocaleString('en')} ` +
    'endpoints. Each host has its own pauses: call this on each of them. If the operator of the service has ' +
    'paused the endpoint, the answer is Endpoint_Held.',
  params: {
    url: endpointUrl,
    until: optionalTime.meta({
      description: 'when the pause ends, UTC, YYYY-MM-DD HH:MM:SS; at most 7 days from now, which is the default',
    }),
  },
  returns: endpointRecord,
  errors: ['Unknown_Endpoint', 'Endpoint_Held'],
  example: { url: 'https://app.example.com/hooks/mail', until: '2026-01-05 14:00:00' },
  async handle({ url, until }, call) {
    const now = call.now().getTime();
    const end = until?.getTime() ?? now + LONGEST_HOLD;
    if (end <= now || end > now + LONGEST_HOLD) throw call.invalid('until', 'Please enter a time in the next 7 days');
    const show = await findEndpoint(url, call);
    mustBeOurs(show(), call);
    const paused = [...call.endpoints.all().values()].filter(({ lane }) => lane?.hold).length;
    if (paused >= MAX_PAUSED && !show().paused)
      throw call.invalid('url', `At most ${MAX_PAUSED} endpoints can be paused at a time`);
    await call.endpoints.pause(url, show().kind, end);
    return show();
  },
});

const resume = operation({
  path: '/endpoints/resume',
  access: 'settings',
  extension: true,
  summary: 'Ends the pause of an endpoint: deliveries are posted when they are due.',
  notes:
    'Does nothing if it is not paused. A pause by the operator of the service is not ended: the answer is ' +
    `Endpoint_Held. ${HOSTS}`,
  params: { url: endpointUrl },
  returns: endpointRecord,
  errors: ['Unknown_Endpoint', 'Endpoint_Held'],
  example: { url: 'https://app.example.com/hooks/mail' },
  async handle({ url }, call) {
    const show = await findEndpoint(url, call);
    mustBeOurs(show(), call);
    await call.endpoints.resume(url);
    return show();
  },
});

const retry = operation({
  path: '/endpoints/retry',
  access: 'settings',
  extension: true,
  summary: 'Retries an endpoint now: all deliveries waiting for it become due.',
  notes:
    'If it is down, one delivery is posted as a probe; after a 2xx answer, the others follow. Does not end a ' +
    `pause. ${HOSTS}`,
  params: { url: endpointUrl },
  returns: z.object({
    waiting: z.int().meta({ description: 'number of deliveries waiting for it' }),
    retried: z.int().meta({ description: 'number of these that were not due yet' }),
  }),
  errors: ['Unknown_Endpoint'],
  example: { url: 'https://app.example.com/hooks/mail' },
  async handle({ url }, call) {
    const { waiting } = (await findEndpoint(url, call))();
    const retried = await call.inTurn('endpoints', () => call.endpoints.retry(url));
    return { waiting, retried };
  },
});

/** The endpoints of routes and webhooks; not part of Mandrill's API. */
export const endpoints = [list, info, pause, resume, retry];
