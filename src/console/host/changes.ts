import { z } from 'zod';
import {
  CHANGE_QUEUE,
  type ChangingHost,
  changeHere,
  changeOnHosts,
  FIND_JOBS,
  type HostShare,
  hostShare,
  LIST_ENDPOINTS,
} from '../../api/hosts/host-queue.ts';
import { whyMissing } from '../../api/hosts/host-rpc.ts';
import { mayBeOn } from '../../api/hosts/peers.ts';
import { jobRecord, joinJobs, MAX_JOBS } from '../../api/operations/actions.ts';
import { JOB_ID_SEPARATOR } from '../../api/operations/bulk.ts';
import { MAX_PAUSED } from '../../api/operations/endpoints.ts';
import { MAX_QUERY } from '../../api/operations/history.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import { noteAction } from '../../journal/actions.ts';
import { faultText, parseQueueQuery } from '../../journal/query-language.ts';
import { type Endpoint, endpointKey, type Selection } from '../../queue/delivery.ts';
import { LONGEST_HOLD } from '../../queue/schedule/breaker.ts';
import { BULK_ACTIONS, type BulkAction, DELIVERY_STATES, type DeliveryState, OPEN_STATES } from '../../queue/states.ts';
import { type HostCall, hostOperation } from './operation.ts';

// Changes of the queues of all hosts by operators, by a filter. Hosts count first.

const query = text(MAX_QUERY);
const dryRun = optional(z.boolean());
const atMost = optional(z.int().min(0));

/** Declares an operation that changes the deliveries of a query. */
function changing<N extends `/host/${string}`>(action: BulkAction, path: N, summary: string) {
  const { states, started, ended } = BULK_ACTIONS[action];
  return hostOperation({
    path,
    access: 'host',
    summary,
    params: { query, dry_run: dryRun, at_most: atMost },
    returns: z.object({
      matched: z.int(),
      by_state: z.array(z.object({ state: z.enum(DELIVERY_STATES), count: z.int() })),
      changed: z.int(),
      /** Of several hosts, ids separated by commas. */
      job: z.string().nullable(),
      hosts: z.array(hostShare),
    }),
    async handle({ query, dry_run: dry = false, at_most: most = null }, call) {
      const { by, settings, queue } = call;
      const selections = [toSelection(query, states, call)];
      const here: ChangingHost = { name: settings.hostname, change: (order) => changeHere(queue, order) };
      const others = (await call.otherHosts()).map(
        ({ row, ask }): ChangingHost => ({ name: row.name, change: (order) => ask(CHANGE_QUEUE, order) }),
      );
      const order = { action, selections, dry_run: dry, at_most: most, by, words: query };
      const answer = await changeOnHosts([here, ...others], order);
      // Each host records it for the accounts; this one also records that the request was made here.
      for (const { name, count, job } of dry ? [] : answer.hosts.slice(1))
        if (count > 0) noteAction(call, job === null ? ended : started, count, `on ${name}: ${query}`);
      return answer;
    },
  });
}

/** The deliveries of a query, which must not name a state in which nothing can be changed. */
function toSelection(query: string, states: readonly DeliveryState[], call: HostCall): Selection {
  const asked = parsed(query, call);
  if (asked.states?.some((state) => !states.includes(state)))
    throw call.invalid('query', `state: takes ${states.join(', ')} here`);
  return asked;
}

/** A query without a filter needs a star, so that nothing is changed by oversight. */
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

const held = z.object({ matched: z.int(), changed: z.int(), waiting: z.int(), hosts: z.array(hostShare) });

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
    const found = await endpointsOf(query, { held: false, most: MAX_PAUSED }, call);
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
    const found = await endpointsOf(query, { held: true, most: MAX_RESUMED }, call);
    const change = (endpoint: Endpoint) => call.pauses.resume(endpoint, 'operator');
    return hold(found, { noted: 'resumed', query, dry, most, change }, call);
  },
});

