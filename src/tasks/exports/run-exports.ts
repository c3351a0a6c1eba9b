import { type Clock, MAX_CLOCK_SKEW_MS } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { type Ids, tokenHash } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import type { Task } from '../../base/service.ts';
import type { Tools } from '../../base/tools.ts';
import { isNoSpace } from '../../queue/disk/faults.ts';
import type { NewNotice, Notices } from '../../sending/notices.ts';
import { type Patch, StoreAway } from '../../store/driver/port.ts';
import { type ExportRow, exportName } from '../../store/rows/exports.ts';
import type { Store } from '../../store/store.ts';
import { type ArchiveContents, contentsOf, type Formulas, toCsv } from './contents.ts';
import { createArchiveFolder, writeArchive } from './folder.ts';

export interface ExportSettings extends ClaimSettings {
  /** Folder of the archives. */
  readonly dir: string;
  /** The beginning of result URLs. */
  readonly publicUrl: string;
  readonly keepDays: number;
  /** How cells that look like formulas are written. */
  readonly formulas: Formulas;
  /** Names of metadata that become columns of every activity export. */
  readonly metadataFields: readonly string[];
}

interface ExportDeps extends Pick<Tools, 'clock' | 'ids' | 'log'> {
  readonly store: Store;
  /** Whether the disk has room for what accounts store, and for how many bytes. */
  readonly hasRoom: () => boolean;
  readonly left: () => number;
  readonly notices: Pick<Notices, 'enqueue'>;
}

/** Work on a job stopped before its end; says why. */
class Interrupted extends Error {
  readonly why: 'ending' | 'lost' | 'no-room' | 'share';
  constructor(why: Interrupted['why']) {
    super(why);
    this.why = why;
  }
}

const PROGRESS_ROWS = 100_000;
const NO_ROOM = 'There is not enough disk space for it; please start it again later';
const SHARE =
  'The archives of the account take as much disk space as is left for all; please start it again when older ' +
  'ones have expired';
const FAULT = 'An unexpected error of the service';

/**
 * Runs the waiting export jobs, one after the other. Every host does, since a job is claimed in the store before work
 * on it begins; a job whose worker died is started again when its claim has expired.
 */
export function runExportsTask(settings: ExportSettings, deps: ExportDeps): Task {
  const claims = createClaims(settings, deps);
  const notify = createNotifier(settings, deps);
  const work = createWork(settings, deps, claims);
  return {
    perHost: true,
    async run(ending) {
      const served = new Map<string, number>();
      let jobs = 0;
      for (; !ending?.aborted; jobs++) {
        const job = await claims.next(served);
        if (!job) break;
        served.set(job.account, (served.get(job.account) ?? 0) + 1);
        await work(job, ending);
        await notify();
      }
      if (jobs === 0) await notify(); // what a crash left behind
      return jobs > 0 ? { jobs } : undefined;
    },
  };
}

