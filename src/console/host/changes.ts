import { z } from 'zod';
import { carryOut } from '../../api/bulk-orders.ts';
import { MAX_PAUSED } from '../../api/operations/endpoints.ts';
import { MAX_QUERY } from '../../api/operations/history.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import { faultText, parseQueueQuery } from '../../journal/query-language.ts';
import { createBulkChanges } from '../../queue/bulk-changes.ts';
import { type Endpoint, endpointKey, type Selection } from '../../queue/delivery.ts';
import { LONGEST_HOLD } from '../../queue/schedule/breaker.ts';
import { BULK_ACTIONS, type BulkAction, DELIVERY_STATES, type DeliveryState, OPEN_STATES } from '../../queue/states.ts';
import { type HostCall, hostOperation } from './operation.ts';
import { noteAction } from './parts.ts';

// Changes of the queue by operators, for a filter: the number first.

const query = text(MAX_QUERY);
const dryRun = optional(z.boolean());
const atMost = optional(z.int().min(0));

/** Declares an operation that changes the deliveries of a query. */
function changing<N extends `/host/${string}`>(action: BulkAction, path: N, summary: string) {
  const { states, ended } = BULK_ACTIONS[action];
  return hostOperation({
    path,
    access: 'host',
    summary,
    params: { query, dry_run: dryRun, at_most: atMost },
    returns: z.object({
      matched: z.int(),
      by_state: z.array(z.object({ state: z.enum(DELIVERY_STATES), count: z.int() })),
      changed: z.int(),
      job: z.string().nullable(),
    }),
    async handle({ query, dry_run: dry, at_most: most }, call) {
      const { spool, dispatcher, clock } = call;
      const bulk = createBulkChanges({ spool, probe: dispatcher.probe, clock });
      const which = { selections: [toSelection(query, states, call)] };
      const { matched, byState, changed, job } = await carryOut(
        {
          owner: HOST_JOBS,
          dryRun: dry,
          atMost: most,
          count: () => bulk.count(action, which),
          tooMany: (text) => call.invalid('at_most', `${text}; review and retry`),
          begin: async () => (course) =>
            bulk.change(action, which, {
              ...course,
              ended(byAccount) {
                for (const [account, count] of byAccount) noteAction(call, ended, count, query, account);
              },
            }),
        },
        call.jobs,
      );
      const counts = states.flatMap((state) => (byState[state] === 0 ? [] : [{ state, count: byState[state] }]));
      return { matched, by_state: counts, changed, job };
    },
  });
}

/** Whose jobs they are: no account has this id, so none finds them. */
const HOST_JOBS = '';

/** The deliveries of a query, which must not name a state in which nothing can be changed. */
function toSelection(query: string, states: readonly DeliveryState[], call: HostCall): Selection {
  const asked = parsed(query, call);
  if (asked.states?.some((state) => !states.includes(state)))
    throw call.invalid('query', `state: takes ${states.join(', ')} here`);
  return asked;
}

/** Nothing is changed by oversight: a query that chooses nothing must say so with a star. */
function parsed(query: string, call: HostCall): Selection {
  const read = parseQueueQuery(query, call.now());
  if ('fault' in read) throw call.invalid('query', faultText(read.fault));
  if (Object.keys(read.filter).length === 0 && query.trim() !== '*')
    throw call.invalid('query', 'Enter a filter such as account: or url:, or * for all');
  return read.filter;
}

const retry = changing(
  'retry',
  '/host/retry',
  'Makes waiting deliveries due now, and probes the endpoints that are down. Mail that a consumer pulls is left out.',
);

const drop = changing('drop', '/host/drop', `Ends ${inWords(OPEN_STATES)} deliveries without delivering them.`);

const held = z.object({ matched: z.int(), changed: z.int(), waiting: z.int() });

