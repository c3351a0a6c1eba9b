import { toTimestamp } from '../base/clock.ts';
import { type ActivityFilter, type ExportRow, type ExportType, exportId } from '../store/exports.ts';
import type { AccountStore } from '../store/store.ts';
import { refusal } from './errors.ts';

export interface ExportLimits {
  /** Jobs that an account may start in 24 hours: each is an archive on our disk. */
  readonly perDay: number;
}

/** What is to be exported. */
export interface NewExport {
  readonly type: ExportType;
  readonly notifyEmail: string | null;
  readonly filter: ActivityFilter | null;
}

/** Makes the row of a job, and has this host begin it now. Throws RequestLimitExceeded. */
export type StartExport = (job: NewExport) => Promise<ExportRow>;

const DAY_MS = 86_400_000;
/** Ids of one account that may be taken at one moment before we believe in a fault. */
const MOST_TRIES = 1000;

export function createStartExport(
  limits: ExportLimits,
  deps: { store: AccountStore; now(): Date; poke(task: string): void },
): StartExport {
  const { store, now, poke } = deps;
  return async (job) => {
    const createdAt = now();
    const today = await store.exportJobs.many(
      { createdAt: { range: { gt: new Date(createdAt.getTime() - DAY_MS) } } },
      { sort: '-createdAt', limit: limits.perDay },
    );
    if (today.length >= limits.perDay) throw refusal('RequestLimitExceeded');
    const fresh = {
      ...job,
      state: 'waiting',
      createdAt,
      finishedAt: null,
      error: null,
      holder: null,
      until: null,
      attempts: 0,
      host: null,
      file: null,
      resultUrl: null,
      tokenHash: null,
      unnotified: null,
    } as const;
    for (let n = 0; n < MOST_TRIES; n++) {
      const row = { ...fresh, id: exportId(store.account, nameAt(createdAt, n)) };
      if ((await store.exportJobs.insert(row)) === 'duplicate') continue;
      poke('run-exports');
      return { ...row, account: store.account };
    }
    throw new Error('no free id for an export');
  };
}

/**
 * An id as the public ancestor's are: the time with a fraction of five digits, of which our clock gives three; the others count
 * what came in one millisecond. It is unique in its account, sorts by time, and is no secret: only its account is shown the job.
 */
function nameAt(time: Date, n: number): string {
  const units = time.getTime() * 100 + n;
  return `${toTimestamp(new Date(Math.floor(units / 100)))}.${String(units % 100_000).padStart(5, '0')}`;
}
