import { z } from 'zod';
import { type AttemptFigures, type EndpointHistory, MAX_ANSWERS, MAX_RECENT } from '../../queue/history.ts';
import type { PreparingDelivery } from '../../queue/insight.ts';
import { HOLDERS } from '../../queue/schedule/breaker.ts';
import type { KnownEndpoint } from '../account/account-queue.ts';
import { bool, int, intOrNull, listOf, record, str, strOrNull, time, timeOrNull, toTime } from './fields.ts';

// Records of endpoints: of one host, and merged from several that share a store.

/** Maximum ids of routes, and of webhooks, in a record. */
export const MAX_IDS = 100;

export const endpointRecord = record('endpoint record', {
  url: str('the URL, exactly as in its routes and webhooks'),
  kind: z
    .enum(['inbound', 'events'])
    .describe('inbound: receives mail, and events if a webhook has the same URL; events: receives only events'),
  routes: listOf(z.string(), `ids of the routes with this URL, at most ${MAX_IDS}`),
  webhooks: listOf(z.int(), `ids of the webhooks with this URL, at most ${MAX_IDS}`),
  breaker: z
    .enum(['up', 'down', 'gone'])
    .describe(
      'down: too many POSTs failed, so only one delivery at a time is posted, as a probe; gone: it responded with ' +
        '410, and is probed once a day',
    ),
  since: timeOrNull('when it went down', 'null while it is up'),
  next_probe_at: timeOrNull('when the next probe may be sent', 'null while it is up or paused'),
  paused: bool('true if its deliveries are paused'),
  paused_by: z
    .enum(HOLDERS)
    .nullable()
    .describe('account: by /endpoints/pause; operator: by the operator of the service; null if it is not paused'),
  paused_until: timeOrNull('when the pause ends', 'null if it is not paused'),
  waiting: int('number of unfinished deliveries, including those in flight'),
  oldest_at: timeOrNull('when the oldest of them was accepted', 'null if none waits'),
  in_flight: int('POSTs in flight'),
  last_status: intOrNull('HTTP status of the last POST; null without a response'),
  last_error: strOrNull('why the last POST got no response, or null'),
  last_at: timeOrNull('when the last POST ended', 'null if there was none since this host started'),
});

const figures = record('attempt figures', {
  attempts: int('POSTs; one shared by several deliveries counts once'),
  ok: int('POSTs with a 2xx response'),
  failed: int('all other POSTs'),
  p50_ms: intOrNull('median duration; null without POSTs'),
  p95_ms: intOrNull('95th percentile of the duration; null without POSTs'),
});

export const endpointDetail = endpointRecord
  .extend({
    hour: figures.describe('the last hour'),
    day: figures.describe('the last 24 hours'),
    recent: listOf(
      z.object({
        at: time('when the POST started'),
        status: intOrNull('HTTP status; null without an answer'),
        ms: int('how long it took'),
        error: strOrNull('why there was no answer'),
      }),
      'the last 100 POSTs, oldest first',
    ),
    answers: listOf(
      z.object({
        status: intOrNull('HTTP status; null without an answer'),
        error: strOrNull('why there was no answer'),
        text: str('the start of the response body, at most 120 characters; words with digits are replaced by #'),
        count: int('number of POSTs with this response'),
        last_at: time('when the last of them began'),
        example_id: str('id of a delivery with this response'),
      }),
      'responses grouped by similarity, at most 50 groups: failures first, then by frequency',
    ),
    most_in_flight: intOrNull('maximum number of concurrent POSTs from this host; null if nothing was posted recently'),
    sampled: bool('true if the figures include only the POSTs of the newest deliveries'),
    preparing: listOf(
      z.object({
        id: str('id of the delivery'),
        since: time('when its preparation started'),
        waits_for: z
          .enum(['preparing', 'verdicts', 'parsing', 'connection'])
          .describe(
            'verdicts: waits for SPF, DKIM, DMARC and ARC, and so for the DNS; parsing: the message is being ' +
              'parsed; connection: waits until fewer POSTs are in flight to the endpoint; preparing: everything else',
          ),
        question: strOrNull('the pending DNS query, such as `TXT example.org`; null if none is known'),
      }),
      'deliveries that are being prepared, oldest first, at most 100',
    ),
  })
  .meta({ title: 'endpoint detail' });

export type EndpointRecord = z.input<typeof endpointRecord>;

/** The routes and webhooks of a URL. */
export interface Names {
  readonly routes: string[];
  readonly webhooks: number[];
}

export const NO_RECORDS: Names = { routes: [], webhooks: [] };

export function toRecord(
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
    since: toTime(lane?.since),
    next_probe_at: toTime(lane?.nextProbeAt),
    paused: hold !== null,
    paused_by: hold?.by ?? null,
    paused_until: toTime(hold?.until),
    waiting,
    oldest_at: waiting > 0 ? toTime(oldestAt) : null,
    in_flight: lane?.inFlight ?? 0,
    last_status: last?.result.kind === 'answered' ? last.result.status : null,
    last_error: last?.result.kind === 'unanswered' ? last.result.error : null,
    last_at: toTime(last?.at),
  };
}