/** Runs one job from its claim to its end. Throws only StoreAway. */
function createWork(settings: ExportSettings, deps: ExportDeps, claims: Claims) {
  const { ids, log } = deps;
  const folder = createArchiveFolder(settings.dir);
  /** The fields that the operator configured, and those that the account added (metadata/add). */
  async function metadataFieldsOf(account: string): Promise<readonly string[]> {
    const own = await deps.store.metadataFields.many({ account }, { sort: 'createdAt' });
    return [...new Set([...settings.metadataFields, ...own.map(({ name }) => name)])];
  }

  /** Bytes of the archives of an account on this host. */
  async function heldBy(account: string): Promise<number> {
    const jobs = await deps.store.exportJobs.many({ account, state: 'complete' });
    const sizes = await Promise.all(jobs.map(({ file }) => folder.sizeOf(file ?? '')));
    return sizes.reduce((sum, size) => sum + size, 0);
  }

  return async (job: ExportRow, ending: AbortSignal | undefined): Promise<void> => {
    const about = { export: exportName(job), account: job.account, type: job.type };
    try {
      if ((await heldBy(job.account)) > deps.left()) throw new Interrupted('share');
      const contents = contentsOf(job, deps.store, new Date(deps.clock.now()), await metadataFieldsOf(job.account));
      const tally = { rows: 0 };
      const text = textOf(contents, tally, { job, claims, ending }, settings, deps);
      await folder.put(job.file ?? '', (path) =>
        writeArchive(path, { name: contents.file, time: job.createdAt }, text),
      );
      const token = ids.key();
      const done = await claims.complete(job, {
        resultUrl: `${settings.publicUrl}/exports/${token}`,
        tokenHash: tokenHash(token),
      });
      // Otherwise another worker has taken it over: our archive has no row and will be removed.
      if (done) log.info('export.complete', { ...about, rows: tally.rows });
    } catch (error) {
      await settle(error, job, about);
    }
  };

  async function settle(error: unknown, job: ExportRow, about: Readonly<Record<string, string>>): Promise<void> {
    const why = error instanceof Interrupted ? error.why : isNoSpace(error) ? 'no-room' : undefined;
    if (why === 'lost') return;
    if (why === 'ending') return void (await claims.giveBack(job));
    if (error instanceof StoreAway) {
      // If this fails too, the claim expires by itself.
      await claims.giveBack(job).catch(() => {});
      throw error;
    }
    const reason = why === 'share' ? SHARE : NO_ROOM;
    log.error('export.failed', { ...about, ...(why ? { reason } : { error }) });
    await claims.fail(job, why ? reason : FAULT);
  }
}

/** The lines as CSV, one page at a time. Checks between pages whether to continue. */
async function* textOf(
  { header, pages }: ArchiveContents,
  tally: { rows: number },
  { job, claims, ending }: { job: ExportRow; claims: Claims; ending: AbortSignal | undefined },
  { formulas }: ExportSettings,
  { hasRoom, log }: ExportDeps,
): AsyncGenerator<string> {
  yield toCsv([header], formulas);
  let logged = 0;
  for await (const page of pages) {
    if (ending?.aborted) throw new Interrupted('ending');
    if (!hasRoom()) throw new Interrupted('no-room');
    if (!(await claims.renew(job))) throw new Interrupted('lost');
    tally.rows += page.length;
    if (page.length > 0) yield toCsv(page, formulas);
    if (tally.rows - logged < PROGRESS_ROWS) continue;
    logged = tally.rows - (tally.rows % PROGRESS_ROWS);
    log.info('export.progress', { export: exportName(job), account: job.account, rows: logged });
  }
}

/** How long a claim lasts without renewal, and how often it is renewed. Milliseconds. */
const TERM_MS = 60_000;
const RENEW_MS = 20_000;
/** A job whose worker died this often is not started again: the job may be the cause. */
const MAX_ATTEMPTS = 5;
/** Waiting jobs that are read to find one whose account has had the fewest of its own run. */
const LOOK_AHEAD = 1000;

interface ClaimSettings {
  /** Identifies this process; never reused. */
  readonly holder: string;
  readonly hostname: string;
}

/** Changes the states of export jobs: each step is one atomic change that only the holder of the claim can make. */
type Claims = ReturnType<typeof createClaims>;

const UNCLAIMED = { holder: null, until: null };

/** A job as it was read: if a worker has claimed or renewed it since, the filter does not match. */
const asSeen = ({ id, state, holder, until }: ExportRow) => ({ id, state, holder, until });

