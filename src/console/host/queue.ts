import { z } from 'zod';
import { askAll } from '../../api/hosts/join-hosts.ts';
import { limitOf, toTime } from '../../api/operations/fields.ts';
import { optional } from '../../base/schema.ts';
import { AGES, type WaitingAges } from '../../queue/ages.ts';
import { type DeliveryKind, endpointKey } from '../../queue/delivery.ts';
import type { LaneView, PreparingDelivery } from '../../queue/insight.ts';
import { account, breaker, fromHost, kind, type LocalCall } from './operation.ts';
import { perHostOperation } from './per-host.ts';

// Waiting mail of one or all hosts, by target, age and reason.

const MAX_LISTED = 1000;
const limit = limitOf(MAX_LISTED, 200);

const endpoint = z.object({
  host: fromHost,
  account,
  url: z.string(),
  kind,
  breaker,
  since: z.string().nullable(),
  next_probe_at: z.string().nullable(),
  paused_until: z.string().nullable(),
  waiting: z.int(),
  parked: z.int(),
  preparing: z.int(),
  ready: z.int(),
  in_flight: z.int(),
  concurrency: z.int(),
  max_concurrency: z.int(),
  last_status: z.int().nullable(),
  last_error: z.string().nullable(),
  last_at: z.string().nullable(),
});

const WORST = { gone: 0, down: 1, up: 2 } as const;

const endpointList = z.object({ total: z.int(), endpoints: z.array(endpoint) });
type EndpointList = z.output<typeof endpointList>;
interface Listing {
  readonly limit: number;
}

async function listEndpoints({ limit }: Listing, { dispatcher, names }: LocalCall): Promise<EndpointList> {
  const all = dispatcher.lanes();
  const shown = worstFirst(all).slice(0, limit);
  const nameOf = await names(shown.map((one) => one.account));
  return {
    total: all.length,
    endpoints: shown.map((one) => ({
      account: nameOf(one.account),
      url: one.url,
      kind: one.kind,
      breaker: one.breaker,
      since: toTime(one.since),
      next_probe_at: toTime(one.nextProbeAt),
      paused_until: toTime(one.hold?.until),
      waiting: one.waiting,
      parked: one.parked,
      preparing: one.preparing,
      ready: one.ready,
      in_flight: one.inFlight,
      concurrency: one.concurrency,
      max_concurrency: one.maxConcurrency,
      last_status: one.last?.result.kind === 'answered' ? one.last.result.status : null,
      last_error: one.last?.result.kind === 'unanswered' ? one.last.result.error : null,
      last_at: toTime(one.last?.at),
    })),
  };
}

const worstFirst = <L extends Pick<LaneView, 'breaker' | 'waiting'>>(lanes: readonly L[]): L[] =>
  lanes.toSorted((a, b) => WORST[a.breaker] - WORST[b.breaker] || b.waiting - a.waiting);

const endpoints = perHostOperation({
  path: '/host/endpoints',
  access: 'host',
  summary: 'Lists the endpoints with current or recent work on each host, those that are down first.',
  params: { limit },
  returns: endpointList,
  handle: listEndpoints,
  across: {
    part: endpointList,
    async own(given, call) {
      const { total, endpoints } = await listEndpoints(given, call);
      return { total, endpoints: named(endpoints, call) };
    },
    async join(hosts, { limit }) {
      const all = await askAll(hosts);
      return {
        total: totalOf(all),
        endpoints: worstFirst(all.flatMap(({ endpoints }) => endpoints)).slice(0, limit),
      };
    },
  },
});

/** Adds the name of this host to the rows. */
const named = <R extends object>(rows: readonly R[], { settings: { hostname } }: LocalCall) =>
  rows.map((row) => ({ host: hostname, ...row }));

const totalOf = (lists: readonly { readonly total: number }[]) => lists.reduce((sum, { total }) => sum + total, 0);

const waitsFor = z.enum(['preparing', 'verdicts', 'parsing', 'connection']);

const preparingBy = z.object({ waits_for: waitsFor, count: z.int(), oldest_at: z.string() });
type PreparingBy = z.output<typeof preparingBy>;

/** Deliveries in preparation, by the reason for waiting. */
function countPreparing(all: readonly PreparingDelivery[]): PreparingBy[] {
  return waitsFor.options.flatMap((reason) => {
    const own = all.filter((one) => one.waitsFor === reason);
    if (own.length === 0) return [];
    const oldest = own.reduce((least, { since }) => Math.min(least, since), Number.POSITIVE_INFINITY);
    return [{ waits_for: reason, count: own.length, oldest_at: toTime(oldest) }];
  });
}