const MAX_PREPARING = 100;

function toFigures({ attempts, ok, p50, p95 }: AttemptFigures): z.input<typeof figures> {
  const rounded = (ms: number | null) => (ms === null ? null : Math.round(ms));
  return { attempts, ok, failed: attempts - ok, p50_ms: rounded(p50), p95_ms: rounded(p95) };
}

export function toDetail(
  record: EndpointRecord,
  lane: KnownEndpoint['lane'],
  history: EndpointHistory,
  preparing: readonly PreparingDelivery[],
) {
  return {
    ...record,
    hour: toFigures(history.hour),
    day: toFigures(history.day),
    recent: history.recent.map(({ at, status, ms, error }) => ({ at: toTime(at), status, ms: Math.round(ms), error })),
    answers: history.answers.map(({ status, error, text, count, lastAt, example }) => ({
      status,
      error,
      text,
      count,
      last_at: toTime(lastAt),
      example_id: example,
    })),
    most_in_flight: lane?.maxConcurrency ?? null,
    sampled: history.sampled,
    preparing: preparing.slice(0, MAX_PREPARING).map(({ id, since, waitsFor, question }) => ({
      id,
      since: toTime(since),
      waits_for: waitsFor,
      question,
    })),
  };
}

const BREAKERS: readonly EndpointRecord['breaker'][] = ['gone', 'down', 'up'];

/** Merges the records of several hosts: the sums, the worst state, and the last POST. */
export function joinRecords(own: EndpointRecord, others: readonly EndpointRecord[]): EndpointRecord {
  if (others.length === 0) return own;
  const all = [own, ...others];
  const first = (times: readonly (string | null)[]) => times.filter((at) => at !== null).sort()[0] ?? null;
  const last = all.reduce((best, one) => ((one.last_at ?? '') > (best.last_at ?? '') ? one : best));
  const held = all.find(({ paused }) => paused) ?? own;
  return {
    ...own,
    breaker: BREAKERS.find((one) => all.some(({ breaker }) => breaker === one)) ?? own.breaker,
    since: first(all.map(({ since }) => since)),
    next_probe_at: first(all.map((one) => one.next_probe_at)),
    paused: held.paused,
    paused_by: held.paused_by,
    paused_until: held.paused_until,
    waiting: all.reduce((sum, { waiting }) => sum + waiting, 0),
    oldest_at: first(all.map((one) => one.oldest_at)),
    in_flight: all.reduce((sum, one) => sum + one.in_flight, 0),
    last_status: last.last_status,
    last_error: last.last_error,
    last_at: last.last_at,
  };
}

type Detail = z.output<typeof endpointDetail>;

/** Merges the details of several hosts. Medians and percentiles become the highest. */
export function joinDetails(own: Detail, others: readonly Detail[]): Detail {
  if (others.length === 0) return own;
  const all = [own, ...others];
  const most = all.flatMap((one) => one.most_in_flight ?? []);
  return {
    ...own,
    ...joinRecords(own, others),
    hour: joinFigures(all.map(({ hour }) => hour)),
    day: joinFigures(all.map(({ day }) => day)),
    recent: all
      .flatMap(({ recent }) => recent)
      .sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : 0))
      .slice(-MAX_RECENT),
    answers: joinAnswers(all.flatMap(({ answers }) => answers)),
    most_in_flight: most.length === 0 ? null : most.reduce((sum, one) => sum + one, 0),
    sampled: all.some(({ sampled }) => sampled),
    preparing: all.flatMap(({ preparing }) => preparing).slice(0, MAX_PREPARING),
  };
}

function joinFigures(all: readonly Detail['hour'][]): Detail['hour'] {
  const sum = (name: 'attempts' | 'ok' | 'failed') => all.reduce((before, one) => before + one[name], 0);
  const highest = (name: 'p50_ms' | 'p95_ms') => {
    const known = all.flatMap((one) => one[name] ?? []);
    return known.length === 0 ? null : Math.max(...known);
  };
  return {
    attempts: sum('attempts'),
    ok: sum('ok'),
    failed: sum('failed'),
    p50_ms: highest('p50_ms'),
    p95_ms: highest('p95_ms'),
  };
}

function joinAnswers(all: Detail['answers']): Detail['answers'] {
  const isOk = ({ status }: Detail['answers'][number]) => status !== null && status >= 200 && status < 300;
  const joined = new Map<string, Detail['answers'][number]>();
  for (const one of all) {
    const key = JSON.stringify([one.status, one.error, one.text]);
    const known = joined.get(key);
    const latest = known && known.last_at > one.last_at ? known : one;
    joined.set(key, { ...latest, count: one.count + (known?.count ?? 0) });
  }
  return [...joined.values()]
    .sort((a, b) => Number(isOk(a)) - Number(isOk(b)) || b.count - a.count)
    .slice(0, MAX_ANSWERS);
}
