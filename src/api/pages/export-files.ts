import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import { toTimestamp } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import {
  type ActivityFilter,
  type ExportRow,
  type ExportType,
  exportId,
  exportName,
  tokenHash,
} from '../../store/rows/exports.ts';
import type { AccountStore, Store } from '../../store/store.ts';
import { refusal } from '../errors.ts';

export interface ExportFileSettings {
  readonly hostname: string;
  /** Where the archives of this host are. */
  readonly exportsDir: string;
}

/** What of a request and its answer is needed here. */
export interface FileContext {
  readonly method: string;
  set(headers: Record<string, string>): void;
  attachment(name: string): void;
  status: number;
  type: string;
  length: number | undefined;
  body: unknown;
}

/** Answers GET and HEAD of a result URL: the token is the only credential, and all that is looked at. */
export type ExportFiles = (ctx: FileContext, token: string) => Promise<void>;

export function createExportFiles(
  settings: ExportFileSettings,
  deps: { store: Pick<Store, 'exportJobs'>; log: Log },
): ExportFiles {
  return async (ctx, token) => {
    ctx.set({
      'Cache-Control': 'no-store',
      'Content-Security-Policy': "default-src 'none'; sandbox",
      'Referrer-Policy': 'no-referrer',
      'X-Robots-Tag': 'noindex',
    });
    // Whatever the token looks like, it is hashed and asked for: no answer comes faster than another.
    const job = await deps.store.exportJobs.one({ tokenHash: tokenHash(token) });
    if (!job) return say(ctx, 404, 'There is no export at this address.');
    if (job.state !== 'complete')
      return say(ctx, 410, 'This export has expired, and its archive is gone. Start the export again.');
    if (job.host !== settings.hostname) {
      // 404, so that a proxy in front of several hosts can be told to try the next one.
      return say(
        ctx,
        404,
        `This archive is on the host ${job.host ?? ''}. Fetch it there: by the result_url as /exports/info shows it, which must lead to that host (its setting public_url).`,
      );
    }
    const archive = await openArchive(settings.exportsDir, job);
    if (!archive) return say(ctx, 410, 'The archive of this export is no longer on this host. Start the export again.');
    await send(ctx, job, archive);
    deps.log.info('export.fetched', { export: exportName(job), account: job.account, method: ctx.method });
  };
}

/** The name of the file is one that we chose, and stands in our row; nothing of the request gets here. */
async function openArchive(dir: string, { file }: ExportRow): Promise<FileHandle | undefined> {
  try {
    return await open(join(dir, file ?? ''), 'r');
  } catch {
    return undefined;
  }
}

async function send(ctx: FileContext, job: ExportRow, archive: FileHandle): Promise<void> {
  const { size } = await archive.stat();
  ctx.status = 200;
  // The ancestor's name, colons and all: a header may hold them in quotes, and browsers on systems that may not replace them.
  ctx.attachment(`${job.type}-${toTimestamp(job.createdAt).replace(' ', '_')}.zip`);
  ctx.type = 'application/zip';
  // The stream closes the file, also when the other end is gone. For HEAD nobody would read it.
  if (ctx.method === 'HEAD') await archive.close();
  else ctx.body = archive.createReadStream();
  ctx.length = size;
}

function say(ctx: FileContext, status: number, text: string): void {
  ctx.status = status;
  ctx.type = 'text/plain; charset=utf-8';
  ctx.body = `${text}\n`;
}

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
