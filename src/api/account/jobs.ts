import { createBoundedCache } from '../../base/cache.ts';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import { JournalAway } from '../../journal/journal.ts';
import type { BulkCount, BulkOptions } from '../../queue/bulk-changes.ts';
import { StoreAway } from '../../store/driver/port.ts';
import { tooMany } from '../errors.ts';

/** Work of an account that continues after its call was answered. It ends with the process. */
interface Job {
  readonly id: string;
  readonly account: string;
  readonly done: number;
  readonly of: number;
  readonly state: 'running' | 'done' | 'failed';
  /** Why it failed. */
  readonly error: string | null;
}

/** Through this the work of a job reports its progress. */
interface JobProgress {
  /** Reports how many deliveries have been changed so far. */
  done(count: number): void;
  /** Whether the process is stopping, so that the job must end. */
  stopping(): boolean;
}

export type Jobs = ReturnType<typeof createJobs>;

const MAX_RUNNING = 20;
const MAX_REMEMBERED = 1000;
/** Seconds after which a client may try again. */
const RETRY_S = 10;
const FAILED = 'Something failed on this host. Make the same call again: it goes on with what is left.';

export function createJobs({ clock, ids, log }: Pick<Tools, 'clock' | 'ids' | 'log'>) {
  const known = createBoundedCache<Job>({ most: MAX_REMEMBERED });
  const running = new Map<string, Promise<void>>(); // by account
  let stopping = false;

  async function run(job: Job, work: (id: string, progress: JobProgress) => Promise<void>): Promise<void> {
    const keep = (change: Partial<Job>) => known.set(job.id, { ...(known.get(job.id) ?? job), ...change });
    const began = clock.now();
    try {
      await work(job.id, { done: (done) => keep({ done }), stopping: () => stopping });
      keep({ state: 'done' });
    } catch (error) {
      const isAway = error instanceof StoreAway || error instanceof JournalAway;
      log[isAway ? 'warn' : 'error']('api.fault', { part: 'job', job: job.id, ms: clock.now() - began, error });
      keep({ state: 'failed', error: FAILED });
    } finally {
      running.delete(job.account);
    }
  }

  return frozen({
    /** Starts a job. Throws RequestLimitExceeded if the account has one that runs, or the host has too many. */
    start(account: string, of: number, work: (id: string, progress: JobProgress) => Promise<void>) {
      if (running.has(account) || running.size >= MAX_RUNNING) throw tooMany(RETRY_S);
      const job: Job = { id: ids.message(), account, done: 0, of, state: 'running', error: null };
      known.set(job.id, job);
      running.set(account, run(job, work));
      return job;
    },
    /** Undefined if this process does not know it, or it is another account's. */
    find(account: string, id: string) {
      const job = known.get(id);
      return job?.account === account ? job : undefined;
    },
    /** Ends running jobs between two steps. */
    async stop() {
      stopping = true;
      await Promise.all(running.values());
    },
  });
}

// A call that changes many deliveries, of an account or of the host: the number first, then the change.

/** More deliveries than this are changed by a job, which continues after the call is answered. */
export const MAX_AT_ONCE = 1000;

export interface BulkRequest {
  /** The owner of the job. */
  readonly owner: string;
  readonly dryRun: boolean | undefined;
  /** Nothing is changed if more match. */
  readonly atMost: number | undefined;
  count(): Promise<BulkCount>;
  /** Creates the error of a call that would change more. */
  tooMany(text: string): Error;
  /** Called before the change. Returns the function that makes it and notes it. */
  begin(): Promise<(course: BulkOptions, job?: Pick<Job, 'id' | 'of'>) => Promise<number>>;
}

/** Counts the matching deliveries and, except in a dry run, changes them now (`changed`) or starts a job (`job`). */
export async function runBulkChange(order: BulkRequest, jobs: Pick<Jobs, 'start'>) {
  const counted = await order.count();
  const { matched } = counted;
  const { atMost: most } = order;
  if (order.dryRun || matched === 0) return { ...counted, changed: 0, job: null };
  if (most !== undefined && matched > most) throw order.tooMany(`${matched} deliveries match now (limit ${most})`);
  const change = await order.begin();
  if (matched <= MAX_AT_ONCE) return { ...counted, changed: await change({ most }), job: null };
  const job = jobs.start(order.owner, matched, async (id, { done, stopping }) => {
    await change({ most, progress: done, stopping }, { id, of: matched });
  });
  return { ...counted, changed: 0, job: job.id };
}
