import { z } from 'zod';
import { text } from '../../base/schema.ts';
import type { ActionRecord } from '../../journal/types.ts';
import { isStart, jobName } from '../account/account-bulk.ts';
import { askAll, cursoredPage, joinPages, localCursor } from '../hosts/join-hosts.ts';
import { type Call, operation } from '../operation.ts';
import { JOB_ID_SEPARATOR } from './bulk.ts';
import {
  ALL_HOSTS,
  cursorOfHosts,
  int,
  intOrNull,
  limitOf,
  nextOfHosts,
  record,
  str,
  strOrNull,
  time,
  toTime,
} from './fields.ts';

// The activity of people, and their jobs.

const actionRecord = record('action record', {
  at: time('when'),
  by: str('the actor: the first four characters of the API key, the name of a console user, or `command line`'),
  what: str('the action, such as replayed, dropped, route added or key revoked'),
  count: int('number of affected items'),
  detail: str('the affected items; the id of the job comes first, if there is one'),
});

const MAX_LISTED = 200;

const listing = { limit: limitOf(MAX_LISTED, 50), before: cursorOfHosts };

async function findActions({ limit, before }: z.output<z.ZodObject<typeof listing>>, call: Call<never>) {
  const { rows, next } = await call.history.actions(limit, localCursor(before, call));
  return {
    rows: rows.map(({ n, at, by, what, count, detail }) => ({
      n,
      at,
      record: { at: toTime(at), by, what, count, detail },
    })),
    next,
  };
}

const list = operation({
  path: '/actions/list',
  access: 'mail',
  extension: true,
  summary: 'Lists the actions of people and API keys in the account, such as replays, newest first.',
  notes: `Actions are kept for a year. ${ALL_HOSTS}`,
  params: listing,
  returns: z.object({ actions: z.array(actionRecord), next: nextOfHosts }),
  example: { limit: 1 },
  async handle(given, call) {
    const { rows, next } = await findActions(given, call);
    return { actions: rows.map(({ record }) => record), next };
  },
  across: {
    part: cursoredPage(actionRecord),
    own: findActions,
    async join(hosts, { before, limit }) {
      const { records, next } = await joinPages(hosts, { before, limit });
      return { actions: records, next };
    },
  },
});

export const actions = [list];

export const jobRecord = z.object({
  id: str('id of the job'),
  state: z
    .enum(['running', 'done', 'failed', 'interrupted'])
    .describe('interrupted: the process stopped or restarted before the job ended'),
  done: intOrNull('number of processed items; null if interrupted'),
  of: int('number of items in total'),
  error: strOrNull('why it failed and how to continue, or null'),
});
type JobRecord = z.output<typeof jobRecord>;

/** Maximum jobs of one change on several hosts. */
export const MAX_JOBS = 100;

const jobInfo = operation({
  path: '/jobs/info',
  access: 'mail',
  extension: true,
  summary: 'Shows the progress of a job started by /inbound/replay, /inbound/drop or /inbound/retry.',
  params: { id: text(30 * MAX_JOBS).describe('id of the job; of several hosts, ids separated by commas') },
  returns: jobRecord,
  notHereError: 'Unknown_Job',
  example: { id: '01kcexamplejob000000000000' },
  handle: async ({ id }, call) => joinJobs(id, await jobsHere(id, call)),
  across: {
    part: z.array(jobRecord),
    own: ({ id }, call) => jobsHere(id, call),
    async join(hosts, { id }) {
      const found = (await askAll(hosts)).flat();
      return found.length === 0 ? undefined : joinJobs(id, found);
    },
  },
});

/** The jobs of a list of ids that this host knows. Throws Unknown_Job if it knows none. */
async function jobsHere(id: string, call: Call<'Unknown_Job'>): Promise<JobRecord[]> {
  const found: JobRecord[] = [];
  for (const one of id.split(JOB_ID_SEPARATOR).slice(0, MAX_JOBS)) {
    const record = await jobHere(one, call);
    if (record) found.push(record);
  }
  if (found.length === 0) throw call.refuse('Unknown_Job', id);
  return found;
}

async function jobHere(id: string, call: Call<never>): Promise<JobRecord | undefined> {
  const job = call.job(id);
  if (job) return { id, state: job.state, done: job.done, of: job.of, error: job.error };
  const [started, ended] = await notesOf(id, call);
  if (!started) return undefined;
  const of = started.count;
  return ended
    ? { id, state: 'done', done: ended.count, of, error: null }
    : { id, state: 'interrupted', done: null, of, error: INTERRUPTED };
}

/** The jobs of one change; one whose host does not answer counts as interrupted. */
export function joinJobs(id: string, found: readonly JobRecord[]): JobRecord {
  const all = found.length === id.split(JOB_ID_SEPARATOR).length;
  const states: readonly JobRecord['state'][] = ['running', 'failed', 'interrupted', 'done'];
  const known = found.map(({ state }) => state);
  const state = states.find((one) => known.includes(one) || (one === 'interrupted' && !all)) ?? 'done';
  return {
    id,
    state,
    done: state === 'interrupted' ? null : found.reduce((sum, { done }) => sum + (done ?? 0), 0),
    of: found.reduce((sum, one) => sum + one.of, 0),
    error: found.find(({ error }) => error !== null)?.error ?? (state === 'interrupted' ? INTERRUPTED : null),
  };
}

const INTERRUPTED = 'The process was stopped or restarted. Make the same call again to process the remaining items.';
/** Actions searched for a job that this process does not know. */
const MAX_LOOKED_AT = 1000;

/** The history's entries about a job of an earlier process. */
async function notesOf(
  id: string,
  { history }: Call<never>,
): Promise<readonly [started: ActionRecord | undefined, ended: ActionRecord | undefined]> {
  let cursor: number | undefined;
  let ended: ActionRecord | undefined;
  for (let seen = 0; seen < MAX_LOOKED_AT; ) {
    const { rows, next } = await history.actions(MAX_LISTED, cursor);
    for (const one of rows) {
      if (!one.detail.startsWith(`${jobName(id)}:`)) continue;
      if (isStart(one)) return [one, ended];
      ended = one;
    }
    if (next === null) break;
    seen += MAX_LISTED;
    cursor = next;
  }
  return [undefined, undefined];
}

export const jobs = [jobInfo];
