import { frozen } from '../base/frozen.ts';
import { createMemory } from '../base/memory.ts';
import type { Tools } from '../base/tools.ts';
import { JournalAway } from '../journal/journal.ts';
import { StoreAway } from '../store/driver/port.ts';
import { tooMany } from './errors.ts';

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

/** What a job is given. */
interface JobProgress {
  /** Says how much has been done so far. */
  done(count: number): void;
  /** Whether the process is being stopped, so that the job must end. */
  stopping(): boolean;
}

export type Jobs = ReturnType<typeof createJobs>;

const MAX_RUNNING = 20;
const MAX_REMEMBERED = 1000;
/** Seconds after which a client may try again. */
const RETRY_S = 10;
const FAILED = 'Something failed on this host. Make the same call again: it goes on with what is left.';

export function createJobs({ clock, ids, log }: Pick<Tools, 'clock' | 'ids' | 'log'>) {
  const known = createMemory<Job>({ most: MAX_REMEMBERED });
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
    /** Ends the jobs that run, between two steps. */
    async stop() {
      stopping = true;
      await Promise.all(running.values());
    },
  });
}
