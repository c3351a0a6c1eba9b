import { z } from 'zod';
import { MOST_AT_ONCE } from '../../api/account-bulk.ts';
import type { JobProgress } from '../../api/jobs.ts';
import { MAX_PAUSED } from '../../api/operations/endpoints.ts';
import { MAX_QUERY } from '../../api/operations/history.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { faultText, parseQueueQuery } from '../../journal/query-language.ts';
import type { Endpoint, EndpointName, Selection } from '../../queue/delivery.ts';
import { LONGEST_HOLD } from '../../queue/schedule/breaker.ts';
import { DELIVERY_STATES, type DeliveryState, OPEN_STATES, sumOfStates } from '../../queue/states.ts';
import { type HostCall, hostOperation } from './operation.ts';
import { noteAction } from './parts.ts';

// What operators do to the queue, over a filter: the number first.

const query = text(MAX_QUERY);
const dryRun = optional(z.boolean());
const atMost = optional(z.int().min(0));

interface Change {
  readonly path: `/host/${string}`;
  readonly summary: string;
  /** The name of the action in the list of actions. */
  readonly noted: string;
  /** Deliveries in these states can be changed. */
  readonly states: readonly DeliveryState[];
  /** Changes deliveries of one account; returns how many. */
  change(selection: Selection, call: HostCall): Promise<number>;
  /** Called once for each endpoint whose deliveries were changed. */
  after?(endpoint: EndpointName, call: HostCall): void;
}

/** Declares an operation that changes the deliveries of a query. */
function changing(declared: Change) {
  return hostOperation({
    path: declared.path,
    access: 'host',
    summary: declared.summary,
    params: { query, dry_run: dryRun, at_most: atMost },
    returns: z.object({
      matched: z.int(),
      by_state: z.array(z.object({ state: z.enum(DELIVERY_STATES), count: z.int() })),
      changed: z.int(),
      job: z.string().nullable(),
    }),
    async handle({ query, dry_run: dry, at_most: most }, call) {
      const selection = toSelection(query, declared.states, call);
      const counts = await call.spool.count(selection);
      const byState = selection.states.flatMap((state) =>
        counts[state] === 0 ? [] : [{ state, count: counts[state] }],
      );
      const found = { matched: sumOfStates(counts), by_state: byState };
      const { matched } = found;
      mustBeAtMost(matched, most, 'deliveries', call);
      if (dry || matched === 0) return { ...found, changed: 0, job: null };
      const work = (progress: JobProgress) => changeAll(declared, selection, { query, progress }, call);
      if (matched <= MOST_AT_ONCE) return { ...found, changed: await work(AT_ONCE), job: null };
      const job = call.jobs.start(HOST_JOBS, matched, async (_, progress) => void (await work(progress)));
      return { ...found, changed: 0, job: job.id };
    },
  });
}

/** Nothing is changed if more match by now than the person was shown. */
function mustBeAtMost(matched: number, most: number | undefined, what: string, call: HostCall): void {
  if (most !== undefined && matched > most)
    throw call.invalid('at_most', `${matched} ${what} match now (limit ${most}); review and retry`);
}

/** Whose jobs they are: no account has this id, so none finds them. */
const HOST_JOBS = '';
const AT_ONCE: JobProgress = { done: () => undefined, stopping: () => false };
/** Deliveries changed in one step, which shares a commit with new mail. */
const STEP = 500;
/** Endpoints that are remembered for `after`. */
const MOST_ENDPOINTS = 10_000;

/** Changes page by page, and notes for each account how many of its deliveries were changed. */
async function changeAll(
  { noted, change, after }: Change,
  selection: Selection,
  { query, progress }: { readonly query: string; readonly progress: JobProgress },
  call: HostCall,
): Promise<number> {
  const { spool } = call;
  const { ids, states } = selection;
  const counts = new Map<string, number>();
  const endpoints = new Map<string, EndpointName>();
  let done = 0;
  try {
    const pages = ids ? [await spool.list(selection, ids.length)] : spool.scan(selection);
    for await (const page of pages) {
      if (progress.stopping()) break;
      for (const { account, url } of page)
        if (endpoints.size < MOST_ENDPOINTS) endpoints.set(`${account}\n${url}`, { account, url });
      for (const account of new Set(page.map((one) => one.account))) {
        const own = page.filter((one) => one.account === account).map(({ id }) => id);
        for (let at = 0; at < own.length; at += STEP) {
          const count = await change({ ids: own.slice(at, at + STEP), account, states }, call);
          counts.set(account, (counts.get(account) ?? 0) + count);
          done += count;
          progress.done(done);
        }
      }
    }
  } finally {
    for (const [account, count] of counts) if (count > 0) noteAction(call, noted, count, query, account);
    for (const endpoint of endpoints.values()) after?.(endpoint, call);
  }
  return done;
}