/** Each is a row of the store to change. */
const MAX_RESUMED = 5000;

/** Endpoints, each once, and the deliveries that wait for them on each host. */
interface Found {
  readonly endpoints: readonly Endpoint[];
  readonly hosts: readonly HostShare[];
}

async function endpointsOf(
  query: string,
  { held, most }: { readonly held: boolean; readonly most: number },
  call: HostCall,
): Promise<Found> {
  const { account, url, kinds, ...rest } = parsed(query, call);
  if (Object.keys(rest).length > 0)
    throw call.invalid('query', 'Endpoints are chosen by account:, url: and kind: only');
  const choice = { account, url, kinds, held, limit: most + 1 };
  const here = { name: call.settings.hostname, found: await call.queue.endpoints(choice), error: null };
  const others = (await call.otherHosts()).map(async ({ row, ask }) => {
    const asked = await ask(LIST_ENDPOINTS, choice);
    if (asked.kind === 'answered') return { name: row.name, found: asked.answer, error: null };
    const error = `${row.name} ${whyMissing(asked, 'endpoints that only it has mail for are left out', false)}`;
    return { name: row.name, found: [], error };
  });
  const parts = [here, ...(await Promise.all(others))];
  const endpoints = new Map(
    parts.flatMap(({ found }) =>
      found.map(({ account, url, kind }) => [endpointKey({ account, url }), { account, url, kind }] as const),
    ),
  );
  if (endpoints.size > most) throw call.invalid('query', `More than ${most} endpoints match; narrow the filter`);
  return {
    endpoints: [...endpoints.values()],
    hosts: parts.map(({ name, found, error }) => ({
      name,
      count: found.reduce((sum, { waiting }) => sum + waiting, 0),
      job: null,
      error,
    })),
  };
}

/** A change of endpoints, and its name in the list of actions. */
interface Holding {
  readonly noted: string;
  readonly query: string;
  readonly dry: boolean | undefined;
  readonly most: number | undefined;
  change(endpoint: Endpoint): Promise<unknown>;
}

/** Pauses are rows of the store, which all hosts follow. */
async function hold(
  { endpoints, hosts }: Found,
  { noted, query, dry, most, change }: Holding,
  call: HostCall,
): Promise<z.input<typeof held>> {
  const matched = endpoints.length;
  if (most !== undefined && matched > most)
    throw call.invalid('at_most', `${matched} endpoints match now (limit ${most}); review and retry`);
  const waiting = hosts.reduce((sum, { count }) => sum + count, 0);
  if (dry) return { matched, changed: 0, waiting, hosts: [...hosts] };
  await Promise.all(endpoints.map(change));
  for (const account of new Set(endpoints.map((one) => one.account)))
    noteAction(call, noted, endpoints.filter((one) => one.account === account).length, query, account);
  return { matched, changed: matched, waiting, hosts: [...hosts] };
}

const job = hostOperation({
  path: '/host/job',
  access: 'host',
  summary: 'Shows how far the jobs are that a change of the queue started.',
  params: { id: text(30 * MAX_JOBS) },
  returns: jobRecord,
  async handle({ id }, call) {
    const ids = id.split(JOB_ID_SEPARATOR).slice(0, MAX_JOBS);
    const here = call.queue.jobs({ ids });
    const others = here.length === ids.length ? [] : await call.otherHosts();
    const asked = await Promise.all(
      others.map(async ({ row, ask }) => ({ row, asked: await ask(FIND_JOBS, { ids }) })),
    );
    const found = [...here, ...asked.flatMap(({ asked: one }) => (one.kind === 'answered' ? one.answer : []))];
    if (found.length > 0) return joinJobs(id, found);
    const silent = asked.filter(({ asked: one }) => one.kind !== 'answered').map(({ row }) => row.name);
    throw mayBeOn(call.unknownJob(id), silent);
  },
});

/** Changes of the queue. */
export const changeOperations = [retry, drop, pause, resume, job];