function createClaims(
  { holder, hostname }: ClaimSettings,
  { store, clock, ids }: { store: Pick<Store, 'exportJobs'>; clock: Clock; ids: Ids },
) {
  const { exportJobs } = store;
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
    const mine = await exportJobs.change(asSeen(row), {
      state: 'working',
      holder,
      until: term(),
      attempts: row.attempts + 1,
      host: hostname,
      file: `${ids.key()}.zip`,
    });
    if (mine) renewedAt.set(mine.id, clock.monotonic());
    return mine;
  }

  async function orphan(): Promise<ExportRow | undefined> {
    const working = (range: { readonly lt: Date } | { readonly gt: Date }) =>
      exportJobs.many({ state: 'working', until: { range } }, { sort: 'until', limit: LOOK_AHEAD });
    const ran = await working({ lt: now() });
    const beyond = await working({ gt: new Date(clock.now() + TERM_MS + MAX_CLOCK_SKEW_MS) });
    for (const row of [...ran, ...beyond]) {
      if (row.attempts >= MAX_ATTEMPTS) {
        const error = `The export was started ${row.attempts} times and never finished`;
        await exportJobs.change(asSeen(row), { state: 'error', ...end(error, row) });
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

  return frozen({
    /** Claims a job whose worker died, or the oldest waiting one of the account served least in this run. */
    next: async (served: ReadonlyMap<string, number>): Promise<ExportRow | undefined> =>
      (await orphan()) ?? (await waiting(served)),
    /** Renews the claim if that is due. False if it was lost. */
    async renew(job: ExportRow): Promise<boolean> {
      if (clock.monotonic() - (renewedAt.get(job.id) ?? 0) < RENEW_MS) return true;
      renewedAt.set(job.id, clock.monotonic());
      return (await exportJobs.change({ id: job.id, state: 'working', holder }, { until: term() })) !== undefined;
    },
    /** Undefined if the claim was lost; then nothing was changed. The same holds for the others. */
    complete: (job: ExportRow, result: Pick<ExportRow, 'resultUrl' | 'tokenHash'>): Promise<ExportRow | undefined> =>
      settle(job, { state: 'complete', ...end(null, job), ...result }),
    fail: (job: ExportRow, error: string): Promise<ExportRow | undefined> =>
      settle(job, { state: 'error', ...end(error, job) }),
    /** Returns it to waiting, as if it had not been started. */
    giveBack: (job: ExportRow): Promise<ExportRow | undefined> =>
      settle(job, { state: 'waiting', ...UNCLAIMED, host: null, file: null, attempts: job.attempts - 1 }),
  });
}

const NOUN = { activity: 'activity', reject: 'rejection list', whitelist: 'whitelist' } as const;

/**
 * Queues the notification mails of this host's finished jobs. A job is marked until its mail is queued, so that a crash
 * in between can send it twice but never lose it.
 */
function createNotifier(
  { hostname, keepDays }: { readonly hostname: string; readonly keepDays: number },
  { store, notices, log }: { store: Pick<Store, 'exportJobs'>; notices: Pick<Notices, 'enqueue'>; log: Log },
): () => Promise<void> {
  const { exportJobs } = store;
  return async () => {
    for (const job of await exportJobs.many({ unnotified: true, host: hostname }, { sort: 'id', limit: 1000 })) {
      const notice = toNotice(job, keepDays);
      const taken = notice ? await notices.enqueue(notice) : 'queued';
      // A recipient over the limit of notices gets no mail; the job itself is not affected.
      if (taken !== 'queued')
        log.warn('export.unnotified', { export: exportName(job), account: job.account, reason: taken });
      await exportJobs.change({ id: job.id, unnotified: true }, { unnotified: null });
    }
  };
}

function toNotice(job: ExportRow, keepDays: number): NewNotice | undefined {
  if (job.notifyEmail === null) return undefined;
  const about = `Your ${NOUN[job.type]} export, started at ${exportName(job).slice(0, 19)} UTC`;
  const to = { account: job.account, to: job.notifyEmail };
  if (job.state === 'complete' && job.resultUrl !== null) {
    return {
      ...to,
      subject: `Your ${NOUN[job.type]} export is ready`,
      text:
        `${about}, is ready. Download it within ${keepDays} ${keepDays === 1 ? 'day' : 'days'}:\n\n` +
        `${job.resultUrl}\n\nAnyone with this link can download it.\n`,
    };
  }
  return {
    ...to,
    subject: `Your ${NOUN[job.type]} export has failed`,
    text: `${about}, failed: ${job.error ?? 'it was cancelled'}. Start it again.\n`,
  };
}
