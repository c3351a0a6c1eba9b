import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { type ExportRow, exportName } from '../../store/exports.ts';
import type { Store } from '../../store/store.ts';
import { type Belief, createSteadiness } from '../purge.ts';
import type { Task } from '../task.ts';
import { createArchiveFolder } from './folder.ts';

const DAY_MS = 86_400_000;
/** How long a job that is over stays in the list. */
const KEEP_ROWS_DAYS = 90;
const STEP = 100;

/** Expires archives after days, forgets old jobs, and removes the files of this host that no job needs. */
export function expireExportsTask(
  settings: { readonly dir: string; readonly keepDays: number },
  deps: { store: Pick<Store, 'exportJobs'>; clock: Clock; log: Log; time?: Belief },
): Task {
  const {
    store: { exportJobs },
    clock,
    log,
  } = deps;
  const folder = createArchiveFolder(settings.dir);
  const isSteady = createSteadiness(clock, deps.time);

  /** Does something to every job in this state that ended before a time. `step` makes the row match no more. */
  async function each(
    state: ExportRow['state'],
    days: number,
    step: (job: ExportRow) => Promise<unknown>,
  ): Promise<number> {
    const lt = new Date(clock.now() - days * DAY_MS);
    for (let count = 0; ; ) {
      const jobs = await exportJobs.many({ state, finishedAt: { range: { lt } } }, { sort: 'finishedAt', limit: STEP });
      for (const job of jobs) await step(job);
      count += jobs.length;
      if (jobs.length < STEP) return count;
    }
  }

  /** A file may go when no job names it that is complete or being worked on: whatever else became of it, nobody will fetch it. */
  async function clean(): Promise<number> {
    let removed = 0;
    for (const name of await folder.names()) {
      const job = await exportJobs.one({ file: name });
      if (job?.state === 'complete' || job?.state === 'working') continue;
      await folder.remove(name);
      removed++;
    }
    return removed;
  }

  return {
    name: 'expire-exports',
    schedule: '*/10 * * * *',
    // Each step is one atomic change, so hosts may do it at once; and the files are this host's alone.
    perHost: true,
    async run() {
      if (!isSteady()) return undefined;
      const expired = await each('complete', settings.keepDays, async (job) => {
        // The archive's hash of the token stays, so that who comes late is told what happened.
        if (await exportJobs.change({ id: job.id, state: 'complete' }, { state: 'expired', resultUrl: null }))
          log.info('export.expired', { export: exportName(job), account: job.account });
      });
      const forget = (job: ExportRow) => exportJobs.remove({ id: job.id, state: job.state });
      const forgotten = (await each('expired', KEEP_ROWS_DAYS, forget)) + (await each('error', KEEP_ROWS_DAYS, forget));
      const removed = await clean();
      return expired + forgotten + removed > 0 ? { expired, forgotten, removed } : undefined;
    },
  };
}
