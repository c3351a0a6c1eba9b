import { AGREE_MS, type Clock } from '../../base/clock.ts';
import type { Ids } from '../../base/ids.ts';
import type { Patch } from '../../store/collection.ts';
import type { ExportRow } from '../../store/exports.ts';
import type { Store } from '../../store/store.ts';

/** How long a worker that is not heard of counts as alive, and how often it lets itself be heard. Milliseconds. */
const TERM_MS = 60_000;
const RENEW_MS = 20_000;
/** A job whose worker died this often is not begun again: it may be what kills it. */
const MOST_ATTEMPTS = 5;
/** Waiting jobs that are looked at to find one whose account has had the fewest of its own run. */
const LOOK_AHEAD = 1000;

export interface ClaimSettings {
  /** One life of one process, never used again. */
  readonly holder: string;
  readonly hostname: string;
}

/** The states of export jobs, and who moves them: each step is one atomic change that only the holder of the claim can make. */
export interface Claims {
  /** Claims a job whose worker died, or a waiting one: the oldest of the account that was served least in this run. */
  next(served: ReadonlyMap<string, number>): Promise<ExportRow | undefined>;
  /** Says that we still work on it, when that is due. False: it is ours no more. */
  renew(job: ExportRow): Promise<boolean>;
  /** Undefined: it was ours no more, and nothing was changed; so with the others. */
  complete(job: ExportRow, result: Pick<ExportRow, 'resultUrl' | 'tokenHash'>): Promise<ExportRow | undefined>;
  fail(job: ExportRow, error: string): Promise<ExportRow | undefined>;
  /** Lets it wait again, as if it had not been begun. */
  giveBack(job: ExportRow): Promise<ExportRow | undefined>;
}

const UNCLAIMED = { holder: null, until: null };

export function createClaims(
  settings: ClaimSettings,
  deps: { store: Pick<Store, 'exportJobs'>; clock: Clock; ids: Ids },
): Claims {
  const { holder, hostname } = settings;
  const {
    store: { exportJobs },
    clock,
    ids,
  } = deps;
  const renewedAt = new Map<string, number>();
  const now = () => new Date(clock.now());
  const term = () => new Date(clock.now() + TERM_MS);
  const end = (error: string | null, job: ExportRow) => ({
    ...UNCLAIMED,
    finishedAt: now(),
    error,
    unnotified: job.notifyEmail === null ? null : true,
  });
  const settle = (job: ExportRow, patch: Patch<ExportRow>) => {
    renewedAt.delete(job.id);
    return exportJobs.change({ id: job.id, state: 'working', holder }, patch);
  };

  async function claim(row: ExportRow): Promise<ExportRow | undefined> {
    const mine = await exportJobs.change(
      { id: row.id, state: row.state, holder: row.holder, until: row.until },
      {
        state: 'working',
        holder,
        until: term(),
        attempts: row.attempts + 1,
        host: hostname,
        file: `${ids.key()}.zip`,
      },
    );
    if (mine) renewedAt.set(mine.id, clock.monotonic());
    return mine;
  }

  async function orphan(): Promise<ExportRow | undefined> {
    const ran = await exportJobs.many(
      { state: 'working', until: { range: { lt: now() } } },
      { sort: 'until', limit: LOOK_AHEAD },
    );
    const far = new Date(clock.now() + TERM_MS + AGREE_MS);
    const beyond = await exportJobs.many(
      { state: 'working', until: { range: { gt: far } } },
      { sort: 'until', limit: LOOK_AHEAD },
    );
    for (const row of [...ran, ...beyond]) {
      if (row.attempts >= MOST_ATTEMPTS) {
        const error = `The export was begun ${row.attempts} times and never came to its end`;
        await exportJobs.change(
          { id: row.id, state: 'working', holder: row.holder, until: row.until },
          { state: 'error', ...end(error, row) },
        );
        continue;
      }
      const mine = await claim(row);
      if (mine) return mine;
    }
    return undefined;
  }

  async function waiting(served: ReadonlyMap<string, number>): Promise<ExportRow | undefined> {
    const rows = await exportJobs.many({ state: 'waiting' }, { sort: 'createdAt', limit: LOOK_AHEAD });
    for (const row of rows.toSorted((a, b) => (served.get(a.account) ?? 0) - (served.get(b.account) ?? 0))) {
      const mine = await claim(row);
      if (mine) return mine;
    }
    return undefined;
  }

  return Object.freeze({
    next: async (served: ReadonlyMap<string, number>) => (await orphan()) ?? (await waiting(served)),
    async renew(job: ExportRow) {
      if (clock.monotonic() - (renewedAt.get(job.id) ?? 0) < RENEW_MS) return true;
      renewedAt.set(job.id, clock.monotonic());
      return (await exportJobs.change({ id: job.id, state: 'working', holder }, { until: term() })) !== undefined;
    },
    complete: (job: ExportRow, result: Pick<ExportRow, 'resultUrl' | 'tokenHash'>) =>
      settle(job, { state: 'complete', ...end(null, job), ...result }),
    fail: (job: ExportRow, error: string) => settle(job, { state: 'error', ...end(error, job) }),
    giveBack: (job: ExportRow) =>
      settle(job, { state: 'waiting', ...UNCLAIMED, host: null, file: null, attempts: job.attempts - 1 }),
  });
}