/** The sum of several hosts; times in this form sort as text. */
function addPreparing(all: readonly PreparingBy[]): PreparingBy[] {
  return waitsFor.options.flatMap((reason) => {
    const own = all.filter((one) => one.waits_for === reason);
    const [oldest] = own.map((one) => one.oldest_at).sort();
    if (oldest === undefined) return [];
    return [{ waits_for: reason, count: own.reduce((sum, { count }) => sum + count, 0), oldest_at: oldest }];
  });
}

const preparingList = z.object({
  total: z.int(),
  by: z.array(preparingBy),
  preparing: z.array(
    z.object({
      host: fromHost,
      id: z.string(),
      account,
      url: z.string(),
      kind,
      since: z.string(),
      waits_for: waitsFor,
      question: z.string().nullable(),
    }),
  ),
});
type PreparingList = z.output<typeof preparingList>;

async function listPreparing({ limit }: Listing, { dispatcher, names }: LocalCall): Promise<PreparingList> {
  const all = await dispatcher.preparing();
  const shown = all.toSorted((a, b) => a.since - b.since).slice(0, limit);
  const nameOf = await names(shown.map((one) => one.account));
  return {
    total: all.length,
    by: countPreparing(all),
    preparing: shown.map(({ id, account, url, kind, since, waitsFor, question }) => ({
      id,
      account: nameOf(account),
      url,
      kind,
      since: toTime(since),
      waits_for: waitsFor,
      question,
    })),
  };
}

const preparing = perHostOperation({
  path: '/host/preparing',
  access: 'host',
  summary: 'Lists the deliveries that are being prepared, with what each waits for, oldest first.',
  params: { limit },
  returns: preparingList,
  handle: listPreparing,
  across: {
    part: preparingList,
    async own(given, call) {
      const { preparing, ...counts } = await listPreparing(given, call);
      return { ...counts, preparing: named(preparing, call) };
    },
    async join(hosts, { limit }) {
      const all = await askAll(hosts);
      return {
        total: totalOf(all),
        by: addPreparing(all.flatMap(({ by }) => by)),
        preparing: all
          .flatMap(({ preparing }) => preparing)
          .sort((a, b) => a.since.localeCompare(b.since))
          .slice(0, limit),
      };
    },
  },
});

const BY = ['endpoint', 'destination', 'account'] as const;

const queueRow = z.object({
  account: account.nullable(),
  url: z.string().nullable(),
  kind: kind.nullable(),
  waiting: z.int(),
  ages: z.array(z.int()).length(AGES.length + 1),
  later: z.int(),
  parked: z.int(),
  oldest_at: z.string(),
  breaker: breaker.nullable(),
  down_since: z.string().nullable(),
  paused_until: z.string().nullable(),
  in_flight: z.int(),
});
type QueueRow = z.output<typeof queueRow>;

const queueParams = { by: optional(z.enum(BY)), limit };

const waitingQueue = z.object({
  waiting: z.int(),
  oldest_at: z.string().nullable(),
  ages: z.array(z.int()),
  rows: z.array(queueRow),
  left_out: z.int(),
  preparing: z.object({ total: z.int(), by: z.array(preparingBy) }),
});
type WaitingQueue = z.output<typeof waitingQueue>;

async function queueHere(
  { by = 'endpoint', limit }: z.output<z.ZodObject<typeof queueParams>>,
  call: LocalCall,
): Promise<WaitingQueue> {
  const { spool, dispatcher, names, inTurn } = call;
  const waiting = await inTurn('ages', () => spool.ages(call.now()));
  const groups = group(waiting, by, lanesByName(dispatcher.lanes()), call);
  const rows = [...groups.values()].toSorted((a, b) => b.waiting - a.waiting);
  const shown = rows.slice(0, limit);
  const nameOf = await names(shown.flatMap((one) => one.account ?? []));
  const preparing = await dispatcher.preparing();
  return {
    waiting: rows.reduce((sum, one) => sum + one.waiting, 0),
    oldest_at: toTime(waiting.length === 0 ? null : Math.min(...waiting.map(({ oldest }) => oldest))),
    ages: [...AGES],
    rows: shown.map(({ account, oldest, lane, inFlight, ...rest }) => ({
      ...rest,
      account: account === null ? null : nameOf(account),
      oldest_at: toTime(oldest),
      breaker: lane === null ? null : (lane?.breaker ?? 'up'),
      down_since: toTime(lane?.since),
      paused_until: toTime(lane?.hold?.until),
      in_flight: inFlight,
    })),
    left_out: rows.length - shown.length,
    preparing: { total: preparing.length, by: countPreparing(preparing) },
  };
}

