import { z } from 'zod';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import {
  type AttemptRecord,
  DELIVERY_KINDS,
  type DeliveryKind,
  type EndpointSummary,
  KINDS,
  nextAttemptAt,
  type QueuedDelivery,
  type Selection,
  type Spool,
} from '../../queue/delivery.ts';
import { BREAKER_WORDS } from '../../queue/insight.ts';
import { readMemory } from '../../queue/schedule/breaker.ts';
import { toTime } from '../operations/fields.ts';
import {
  type DeliveryContext,
  type DeliveryContextSettings,
  type DeliveryContextSpool,
  readDeliveryContext,
} from './delivery-context.ts';
import { selection } from './host-queue.ts';
import type { HostRpc } from './host-rpc.ts';

// The queue of a host over all accounts, for the command line, which asks its own host and the others. Content is not
// sent.

/** Deliveries that a host lists for another at once. */
export const MAX_DELIVERIES = 5000;

const textOrNull = z.string().nullable();
const intOrNull = z.int().nullable();

const deliveryRecord = z.object({
  id: z.string(),
  kind: z.string(),
  state: z.string(),
  from: textOrNull,
  recipient: textOrNull,
  subject: textOrNull,
  message_id: textOrNull,
  url: z.string(),
  route: textOrNull,
  webhook: textOrNull,
  events: intOrNull,
  account: z.string(),
  attempts: z.int(),
  parked: z.boolean(),
  accepted_at: z.string(),
  due_at: textOrNull,
  ended_at: textOrNull,
  last_status: intOrNull,
  last_error: textOrNull,
  waits: textOrNull,
});

const listedDelivery = z.object({
  record: deliveryRecord,
  /** When it was accepted, and its next attempt. Milliseconds since 1970. */
  at: z.number(),
  nextAt: z.number().nullable(),
  /** The kind of the reason in `waits`. */
  waitKind: textOrNull,
});
export type ListedDelivery = z.output<typeof listedDelivery>;

function toListed(delivery: QueuedDelivery, { summary, waits }: DeliveryContext): ListedDelivery {
  const { id, kind, state, recipient, url, routeId, attempts, lastStatus, lastError, account, batch } = delivery;
  const nextAt = nextAttemptAt(delivery);
  const record = {
    id,
    kind,
    state,
    from: summary.from,
    recipient: batch ? null : recipient,
    subject: summary.subject,
    message_id: summary.messageId,
    url,
    route: KINDS[kind].owner === 'route' ? routeId : null,
    webhook: batch?.webhook ?? null,
    events: batch?.events ?? null,
    account,
    attempts,
    parked: delivery.parked,
    accepted_at: toTime(delivery.createdAt),
    due_at: toTime(nextAt),
    ended_at: toTime(delivery.endedAt),
    last_status: lastStatus,
    last_error: lastError,
    waits: waits?.text ?? null,
  };
  return { record, at: delivery.createdAt, nextAt, waitKind: waits?.kind ?? null };
}

interface DeliveryChoice {
  readonly selection: Selection;
  readonly limit: number;
}

const deliveryList = z.object({
  rows: z.array(listedDelivery),
  /** Whether there are more. */
  more: z.boolean(),
  /** All deliveries of the queue, by state. */
  counts: z.record(z.string(), z.int()),
});
export type DeliveryList = z.output<typeof deliveryList>;

export const LIST_DELIVERIES: HostRpc<DeliveryChoice, DeliveryList> = {
  path: '/queue/list',
  params: z.strictObject({ selection, limit: z.int().min(1).max(MAX_DELIVERIES) }),
  returns: deliveryList,
  ms: 40_000,
};

const attempt = z.object({
  at: z.number(),
  durationMs: z.number(),
  status: intOrNull,
  error: textOrNull,
  answer: z.string(),
  batch: z.string().optional(),
  detail: z.string().optional(),
});

