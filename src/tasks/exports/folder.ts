import { createWriteStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ZipFile } from 'yazl';
import { type Clock, DAY_MS } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import type { RunningTime } from '../../base/running-time.ts';
import type { Task } from '../../base/service.ts';
import { syncFolder } from '../../queue/disk/folder.ts';
import { createSteadiness } from '../../queue/purge.ts';
import { type ExportRow, exportName } from '../../store/rows/exports.ts';
import type { Store } from '../../store/store.ts';

/** The format of our file names; anything else in the folder is left alone. */
const OURS = /^[\w-]+\.zip(?:\.tmp)?$/;

/** The folder of the archives on this host. A file without `.tmp` is complete and on the disk. */
export function createArchiveFolder(dir: string) {
  return frozen({
    /** Calls `write` with a temporary path and renames the archive when it is complete. */
    async put(name: string, write: (path: string) => Promise<void>) {
      await mkdir(dir, { recursive: true, mode: 0o700 });
      const path = join(dir, name);
      try {
        await write(`${path}.tmp`);
        await rename(`${path}.tmp`, path);
      } catch (error) {
        await rm(`${path}.tmp`, { force: true });
        throw error;
      }
      // The new name is durable only when the folder is synced.
      await syncFolder(dir);
    },
    /** Names of archives, complete or not. */
    async names(): Promise<string[]> {
      const names = await readdir(dir).catch((error: unknown) => {
        if (hasCode(error, 'ENOENT')) return [];
        throw error;
      });
      return [...new Set(names.filter((name) => OURS.test(name)).map((name) => name.replace(/\.tmp$/, '')))];
    },
    async remove(name: string) {
      await rm(join(dir, name), { force: true });
      await rm(join(dir, `${name}.tmp`), { force: true });
    },
    /** Bytes of an archive; 0 if it is not on this host. */
    async sizeOf(name: string): Promise<number> {
      if (!OURS.test(name)) return 0;
      return (await stat(join(dir, name)).catch(() => undefined))?.size ?? 0;
    },
  });
}

/** The one file in an archive. */
interface Entry {
  readonly name: string;
  readonly time: Date;
}

/**
 * Writes a zip archive with one file, whose text is read in pieces and as fast as the disk accepts it, and syncs it.
 * Throws what the disk or the source of the text throws; then the file is incomplete. The length is not known before
 * the end, so it follows the data (bit 3 of the flags, APPNOTE 4.4.4); beyond 4 GiB yazl writes ZIP64. Compression
 * happens in the thread pool of libuv.
 */
export async function writeArchive(path: string, entry: Entry, text: AsyncIterable<string>): Promise<void> {
  const zip = new ZipFile();
  const source = Readable.from(text);
  const failing = new AbortController();
  // yazl connects its streams with pipe(), which does not forward errors.
  source.once('error', (error) => failing.abort(error));
  zip.once('error', (error) => failing.abort(error));
  zip.addReadStream(source, entry.name, { mtime: entry.time, mode: 0o100600 });
  zip.end();
  try {
    // `flush` syncs before it closes, and closing is awaited: errors of the sync are thrown here.
    await pipeline(zip.outputStream, createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true }), {
      signal: failing.signal,
    });
  } catch (error) {
    throw failing.signal.aborted ? failing.signal.reason : error;
  } finally {
    source.destroy();
  }
}

/** How long a finished job stays in the list. */
const KEEP_ROWS_DAYS = 90;
const STEP = 100;

/** Expires archives after `keepDays`, deletes old jobs, and removes the files of this host that no job needs. */
export function expireExportsTask(
  { dir, keepDays }: { readonly dir: string; readonly keepDays: number },
  {
    store: { exportJobs },
    clock,
    log,
    time,
  }: { store: Pick<Store, 'exportJobs'>; clock: Clock; log: Log; time: Pick<RunningTime, 'believed'> },
): Task {
  const folder = createArchiveFolder(dir);
  const isSteady = createSteadiness(clock, time);

  /** Calls `step`, which must change its state, for every job in this state that ended over `days` days ago. */
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

  /** Removes files without a complete or running job, which will not be fetched. */
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
    // Each step is one atomic change, so hosts may run it concurrently; and the files belong to this host alone.
    perHost: true,
    async run() {
      if (!isSteady()) return undefined;
      const expired = await each('complete', keepDays, async (job) => {
        // The hash of the token stays, so that later requests learn that the export has expired.
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