/** The deliveries of a query, in the states that can be changed. */
function toSelection(
  query: string,
  states: readonly DeliveryState[],
  call: HostCall,
): Selection & { readonly states: readonly DeliveryState[] } {
  const asked = parsed(query, call);
  const wanted = asked.states ?? states;
  const wrong = wanted.find((state) => !states.includes(state));
  if (wrong !== undefined) throw call.invalid('query', `state: takes ${states.join(', ')} here`);
  return { ...asked, states: wanted };
}

/** Nothing is changed by oversight: a query that chooses nothing must say so with a star. */
function parsed(query: string, call: HostCall): Selection {
  const read = parseQueueQuery(query, call.now());
  if ('fault' in read) throw call.invalid('query', faultText(read.fault));
  if (Object.keys(read.filter).length === 0 && query.trim() !== '*')
    throw call.invalid('query', 'Enter a filter such as account: or url:, or * for all');
  return read.filter;
}

const retry = changing({
  path: '/host/retry',
  summary: 'Makes waiting deliveries due now, and probes the endpoints that are down.',
  noted: 'retried',
  states: ['waiting'],
  change: (selection, { spool, now }) => spool.retry(selection, now()),
  after: (endpoint, { dispatcher }) => dispatcher.probe(endpoint),
});

const drop = changing({
  path: '/host/drop',
  summary: 'Ends waiting, dead and held deliveries without delivering them.',
  noted: 'dropped',
  states: OPEN_STATES,
  change: (selection, { spool, now }) => spool.drop(selection, now()),
});

const held = z.object({ matched: z.int(), changed: z.int(), waiting: z.int() });

const pause = hostOperation({
  path: '/host/pause',
  access: 'host',
  summary:
    'Sends nothing to the endpoints of a query until a time; their mail waits, and may be given up. Accounts cannot end it.',
  params: { query, until: optionalTime, dry_run: dryRun, at_most: atMost },
  returns: held,
  async handle({ query, until, dry_run: dry, at_most: most }, call) {
    const now = call.now();
    const end = until?.getTime() ?? now + LONGEST_HOLD;
    if (end <= now || end > now + LONGEST_HOLD) throw call.invalid('until', 'Please enter a time in the next 7 days');
    const found = await endpointsOf(query, call);
    if (found.length > MAX_PAUSED)
      throw call.invalid('query', `${found.length} endpoints match; at most ${MAX_PAUSED} can be paused at a time`);
    const change = (endpoint: Endpoint) => call.dispatcher.hold(endpoint, end, 'operator');
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
    return hold(found, { noted: 'resumed', query, dry, most, change: call.dispatcher.release }, call);
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
    if (waiting > 0) found.set(`${account}\n${url}`, { account, url, kind, waiting, isHeld: false });
  for (const { account, url, kind, hold } of call.dispatcher.lanes(isMeant)) {
    const key = `${account}\n${url}`;
    found.set(key, { account, url, kind, waiting: found.get(key)?.waiting ?? 0, isHeld: hold !== null });
  }
  return [...found.values()];
}

/** What is done to endpoints, and how the list of actions says it. */
interface Holding {
  readonly noted: string;
  readonly query: string;
  readonly dry: boolean | undefined;
  readonly most: number | undefined;
  change(endpoint: Endpoint): Promise<void>;
}

async function hold(
  found: readonly Found[],
  { noted, query, dry, most, change }: Holding,
  call: HostCall,
): Promise<z.input<typeof held>> {
  mustBeAtMost(found.length, most, 'endpoints', call);
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
