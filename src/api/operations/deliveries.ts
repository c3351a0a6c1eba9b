import { z } from 'zod';
import { mapConcurrently } from '../../base/concurrency.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import type { Scan } from '../../mail/scan.ts';
import { type AttemptRecord, nextAttemptAt, type QueuedDelivery, routeOfTarget } from '../../queue/delivery.ts';
import { DETAIL_BYTES, type Header, readDetail } from '../../queue/detail.ts';
import { DELIVERY_STATES, keptAs, STATE_MEANINGS } from '../../queue/states.ts';
import { askAll, withoutDuplicates } from '../hosts/join-hosts.ts';
import { operation } from '../operation.ts';
import {
  ALL_HOSTS,
  bool,
  int,
  intOrNull,
  knownDomain,
  limitOf,
  listOf,
  record,
  str,
  strOrNull,
  time,
  timeOrNull,
  toTime,
} from './fields.ts';

const millisecondsOrNull = (description: string) => z.number().nullable().describe(description);
const headerFields = (description: string) =>
  z.array(z.object({ name: z.string(), value: z.string() })).describe(description);

const attemptDetail = record('attempt detail', {
  address: strOrNull(
    'IP address and port of the server; if no connection was made, all addresses tried, separated by commas',
  ),
  tls: strOrNull('TLS version; null without TLS'),
  reused: bool('true if the connection of an earlier POST was reused'),
  dns_ms: millisecondsOrNull('milliseconds of the DNS lookup'),
  connect_ms: millisecondsOrNull('milliseconds of connecting; null if the connection was reused or none was made'),
  tls_ms: millisecondsOrNull('milliseconds of the TLS handshake'),
  first_byte_ms: millisecondsOrNull('milliseconds from the request to the first byte of the response'),
  request_headers: headerFields(
    'headers of the POST as sent, with signatures cut to 8 characters; empty if nothing was sent, or if the ' +
      'first attempt succeeded',
  ),
  response_headers: headerFields('headers of the response, without values of cookies; empty if request_headers is'),
  headers_left_out: int(`number of headers left out to stay below ${DETAIL_BYTES} bytes`),
});

export const attemptRecord = record('attempt record', {
  time: time('when the POST started'),
  duration_ms: z.number().describe('how long it took'),
  status: intOrNull('HTTP status; null without a response'),
  error: strOrNull('why there was no response; null if there was one'),
  answer: str('the start of the response body'),
  batch: strOrNull('webhook-id of the POST if several deliveries shared it; else null'),
  detail: attemptDetail
    .nullable()
    .describe('connection and headers of the POST, kept for the last eight attempts; else null'),
});

const scanRecord = record('scan record', {
  spam: z.enum(['ham', 'spam', 'unknown']),
  virus: z.enum(['clean', 'infected', 'unknown']),
  name: strOrNull('name of the virus'),
  score: z.number().nullable().describe('spam score; null if no scanner gave one'),
  by: listOf(z.string(), 'the scanners that checked it'),
  reason: strOrNull('why a scanner did not check it; null if all did'),
});

export const deliveryRecord = record('delivery record', {
  id: str(
    'unique identifier, the same for all attempts and replays; sent as `_id` of an inbound event, and as the ' +
      'header webhook-id of a POST of its own',
  ),
  message_id: str('the message; several recipients share one'),
  route: str('id of the route'),
  pattern: str('pattern of the route when the message arrived'),
  url: str('the URL that it is posted to'),
  email: str('the recipient'),
  state: z.enum(DELIVERY_STATES).describe(STATE_MEANINGS),
  created_at: time('when the message was accepted'),
  next_attempt_at: timeOrNull('time of the next POST; null unless it is waiting'),
  ended_at: timeOrNull('when it became delivered, dead, dropped or held'),
  last_status: intOrNull('HTTP status of the last attempt'),
  last_error: strOrNull('why the last attempt got no response, or null'),
  attempts: listOf(attemptRecord, 'every POST, oldest first'),
  hint: strOrNull('suggested fix for the responses so far, or null'),
  scan: scanRecord.nullable().describe('result of the scanners; null if the message was not scanned'),
});

export function toDeliveryRecord(delivery: QueuedDelivery, attempts: readonly AttemptRecord[], scan: Scan | undefined) {
  const nextAt = nextAttemptAt(delivery);
  return {
    id: delivery.id,
    message_id: delivery.messageId,
    route: routeOfTarget(delivery.routeId),
    pattern: delivery.pattern,
    url: delivery.url,
    email: delivery.recipient,
    state: delivery.state,
    created_at: toTime(delivery.createdAt),
    next_attempt_at: toTime(nextAt),
    ended_at: toTime(delivery.endedAt),
    last_status: delivery.lastStatus,
    last_error: delivery.lastError,
    attempts: attempts.toSorted((a, b) => a.at - b.at).map(toAttemptRecord),
    hint: attempts.some(({ status }) => status === 413) ? TOO_LARGE : null,
    scan: scan ? toScanRecord(scan) : null,
  };
}