const queue = perHostOperation({
  path: '/host/queue',
  access: 'host',
  summary:
    'Shows what waits by age: for each endpoint of an account, each destination over all accounts, or each account.',
  params: queueParams,
  returns: waitingQueue,
  handle: queueHere,
  across: {
    part: waitingQueue,
    own: queueHere,
    async join(hosts, { limit }) {
      const all = await askAll(hosts, () => ({ limit: MAX_LISTED }));
      const rows = addRows(all.flatMap((one) => one.rows)).sort((a, b) => b.waiting - a.waiting);
      const shown = rows.slice(0, limit);
      return {
        waiting: all.reduce((sum, one) => sum + one.waiting, 0),
        oldest_at: all.flatMap((one) => one.oldest_at ?? []).sort()[0] ?? null,
        ages: [...AGES],
        rows: shown,
        // A row that two hosts leave out counts twice; each sends its thousand largest.
        left_out: rows.length - shown.length + all.reduce((sum, one) => sum + one.left_out, 0),
        preparing: {
          total: totalOf(all.map((one) => one.preparing)),
          by: addPreparing(all.flatMap((one) => one.preparing.by)),
        },
      };
    },
  },
});

/** Sums up the rows of several hosts by target. */
function addRows(all: readonly QueueRow[]): QueueRow[] {
  const rows = new Map<string, QueueRow>();
  for (const row of all) {
    const key = JSON.stringify([row.account?.id, row.url]);
    const known = rows.get(key);
    rows.set(key, known ? addRow(known, row) : row);
  }
  return [...rows.values()];
}

/** The sum of two rows, with the worse state. */
function addRow(a: QueueRow, b: QueueRow): QueueRow {
  const { breaker, down_since } = WORST[b.breaker ?? 'up'] < WORST[a.breaker ?? 'up'] ? b : a;
  return {
    account: a.account,
    url: a.url,
    kind: a.kind ?? b.kind,
    waiting: a.waiting + b.waiting,
    ages: a.ages.map((count, i) => count + (b.ages[i] ?? 0)),
    later: a.later + b.later,
    parked: a.parked + b.parked,
    oldest_at: a.oldest_at < b.oldest_at ? a.oldest_at : b.oldest_at,
    breaker,
    down_since,
    paused_until: a.paused_until ?? b.paused_until,
    in_flight: a.in_flight + b.in_flight,
  };
}

interface Group {
  readonly account: string | null;
  readonly url: string | null;
  readonly kind: DeliveryKind | null;
  waiting: number;
  readonly ages: number[];
  later: number;
  parked: number;
  oldest: number;
  /** The lane in the worst state; undefined: none had recent work; null: a group by account has no common state. */
  lane: LaneView | undefined | null;
  inFlight: number;
}

const lanesByName = (lanes: readonly LaneView[]): ReadonlyMap<string, LaneView> =>
  new Map(lanes.map((one) => [endpointKey(one), one]));

function group(
  waiting: readonly WaitingAges[],
  by: (typeof BY)[number],
  lanes: ReadonlyMap<string, LaneView>,
  { spool }: Pick<LocalCall, 'spool'>,
): ReadonlyMap<string, Group> {
  const kinds = new Map<string, DeliveryKind>();
  for (const account of new Set(waiting.map((one) => one.account)))
    for (const one of spool.waitingOf(account)) kinds.set(endpointKey(one), one.kind);
  const groups = new Map<string, Group>();
  for (const one of waiting) {
    const key = by === 'endpoint' ? endpointKey(one) : by === 'destination' ? one.url : one.account;
    const known = groups.get(key) ?? {
      account: by === 'destination' ? null : one.account,
      url: by === 'account' ? null : one.url,
      kind: by === 'account' ? null : (kinds.get(endpointKey(one)) ?? lanes.get(endpointKey(one))?.kind ?? null),
      waiting: 0,
      ages: one.ages.map(() => 0),
      later: 0,
      parked: 0,
      oldest: one.oldest,
      lane: by === 'account' ? null : undefined,
      inFlight: 0,
    };
    groups.set(key, known);
    add(known, one, lanes.get(endpointKey(one)));
  }
  return groups;
}

function add(to: Group, { waiting, ages, later, parked, oldest }: WaitingAges, lane: LaneView | undefined): void {
  to.waiting += waiting;
  to.later += later;
  to.parked += parked;
  to.oldest = Math.min(to.oldest, oldest);
  to.inFlight += lane?.inFlight ?? 0;
  for (const [i, count] of ages.entries()) to.ages[i] = (to.ages[i] ?? 0) + count;
  if (lane && to.lane !== null && WORST[lane.breaker] < WORST[to.lane?.breaker ?? 'up']) to.lane = lane;
  else if (lane && to.lane === undefined) to.lane = lane;
}

/** Waiting and running deliveries. */
export const queueOperations = [endpoints, preparing, queue];
