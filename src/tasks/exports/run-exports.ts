import type { Clock } from '../../base/clock.ts';
import type { Ids } from '../../base/ids.ts';
import type { Log } from '../../base/log.ts';
import type { Notices } from '../../outbound/types.ts';
import { StoreAway } from '../../store/collection.ts';
import { type ExportRow, exportName, tokenHash } from '../../store/exports.ts';
import type { Store } from '../../store/store.ts';
import type { Task } from '../task.ts';
import { writeArchive } from './archive.ts';
import { type ClaimSettings, type Claims, createClaims } from './claims.ts';
import { type Contents, contentsOf } from './contents.ts';
import { type Formulas, toCsv } from './csv.ts';
import { createArchiveFolder } from './folder.ts';
import { createNotifier } from './notify.ts';

export interface ExportSettings extends ClaimSettings {
  /** Folder of the archives. */
  readonly dir: string;
  /** What a result URL begins with. */
  readonly publicUrl: string;
  readonly keepDays: number;
  /** What becomes of cells that look like formulas. */
  readonly formulas: Formulas;
  /** Names of metadata that become columns of every activity export. */
  readonly metadataFields: readonly string[];
}

export interface ExportDeps {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** Whether the disk has room for more than the mail. */
  readonly hasRoom: () => boolean;
  readonly notices: Pick<Notices, 'enqueue'>;
}

/** Why work on a job ends before its end. */
class Interrupted extends Error {
  readonly why: 'ending' | 'lost' | 'no-room';
  constructor(why: Interrupted['why']) {
    super(why);
    this.why = why;
  }
}

const PROGRESS_ROWS = 100_000;
const NO_ROOM = 'There is no room for it on the disk; please start it again later';
const FAULT = 'An unexpected error of the service';

/**
 * Runs the export jobs that wait, one after the other. Every host does, since a job is claimed in the store before work on it begins;
 * a job whose worker died is taken up again when its claim has run out.
 */
export function runExportsTask(settings: ExportSettings, deps: ExportDeps): Task {
  const claims = createClaims(settings, deps);
  const notify = createNotifier(settings, deps);
  const work = createWork(settings, deps, claims);
  return {
    name: 'run-exports',
    schedule: '* * * * *',
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

/** Does one job from its claim to its end. Throws StoreAway, and nothing else. */
function createWork(settings: ExportSettings, deps: ExportDeps, claims: Claims) {
  const { ids, log } = deps;
  const folder = createArchiveFolder(settings.dir);
  /** Those of the operator, and those that the account added (metadata/add). */
  async function metadataFieldsOf(account: string): Promise<readonly string[]> {
    const own = await deps.store.metadataFields.many({ account }, { sort: 'createdAt' });
    return [...new Set([...settings.metadataFields, ...own.map(({ name }) => name)])];
  }

  return async (job: ExportRow, ending: AbortSignal | undefined): Promise<void> => {
    const about = { export: exportName(job), account: job.account, type: job.type };
    try {
      const contents = contentsOf(job, deps.store, new Date(deps.clock.now()), await metadataFieldsOf(job.account));
      const tally = { rows: 0 };
      const text = textOf(contents, tally, {
        job,
        claims,
        log,
        ending,
        hasRoom: deps.hasRoom,
        formulas: settings.formulas,
      });
      await folder.put(job.file ?? '', (path) =>
        writeArchive(path, { name: contents.file, time: job.createdAt }, text),
      );
      const token = ids.key();
      const done = await claims.complete(job, {
        resultUrl: `${settings.publicUrl}/exports/${token}`,
        tokenHash: tokenHash(token),
      });
      // Else another has taken it up: our archive has no row, and is cleaned away.
      if (done) log.info('export.complete', { ...about, rows: tally.rows });
    } catch (error) {
      await settle(error, job, about);
    }
  };

  async function settle(error: unknown, job: ExportRow, about: Readonly<Record<string, string>>): Promise<void> {
    const why = error instanceof Interrupted ? error.why : isFull(error) ? 'no-room' : undefined;
    if (why === 'lost') return;
    if (why === 'ending') return void (await claims.giveBack(job));
    if (error instanceof StoreAway) {
      // If this fails too, the claim runs out by itself.
      await claims.giveBack(job).catch(() => {});
      throw error;
    }
    log.error('export.failed', { ...about, ...(why ? { reason: NO_ROOM } : { error }) });
    await claims.fail(job, why ? NO_ROOM : FAULT);
  }
}

interface Guards {
  readonly job: ExportRow;
  readonly claims: Claims;
  readonly log: Log;
  readonly ending: AbortSignal | undefined;
  readonly hasRoom: () => boolean;
  readonly formulas: Formulas;
}

/** The lines as CSV, a page at a time. Between pages it looks whether to go on. */
async function* textOf({ header, pages }: Contents, tally: { rows: number }, guards: Guards): AsyncGenerator<string> {
  const { job, claims, log, ending, hasRoom, formulas } = guards;
  yield toCsv([header], formulas);
  let told = 0;
  for await (const page of pages) {
    if (ending?.aborted) throw new Interrupted('ending');
    if (!hasRoom()) throw new Interrupted('no-room');
    if (!(await claims.renew(job))) throw new Interrupted('lost');
    tally.rows += page.length;
    if (page.length > 0) yield toCsv(page, formulas);
    if (tally.rows - told < PROGRESS_ROWS) continue;
    told = tally.rows - (tally.rows % PROGRESS_ROWS);
    log.info('export.progress', { export: exportName(job), account: job.account, rows: told });
  }
}

function isFull(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT');
}