const pause = hostOperation({
  path: '/host/pause',
  access: 'host',
  summary:
    'Sends nothing to the endpoints of a query until a time; their mail waits, and may be given up. ' +
    'Accounts cannot end it.',
  params: { query, until: optionalTime, dry_run: dryRun, at_most: atMost },
  returns: held,
  async handle({ query, until, dry_run: dry, at_most: most }, call) {
    const now = call.now();
    const end = until?.getTime() ?? now + LONGEST_HOLD;
    if (end <= now || end > now + LONGEST_HOLD) throw call.invalid('until', 'Please enter a time in the next 7 days');
    const found = await endpointsOf(query, call);
    if (found.length > MAX_PAUSED)
      throw call.invalid('query', `${found.length} endpoints match; at most ${MAX_PAUSED} can be paused at a time`);
    const change = (endpoint: Endpoint) => call.pauses.pause(endpoint, end, 'operator');
    return hold(found, { noted: 'paused', query, dry, most, change }, call);
  },
});

const resume = hostOperation({
  path: '/host/resume',
  access: 'host',
  summary: 'Ends the pauses of the endpoints of a query, those of their accounts too.',
  params: { query, dry_run: dryRun, at_most: atMost },
  returns: held,
  async handle({ query, dry_run: dry, at_most: most }, call) {
    const found = (await endpointsOf(query, call)).filter((one) => one.isHeld);
    const change = (endpoint: Endpoint) => call.pauses.resume(endpoint, 'operator');
    return hold(found, { noted: 'resumed', query, dry, most, change }, call);
  },
});

interface Found extends Endpoint {
  readonly waiting: number;
  readonly isHeld: boolean;
}

/** Endpoints with waiting deliveries, with recent work, or paused. */
async function endpointsOf(query: string, call: HostCall): Promise<readonly Found[]> {
  const { account, url, kinds, ...rest } = parsed(query, call);
  if (Object.keys(rest).length > 0)
    throw call.invalid('query', 'Endpoints are chosen by account:, url: and kind: only');
  const isMeant = (one: Endpoint) =>
    (account === undefined || one.account === account) &&
    (url === undefined || one.url === url) &&
    (kinds === undefined || kinds.includes(one.kind));
  const found = new Map<string, Found>();
  const summaries = await call.spool.endpoints();
  for (const { account, url, kind, waiting } of summaries.filter(isMeant))
    if (waiting > 0) found.set(endpointKey({ account, url }), { account, url, kind, waiting, isHeld: false });
  for (const { account, url, kind, hold } of call.dispatcher.lanes(isMeant)) {
    const key = endpointKey({ account, url });
    found.set(key, { account, url, kind, waiting: found.get(key)?.waiting ?? 0, isHeld: hold !== null });
  }
  return [...found.values()];
}

/** A change of endpoints, and its word in the list of actions. */
interface Holding {
  readonly noted: string;
  readonly query: string;
  readonly dry: boolean | undefined;
  readonly most: number | undefined;
  change(endpoint: Endpoint): Promise<unknown>;
}

async function hold(
  found: readonly Found[],
  { noted, query, dry, most, change }: Holding,
  call: HostCall,
): Promise<z.input<typeof held>> {
  if (most !== undefined && found.length > most)
    throw call.invalid('at_most', `${found.length} endpoints match now (limit ${most}); review and retry`);
  const waiting = found.reduce((sum, one) => sum + one.waiting, 0);
  if (dry) return { matched: found.length, changed: 0, waiting };
  await Promise.all(found.map(({ account, url, kind }) => change({ account, url, kind })));
  for (const account of new Set(found.map((one) => one.account)))
    noteAction(call, noted, found.filter((one) => one.account === account).length, query, account);
  return { matched: found.length, changed: found.length, waiting };
}

const job = hostOperation({
  path: '/host/job',
  access: 'host',
  summary: 'Shows how far a job is that a change of the queue started.',
  params: { id: text(255) },
  returns: z.object({
    id: z.string(),
    state: z.enum(['running', 'done', 'failed']),
    done: z.int(),
    of: z.int(),
    error: z.string().nullable(),
  }),
  async handle({ id }, call) {
    const found = call.jobs.find(HOST_JOBS, id);
    if (!found) throw call.unknownJob(id);
    return { id, state: found.state, done: found.done, of: found.of, error: found.error };
  },
});

/** Changes of the queue. */
export const changeOperations = [retry, drop, pause, resume, job];
