import { z } from 'zod';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { LONGEST_HOLD } from '../../queue/schedule/breaker.ts';
import { pagesByField, pagesByTime } from '../../store/pages.ts';
import type { KnownEndpoint } from '../account/account-queue.ts';
import { askAll } from '../hosts/join-hosts.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import type { Pages } from '../streamed-lists.ts';
import {
  type EndpointRecord,
  endpointDetail,
  endpointRecord,
  joinDetails,
  joinRecords,
  MAX_IDS,
  type Names,
  NO_RECORDS,
  toDetail,
  toRecord,
} from './endpoint-records.ts';
import { ALL_HOSTS, int, MAX_URL, toTime } from './fields.ts';

// The endpoints of an account: the URLs of its routes and webhooks.

/** Endpoints per page of the list. */
const PAGE = 500;

/** Whether an endpoint is listed even without a route or webhook. */
const standsAlone = ({ waiting, lane }: KnownEndpoint) => waiting > 0 || Boolean(lane?.hold);

async function namesOf({ store }: Call<never>): Promise<Map<string, Names>> {
  const names = new Map<string, Names>();
  const of = (url: string) => {
    const known = names.get(url) ?? { routes: [], webhooks: [] };
    names.set(url, known);
    return known;
  };
  const routes = pagesByTime(store.inboundRoutes, 'createdAt', { after: new Date(0) });
  for await (const page of routes)
    for (const { id, url, also = [] } of page)
      for (const one of new Set([url, ...also.map((further) => further.url)]))
        if (one !== '' && of(one).routes.length < MAX_IDS) of(one).routes.push(id);
  for await (const page of pagesByField(store.webhooks, 'number', 0))
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

const FROM_ONE = 'The figures in the result are those of one host.';
const endpointUrl = text(MAX_URL).describe('a URL as /endpoints/list shows it');

/** The routes and webhooks of some URLs, from memory and by URL. */
async function namesOfSome(urls: readonly string[], { store, inbound }: Call<never>): Promise<Map<string, Names>> {
  await inbound.refresh();
  const names = new Map(
    urls.map((url): [string, Names] => [url, { routes: [...inbound.routesTo(url, MAX_IDS)], webhooks: [] }]),
  );
  for (let at = 0; at < urls.length; at += PAGE)
    for (const { number, url } of await store.webhooks.many(
      { url: { in: urls.slice(at, at + PAGE) } },
      { sort: 'number' },
    ))
      names.get(url)?.webhooks.push(number);
  return names;
}

async function* pagesOf({ active = false }: { readonly active?: boolean | undefined }, call: Call<never>) {
  const { endpoints, inTurn } = call;
  // One at a time: an account may have a hundred thousand routes.
  const names = active
    ? await namesOfSome([...endpoints.all().keys()], call)
    : await inTurn('endpoints', () => namesOf(call));
  const known = endpoints.all();
  const oldest = await endpoints.oldest([...known].flatMap(([url, { waiting }]) => (waiting > 0 ? [url] : [])));
  for (const [url, one] of known) if (!names.has(url) && standsAlone(one)) names.set(url, NO_RECORDS);
  const urls = [...names.keys()].sort();
  for (let at = 0; at < urls.length; at += PAGE)
    yield urls
      .slice(at, at + PAGE)
      .map((url) => toRecord(url, names.get(url) ?? NO_RECORDS, known.get(url), oldest.get(url)));
}

/** The list of this host with the numbers of the others, in the order of the URLs. */
async function* withOthers(own: Pages<EndpointRecord>, others: readonly EndpointRecord[]) {
  const more = Map.groupBy(others, ({ url }) => url);
  for await (const page of own)
    yield page.map((record) => {
      const also = more.get(record.url) ?? [];
      more.delete(record.url);
      return joinRecords(record, also);
    });
  const rest = [...more.values()].flatMap(([first, ...also]) =>
    first && isWorthListing(first) ? [joinRecords(first, also)] : [],
  );
  if (rest.length > 0) yield rest;
}

/** As `standsAlone`, for a record of another host. */
const isWorthListing = ({ waiting, paused }: EndpointRecord) => waiting > 0 || paused;

const list = listOperation({
  path: '/endpoints/list',
  access: 'numbers',
  extension: true,
  summary: 'Lists the endpoints of the account by URL, with their states and waiting deliveries.',
  notes:
    'An endpoint is the URL of routes or webhooks. After these are deleted, it is still listed while deliveries ' +
    `wait for it or it is paused. ${ALL_HOSTS}`,
  params: {
    active: optional(z.boolean()).describe(
      'true: only those with waiting deliveries, with POSTs in the last minutes, or paused or down',
    ),
  },
  returns: z.array(endpointRecord),
  pages: pagesOf,
  across: {
    async join({ others }, params, call) {
      const found = await Promise.all(others.map((host) => host.ask({ active: true })));
      return withOthers(
        pagesOf(params, call),
        found.flatMap((list) => list ?? []),
      );
    },
  },
});

/** Operations on one endpoint have these in common. */
const ofEndpoint = {
  params: { url: endpointUrl },
  notHereError: 'Unknown_Endpoint',
  example: { url: 'https://app.example.com/hooks/mail' },
} as const;

const info = operation({
  path: '/endpoints/info',
  access: 'numbers',
  mailFields: ['answers', 'preparing'], // an answer may quote the mail
  extension: true,
  summary: 'Shows an endpoint: figures for the last hour and day, the last 100 POSTs, and its responses by cause.',
  notes:
    'Covers the POSTs of deliveries that are still kept (delivery.keep_delivered_hours, delivery.keep_dead_days), ' +
    `at most the newest 10,000. ${ALL_HOSTS}`,
  ...ofEndpoint,
  returns: endpointDetail,
  async handle({ url }, call) {
    const show = await findEndpoint(url, call);
    // One at a time: it may keep the queue's reader busy for a tenth of a second.
    const history = await call.inTurn('endpoints', () => call.endpoints.history(url));
    return toDetail(show(), call.endpoints.one(url)?.lane, history, await call.endpoints.preparing(url));
  },
  across: {
    async join(hosts) {
      const [first, ...others] = await askAll(hosts);
      return first && joinDetails(first, others);
    },
  },
});

/** A paused endpoint stays in memory, so their number is limited. */
export const MAX_PAUSED = 1000;

/** Throws Endpoint_Held if the operator has paused it. */
function mustBeOurs({ paused_by: by, paused_until: until }: EndpointRecord, call: Call<'Endpoint_Held'>): void {
  if (by === 'operator') throw call.refuse('Endpoint_Held', `${until} UTC`);
}

/** The same for a pause in the store that this host has not seen yet. */
function mustNotBeHeld(until: Date | undefined, call: Call<'Endpoint_Held'>): void {
  if (until) throw call.refuse('Endpoint_Held', `${toTime(until.getTime())} UTC`);
}

const pause = operation({
  path: '/endpoints/pause',
  access: 'settings',
  extension: true,
  summary: 'Pauses an endpoint: nothing is posted to it until the pause ends.',
  notes:
    'Mail for it is still accepted, and waits. The pause does not extend delivery.retry_hours: a delivery that has ' +
    'waited that long becomes a dead letter, which can be replayed. POSTs in flight are completed. A second call ' +
    'changes the end of the pause. The pause survives a restart. It belongs to the URL: a route that moves ' +
    `to another URL is not paused there. An account can pause at most ${MAX_PAUSED} ` +
    'endpoints. All hosts of the service pause it within two seconds. If the operator of the service has ' +
    `paused the endpoint, the error is Endpoint_Held. ${FROM_ONE}`,
  params: {
    url: endpointUrl,
    until: optionalTime.describe(
      'when the pause ends, UTC, YYYY-MM-DD HH:MM:SS; at most 7 days from now, which is the default',
    ),
  },
  returns: endpointRecord,
  errors: ['Endpoint_Held'],
  notHereError: 'Unknown_Endpoint',
  example: { url: 'https://app.example.com/hooks/mail', until: '2026-01-05 14:00:00' },
  async handle({ url, until }, call) {
    const now = call.now().getTime();
    const end = until?.getTime() ?? now + LONGEST_HOLD;
    if (end <= now || end > now + LONGEST_HOLD) throw call.invalid('until', 'Please enter a time in the next 7 days');
    const show = await findEndpoint(url, call);
    mustBeOurs(show(), call);
    if ((await call.endpoints.paused(MAX_PAUSED)) >= MAX_PAUSED && !show().paused)
      throw call.invalid('url', `At most ${MAX_PAUSED} endpoints can be paused at a time`);
    mustNotBeHeld(await call.endpoints.pause(url, show().kind, end), call);
    return show();
  },
});

const resume = operation({
  path: '/endpoints/resume',
  access: 'settings',
  extension: true,
  summary: 'Ends the pause of an endpoint: deliveries are posted when they are due.',
  notes:
    'Does nothing if it is not paused. All hosts of the service resume within two seconds. A pause by the operator ' +
    `of the service stays: the error is Endpoint_Held. ${FROM_ONE}`,
  ...ofEndpoint,
  returns: endpointRecord,
  errors: ['Endpoint_Held'],
  async handle({ url }, call) {
    const show = await findEndpoint(url, call);
    mustBeOurs(show(), call);
    mustNotBeHeld(await call.endpoints.resume(url), call);
    return show();
  },
});

const retry = operation({
  path: '/endpoints/retry',
  access: 'settings',
  extension: true,
  summary: 'Retries an endpoint now: all deliveries waiting for it become due.',
  notes:
    'If it is down, one delivery is posted as a probe; after a 2xx response, the others follow. Does not end a ' +
    `pause. ${ALL_HOSTS}`,
  ...ofEndpoint,
  returns: z.object({
    waiting: int('number of deliveries waiting for it'),
    retried: int('number of these that were not due yet'),
  }),
  async handle({ url }, call) {
    const { waiting } = (await findEndpoint(url, call))();
    return { waiting, retried: await call.inTurn('endpoints', () => call.endpoints.retry(url)) };
  },
  across: {
    async join(hosts) {
      const parts = await askAll(hosts);
      if (parts.length === 0) return undefined;
      return {
        waiting: parts.reduce((sum, { waiting }) => sum + waiting, 0),
        retried: parts.reduce((sum, one) => sum + one.retried, 0),
      };
    },
  },
});

export const endpoints = [list, info, pause, resume, retry];
