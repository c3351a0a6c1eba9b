import { z } from 'zod';
import { frozen } from '../../base/frozen.ts';
import { namesOf } from '../../base/tables.ts';
import type { Tools } from '../../base/tools.ts';
import { noteAction } from '../../journal/actions.ts';
import type { Notes } from '../../journal/types.ts';
import { createBulkChanges } from '../../queue/bulk-changes.ts';
import { DELIVERY_KINDS, type Endpoint, endpointKey, type Selection, type Spool } from '../../queue/delivery.ts';
import type { Dispatcher } from '../../queue/dispatcher.ts';
import { BULK_ACTIONS, type BulkAction, DELIVERY_STATES } from '../../queue/states.ts';
import { type Jobs, runBulkChange } from '../account/jobs.ts';
import { invalid, Refusal } from '../errors.ts';
import { JOB_ID_SEPARATOR } from '../operations/bulk.ts';
import { type HostRpc, type RpcResult, whyMissing } from './host-rpc.ts';

// Bulk changes of the queue by operators, over all accounts: on one host, and on all hosts of the store.

/** Strict, because ignoring an unknown condition would change more deliveries. */
export const selection = z.strictObject({
  ids: z.array(z.string()).optional(),
  account: z.string().optional(),
  routeIds: z.array(z.string()).optional(),
  targetId: z.string().optional(),
  url: z.string().optional(),
  recipient: z.string().optional(),
  kinds: z.array(z.enum(DELIVERY_KINDS)).optional(),
  webhook: z.string().optional(),
  states: z.array(z.enum(DELIVERY_STATES)).optional(),
  from: z.number().optional(),
  to: z.number().optional(),
});

/** A change of the deliveries of any of the selections, which must not overlap. */
export interface QueueChangeRequest {
  readonly action: BulkAction;
  readonly selections: readonly Selection[];
  readonly dry_run: boolean;
  /** Nothing is changed if more match. Null: any number. */
  readonly at_most: number | null;
  /** The actor, and the selection as text, for the list of actions. */
  readonly by: string;
  readonly words: string;
}

const queueChange = z.object({
  matched: z.int(),
  by_state: z.array(z.object({ state: z.enum(DELIVERY_STATES), count: z.int() })),
  changed: z.int(),
  /** The job that makes the change, if there are many. */
  job: z.string().nullable(),
});
export type QueueChange = z.output<typeof queueChange>;

export const CHANGE_QUEUE: HostRpc<QueueChangeRequest, QueueChange> = {
  path: '/queue/change',
  params: z.strictObject({
    action: z.enum(namesOf(BULK_ACTIONS)),
    selections: z.array(selection).min(1),
    dry_run: z.boolean(),
    at_most: z.int().nullable(),
    by: z.string(),
    words: z.string(),
  }),
  returns: queueChange,
  ms: 40_000,
};

const queueJob = z.object({
  id: z.string(),
  state: z.enum(['running', 'done', 'failed']),
  done: z.int(),
  of: z.int(),
  error: z.string().nullable(),
});
type QueueJob = z.output<typeof queueJob>;

/** The jobs of a host that have these ids. */
export const FIND_JOBS: HostRpc<{ readonly ids: readonly string[] }, readonly QueueJob[]> = {
  path: '/queue/jobs',
  params: z.strictObject({ ids: z.array(z.string()) }),
  returns: z.array(queueJob),
  ms: 10_000,
};

/** A selection of endpoints. */
interface EndpointChoice {
  readonly account?: string | undefined;
  readonly url?: string | undefined;
  readonly kinds?: Selection['kinds'];
  /** Only paused ones. */
  readonly held: boolean;
  readonly limit: number;
}

const waitingEndpoint = z.object({
  account: z.string(),
  url: z.string(),
  kind: z.enum(DELIVERY_KINDS),
  waiting: z.int(),
});
type WaitingEndpoint = z.output<typeof waitingEndpoint>;

export const LIST_ENDPOINTS: HostRpc<EndpointChoice, readonly WaitingEndpoint[]> = {
  path: '/queue/endpoints',
  params: z.strictObject({
    account: selection.shape.account,
    url: selection.shape.url,
    kinds: selection.shape.kinds,
    held: z.boolean(),
    limit: z.int(),
  }),
  returns: z.array(waitingEndpoint),
  ms: 10_000,
};

interface HostQueueDeps extends Pick<Tools, 'clock'> {
  readonly spool: Pick<Spool, 'endpoints' | 'names' | 'count' | BulkAction>;
  readonly dispatcher: Pick<Dispatcher, 'lanes' | 'probe'>;
  readonly jobs: Pick<Jobs, 'start' | 'find'>;
  readonly notes: Notes;
}

/** The owner of the jobs of operators: no account has this id, so none finds them. */
const OPERATORS = '';

/** Changes of this host's queue by operators. */
export type HostQueue = ReturnType<typeof createHostQueue>;