export interface DeliveryStory {
  readonly delivery: ListedDelivery;
  readonly attempts: readonly AttemptRecord[];
}

const deliveryStory = z.object({ delivery: listedDelivery, attempts: z.array(attempt) });

/** One delivery with its attempts; an empty list if the queue does not have it. */
export const SHOW_DELIVERY: HostRpc<{ readonly id: string }, readonly DeliveryStory[]> = {
  path: '/queue/delivery',
  params: z.strictObject({ id: z.string() }),
  returns: z.array(deliveryStory),
  ms: 10_000,
};

interface EndpointChoice {
  readonly account?: string | undefined;
  readonly kind?: DeliveryKind | undefined;
  readonly limit: number;
}

const endpointState = z.object({
  url: z.string(),
  account: z.string(),
  kind: z.string(),
  waiting: z.int(),
  breaker: z.string(),
  since: textOrNull,
  next_probe_at: textOrNull,
  paused: z.boolean(),
  paused_until: textOrNull,
  paused_by: textOrNull,
});
export type EndpointState = z.output<typeof endpointState>;

/** `more`: whether there are more. */
const endpointList = z.object({ rows: z.array(endpointState), more: z.boolean() });
export type EndpointList = z.output<typeof endpointList>;

/** Endpoints with waiting deliveries, or that are down or paused, those with the most first. */
export const LIST_ENDPOINT_STATES: HostRpc<EndpointChoice, EndpointList> = {
  path: '/queue/endpoint-states',
  params: z.strictObject({
    account: z.string().optional(),
    kind: z.enum(DELIVERY_KINDS).optional(),
    limit: z.int().min(1).max(MAX_DELIVERIES),
  }),
  returns: endpointList,
  ms: 10_000,
};

function toState({ account, url, kind, waiting, memory }: EndpointSummary, now: number): EndpointState {
  const { phase = 'closed', since = 0, probeAt = 0, hold } = readMemory(memory) ?? {};
  const away = phase !== 'closed';
  const held = hold && hold.until > now ? hold : null;
  return {
    url,
    account,
    kind,
    waiting,
    breaker: BREAKER_WORDS[phase],
    since: away ? toTime(since) : null,
    next_probe_at: away && !held ? toTime(probeAt) : null,
    paused: held !== null,
    paused_until: held && toTime(held.until),
    paused_by: held?.by ?? null,
  };
}

interface HostDeliveriesDeps extends Pick<Tools, 'clock'> {
  readonly spool: DeliveryContextSpool & Pick<Spool, 'list' | 'count' | 'delivery' | 'attempts'>;
}

/** The answers of this host. */
export function createHostDeliveries(settings: DeliveryContextSettings, { spool, clock }: HostDeliveriesDeps) {
  return frozen({
    async list({ selection, limit }: DeliveryChoice): Promise<DeliveryList> {
      const found = await spool.list(selection, limit + 1);
      const rows = found.slice(0, limit);
      const counts = await spool.count({});
      const of = await readDeliveryContext(rows, spool, settings, clock.now());
      return { rows: rows.map((row) => toListed(row, of(row))), more: found.length > limit, counts };
    },

    async one({ id }: { readonly id: string }): Promise<readonly DeliveryStory[]> {
      const delivery = await spool.delivery(id);
      if (!delivery) return [];
      const of = await readDeliveryContext([delivery], spool, settings, clock.now());
      return [{ delivery: toListed(delivery, of(delivery)), attempts: await spool.attempts(id) }];
    },

    async endpoints({ account, kind, limit }: EndpointChoice): Promise<EndpointList> {
      const found = (await spool.endpoints())
        .filter((one) => (account ?? one.account) === one.account && (kind ?? one.kind) === one.kind)
        .toSorted((a, b) => b.waiting - a.waiting);
      const rows = found.slice(0, limit).map((one) => toState(one, clock.now()));
      return { rows, more: found.length > limit };
    },
  });
}
