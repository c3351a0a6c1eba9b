import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { text } from '../../base/schema.ts';
import type { ActionRecord } from '../../journal/types.ts';
import { isStart, jobName } from '../account-bulk.ts';
import { type Call, operation } from '../operation.ts';
import { limitOf, nextCursor, optionalCursor, str, time } from './fields.ts';

// The activity of people, and their jobs.

const actionRecord = z
  .object({
    at: time('when'),
    by: str('the actor: the first four characters of the API key, the name of a console user, or `command line`'),
    what: str('the action, such as replayed, dropped, route added or key revoked'),
    count: z.int().meta({ description: 'number of affected items' }),
    detail: str('the affected items; the id of the job comes first, if there is one'),
  })
  .meta({ title: 'action record' });

const MAX_LISTED = 200;
const DEFAULT_LISTED = 50;

const list = operation({
  path: '/actions/list',
  access: 'mail',
  extension: true,
  summary: 'Lists the actions of people and API keys in the account on this host, such as replays, newest first.',
  notes: 'Actions are kept for a year. Each host lists only its own.',
  params: { limit: limitOf(MAX_LISTED, DEFAULT_LISTED), before: optionalCursor },
  returns: z.object({ actions: z.array(actionRecord), next: nextCursor }),
  errors: [],
  example: { limit: 1 },
  async handle({ limit = DEFAULT_LISTED, before }, { history }) {
    const { rows, next } = await history.actions(limit, before);
    return {
      actions: rows.map(({ at, by, what, count, detail }) => ({
        at: toTimestamp(new Date(at)),
        by,
        what,
        count,
        detail,
      })),
      next,
    };
  },
});

export const actions = [list];

const jobInfo = operation({
  path: '/jobs/info',
  access: 'mail',
  extension: true,
  summary: 'Shows the progress of a job started by /inbound/replay, /inbound/drop or /inbound/retry.',
  notes: 'Ask the host that started the job.',
  params: { id: text(255).meta({ description: 'id of the job' }) },
  returns: z.object({
    id: str('id of the job'),
    state: z.enum(['running', 'done', 'failed', 'interrupted']).meta({
      description: 'interrupted: the process stopped or restarted before the job ended',
    }),
    done: z.int().nullable().meta({ description: 'number of processed items; null if interrupted' }),
    of: z.int().meta({ description: 'number of items in total' }),
    error: z.string().nullable().meta({ description: 'why it failed and how to continue, or null' }),
  }),
  errors: ['Unknown_Job'],
  example: { id: '01kcexamplejob000000000000' },
  async handle({ id }, call) {
    const job = call.job(id);
    if (job) return { id, state: job.state, done: job.done, of: job.of, error: job.error };
    const [started, ended] = await notesOf(id, call);
    if (!started) throw call.refuse('Unknown_Job', id);
    const of = started.count;
    return ended
      ? { id, state: 'done' as const, done: ended.count, of, error: null }
      : { id, state: 'interrupted' as const, done: null, of, error: INTERRUPTED };
  },
});

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
