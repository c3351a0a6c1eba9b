import { type FileHandle, open } from 'node:fs/promises';
import { join } from 'node:path';
import type { Context } from 'koa';
import { toTimestamp } from '../../base/clock.ts';
import { tokenHash } from '../../base/ids.ts';
import { type ExportRow, exportName } from '../../store/rows/exports.ts';
import type { PageDeps } from './index.ts';
import { answerLine } from './small-page.ts';

export interface ExportFileSettings {
  readonly hostname: string;
  readonly exportsDir: string;
}

/**
 * Answers GET and HEAD of a result URL; the token is the only credential. `fetch` gets an archive from the host that
 * has it; false if it does not answer.
 */
export function createExportFiles(settings: ExportFileSettings, deps: Pick<PageDeps, 'store' | 'log'>) {
  return async (ctx: Context, token: string, fetch?: (host: string) => Promise<boolean>): Promise<void> => {
    ctx.set({
      'Cache-Control': 'no-store',
      'Content-Security-Policy': "default-src 'none'; sandbox",
      'Referrer-Policy': 'no-referrer',
      'X-Robots-Tag': 'noindex',
    });
    // Every token is hashed and looked up, even a malformed one, so that the response time reveals nothing.
    const job = await deps.store.exportJobs.one({ tokenHash: tokenHash(token) });
    if (!job) return answerLine(ctx, 404, 'There is no export at this address.');
    if (job.state !== 'complete')
      return answerLine(ctx, 410, 'This export has expired, and its archive is gone. Start the export again.');
    if (job.host !== settings.hostname) {
      if (job.host && (await fetch?.(job.host))) return;
      // 404, so that a proxy in front of several hosts can be configured to try the next one.
      const text =
        `This archive is on the host ${job.host ?? ''}. Fetch it there, with the result_url that /exports/info ` +
        'shows; that URL must lead to that host (its setting public_url).';
      return answerLine(ctx, 404, text);
    }
    const archive = await openArchive(settings.exportsDir, job);
    if (!archive)
      return answerLine(ctx, 410, 'The archive of this export is no longer on this host. Start the export again.');
    await send(ctx, job, archive);
    deps.log.info('export.fetched', { export: exportName(job), account: job.account, method: ctx.method });
  };
}

/** The file name is ours and comes from our row; nothing of the request reaches it. */
async function openArchive(dir: string, { file }: ExportRow): Promise<FileHandle | undefined> {
  try {
    return await open(join(dir, file ?? ''), 'r');
  } catch {
    return undefined;
  }
}

async function send(ctx: Context, job: ExportRow, archive: FileHandle): Promise<void> {
  const { size } = await archive.stat();
  ctx.status = 200;
  // Mandrill's file name, colons included, which browsers replace where the file system does not allow them.
  ctx.attachment(`${job.type}-${toTimestamp(job.createdAt).replace(' ', '_')}.zip`);
  ctx.type = 'application/zip';
  // The stream closes the file, even if the client disconnects. For HEAD there is no stream.
  if (ctx.method === 'HEAD') await archive.close();
  else ctx.body = archive.createReadStream();
  ctx.length = size;
}