const TOO_LARGE =
  'The receiver responds with 413: the post is too large for it. Raise its limit, or let the route post attachments ' +
  'as links (attachments: auto or link).';

const toScanRecord = ({ spam, virus, name, score, by, reason }: Scan): z.input<typeof scanRecord> => ({
  spam,
  virus,
  name,
  score,
  by: [...by],
  reason,
});

export function toAttemptRecord(attempt: AttemptRecord) {
  return {
    time: toTime(attempt.at),
    duration_ms: attempt.durationMs,
    status: attempt.status,
    error: attempt.error,
    answer: attempt.answer,
    batch: attempt.batch ?? null,
    detail: toDetailRecord(attempt),
  };
}

function toDetailRecord(attempt: AttemptRecord): z.input<typeof attemptDetail> | null {
  const detail = readDetail(attempt.detail);
  if (!detail || 'hops' in detail) return null;
  const { address = null, tls = null, reused = false, ms, request = [], response = [], leftOut = 0 } = detail;
  return {
    address,
    tls,
    reused,
    dns_ms: ms.dns ?? null,
    connect_ms: ms.connect ?? null,
    tls_ms: ms.tls ?? null,
    first_byte_ms: ms.firstByte ?? null,
    request_headers: request.map(toField),
    response_headers: response.map(toField),
    headers_left_out: leftOut,
  };
}

const toField = ([name, value]: Header) => ({ name, value });

export const MAX_LISTED = 1000;
/** Concurrent queries for a list: an account that lists deliveries must not delay the acceptance of mail. */
export const AT_A_TIME = 20;

export const deliveryIdField = text(255);
export const routeId = optional(text(255)).describe('id of a route, which may have been deleted since');
export const from = optionalTime.describe('accepted at this time or later, UTC, YYYY-MM-DD HH:MM:SS');
export const to = optionalTime.describe('accepted before this time, UTC, YYYY-MM-DD HH:MM:SS');

/** The newest records of several lists; times in the form of the API are ordered as texts. */
export const newest = <R extends { readonly created_at: string }>(
  lists: readonly (readonly R[])[],
  limit: number,
): R[] =>
  lists
    .flat()
    .sort((a, b) => (a.created_at < b.created_at ? 1 : a.created_at > b.created_at ? -1 : 0))
    .slice(0, limit);

const list = operation({
  path: '/inbound/deliveries',
  access: 'mail',
  extension: true,
  summary: 'Lists deliveries of inbound mail with every attempt, newest first.',
  notes:
    `Mail that is ${inWords(keptAs('delivered'))} is listed for delivery.keep_delivered_hours, mail that is ` +
    `${inWords(keptAs('dead'))} for delivery.keep_dead_days. ${ALL_HOSTS}`,
  params: {
    id: optional(deliveryIdField).describe('one delivery'),
    route: routeId,
    domain: optional(knownDomain).describe('deliveries of the current routes of this domain'),
    state: optional(z.enum(DELIVERY_STATES)),
    from,
    to,
    limit: limitOf(MAX_LISTED, 100),
  },
  returns: z.array(deliveryRecord),
  errors: ['Unknown_InboundDomain'],
  example: { state: 'dead', limit: 10 },
  async handle({ id, route, domain, state, from, to, limit }, call) {
    const { store, inbound, queue, refuse } = call;
    let routeIds = route === undefined ? undefined : [route];
    if (domain) {
      if (!(await inbound.find(domain.id))) throw refuse('Unknown_InboundDomain', domain.domain);
      const now = (await store.inboundRoutes.many({ domain: domain.id })).map((row) => row.id);
      routeIds = route === undefined ? now : now.filter((one) => one === route);
    }
    // An empty list of routes means none, but the queue would take it for all.
    if (routeIds?.length === 0) return [];
    const found = await queue.deliveries(
      {
        ids: id === undefined ? undefined : [id],
        routeIds,
        states: state && [state],
        from: from?.getTime(),
        to: to?.getTime(),
      },
      limit,
    );
    return mapConcurrently(
      found,
      async (one) => toDeliveryRecord(one, await queue.attempts(one), await queue.scanOf(one)),
      AT_A_TIME,
    );
  },
  across: {
    join: async (hosts, { limit }) => newest([withoutDuplicates((await askAll(hosts)).flat())], limit),
  },
});

export const deliveries = [list];