export function createHostQueue({ spool, dispatcher, jobs, notes, clock }: HostQueueDeps) {
  const bulk = createBulkChanges({ spool, probe: dispatcher.probe, clock });
  return frozen({
    /** Carries out a change here. Throws a refusal if more than `at_most` match, or another job runs. */
    async change({
      action,
      selections,
      dry_run: dry,
      at_most: most,
      by,
      words,
    }: QueueChangeRequest): Promise<QueueChange> {
      const { states, ended } = BULK_ACTIONS[action];
      const which = { selections };
      const { matched, byState, changed, job } = await runBulkChange(
        {
          owner: OPERATORS,
          dryRun: dry,
          atMost: most ?? undefined,
          count: () => bulk.count(action, which),
          tooMany: (text) => invalid({ at_most: `${text}; review and retry` }),
          begin: async () => (course) =>
            bulk.change(action, which, {
              ...course,
              ended(byAccount) {
                for (const [account, count] of byAccount)
                  noteAction({ notes, clock, by }, ended, count, words, account);
              },
            }),
        },
        jobs,
      );
      const counts = states.flatMap((state) => (byState[state] === 0 ? [] : [{ state, count: byState[state] }]));
      return { matched, by_state: counts, changed, job };
    },

    jobs: ({ ids }: { readonly ids: readonly string[] }): readonly QueueJob[] =>
      ids.flatMap((id) => {
        const found = jobs.find(OPERATORS, id);
        return found ? [{ id, state: found.state, done: found.done, of: found.of, error: found.error }] : [];
      }),

    /** Endpoints with waiting deliveries, with recent work, or paused. */
    async endpoints({ account, url, kinds, held, limit }: EndpointChoice): Promise<readonly WaitingEndpoint[]> {
      const isMeant = (one: Endpoint) =>
        (account === undefined || one.account === account) &&
        (url === undefined || one.url === url) &&
        (kinds === undefined || kinds.includes(one.kind));
      const found = new Map<string, WaitingEndpoint & { readonly isHeld: boolean }>();
      const summaries = await spool.endpoints();
      for (const { account, url, kind, waiting } of summaries.filter(isMeant))
        if (waiting > 0) found.set(endpointKey({ account, url }), { account, url, kind, waiting, isHeld: false });
      for (const { account, url, kind, hold } of dispatcher.lanes(isMeant)) {
        const key = endpointKey({ account, url });
        found.set(key, { account, url, kind, waiting: found.get(key)?.waiting ?? 0, isHeld: hold !== null });
      }
      return [...found.values()]
        .filter((one) => one.isHeld || !held)
        .slice(0, limit)
        .map(({ account, url, kind, waiting }) => ({ account, url, kind, waiting }));
    },
  });
}

/** A host that takes part in a change. */
export interface ChangingHost {
  readonly name: string;
  change(order: QueueChangeRequest): Promise<RpcResult<QueueChange>>;
}

/** The result of a change, or of its count, on one host. */
export const hostShare = z.object({
  name: z.string(),
  /** How many deliveries match there, were changed, or are in the job. */
  count: z.int(),
  job: z.string().nullable(),
  /** Why its part is missing. */
  error: z.string().nullable(),
});
export type HostShare = z.output<typeof hostShare>;

/**
 * Makes a change on several hosts: they count first, and each changes at most as many as it has counted. Hosts that
 * did not count change nothing.
 */
export async function changeOnHosts(
  hosts: readonly ChangingHost[],
  order: QueueChangeRequest,
): Promise<QueueChange & { hosts: HostShare[] }> {
  const { dry_run: dry, at_most: most } = order;
  const [only, ...more] = hosts;
  if (only && more.length === 0) {
    const asked = await only.change(order);
    if (asked.kind === 'refused') throw asked.refusal;
    return joined([{ name: only.name, counted: asked, asked, isChanged: !dry }], dry);
  }
  const counts = await Promise.all(
    hosts.map(async (host) => ({ host, counted: await host.change({ ...order, dry_run: true, at_most: null }) })),
  );
  const matched = counts.reduce((sum, { counted }) => sum + matchedOf(counted), 0);
  if (!dry && most !== null && matched > most)
    throw invalid({ at_most: `${matched} deliveries match now (limit ${most}); review and retry` });
  const parts = counts.map(async ({ host, counted }) => {
    const own = matchedOf(counted);
    const isChanged = !dry && own > 0;
    const asked = isChanged ? await host.change({ ...order, at_most: most === null ? null : own }) : counted;
    return { name: host.name, counted, asked, isChanged };
  });
  return joined(await Promise.all(parts), dry);
}

const matchedOf = (asked: RpcResult<QueueChange>): number => (asked.kind === 'answered' ? asked.answer.matched : 0);

interface Part {
  readonly name: string;
  readonly counted: RpcResult<QueueChange>;
  readonly asked: RpcResult<QueueChange>;
  /** Whether it was asked to change anything. */
  readonly isChanged: boolean;
}

function joined(parts: readonly Part[], dry: boolean) {
  const counted = parts.flatMap(({ counted }) => (counted.kind === 'answered' ? [counted.answer] : []));
  const byState = new Map<(typeof DELIVERY_STATES)[number], number>();
  for (const { state, count } of counted.flatMap(({ by_state: states }) => states))
    byState.set(state, (byState.get(state) ?? 0) + count);
  const hosts = parts.map((part) => toShare(part, dry));
  return {
    matched: counted.reduce((sum, one) => sum + one.matched, 0),
    by_state: DELIVERY_STATES.flatMap((state) => {
      const count = byState.get(state) ?? 0;
      return count === 0 ? [] : [{ state, count }];
    }),
    changed: dry ? 0 : hosts.reduce((sum, { count, job }) => sum + (job === null ? count : 0), 0),
    job: hosts.flatMap(({ job }) => job ?? []).join(JOB_ID_SEPARATOR) || null,
    hosts,
  };
}

function toShare({ name, asked, isChanged }: Part, dry: boolean): HostShare {
  if (asked.kind !== 'answered')
    return { name, count: 0, job: null, error: `${name} ${whyMissing(asked, 'its mail is unchanged', isChanged)}` };
  const { matched, changed, job } = asked.answer;
  return { name, count: dry || job !== null ? matched : changed, job, error: null };
}

/** The outcome of a change on this host. */
export async function changeHere(
  queue: Pick<HostQueue, 'change'>,
  order: QueueChangeRequest,
): Promise<RpcResult<QueueChange>> {
  try {
    return { kind: 'answered', answer: await queue.change(order) };
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { kind: 'refused', refusal: error };
  }
}
