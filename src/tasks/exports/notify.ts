import type { Log } from '../../base/log.ts';
import type { NewNotice, Notices } from '../../outbound/types.ts';
import { type ExportRow, exportName } from '../../store/exports.ts';
import type { Store } from '../../store/store.ts';

const NOUN = { activity: 'activity', reject: 'rejection blacklist', whitelist: 'rejection whitelist' } as const;

/**
 * Hands over the notification mails of this host's jobs that have ended. A job is marked until its mail was taken, so that a crash
 * in between can send it twice, and never not at all.
 */
export function createNotifier(
  settings: { readonly hostname: string; readonly keepDays: number },
  deps: { store: Pick<Store, 'exportJobs'>; notices: Pick<Notices, 'enqueue'>; log: Log },
): () => Promise<void> {
  const {
    store: { exportJobs },
    notices,
    log,
  } = deps;
  return async () => {
    for (const job of await exportJobs.many(
      { unnotified: true, host: settings.hostname },
      { sort: 'id', limit: 1000 },
    )) {
      const notice = toNotice(job, settings.keepDays);
      const taken = notice ? await notices.enqueue(notice) : 'queued';
      // A person who got too many already gets no more of them; the job itself is as it is.
      if (taken !== 'queued')
        log.warn('export.unnotified', { export: exportName(job), account: job.account, reason: taken });
      await exportJobs.change({ id: job.id, unnotified: true }, { unnotified: null });
    }
  };
}

function toNotice(job: ExportRow, keepDays: number): NewNotice | undefined {
  if (job.notifyEmail === null) return undefined;
  const about = `your ${NOUN[job.type]}, started at ${exportName(job).slice(0, 19)} UTC`;
  const to = { account: job.account, to: job.notifyEmail };
  if (job.state === 'complete' && job.resultUrl !== null) {
    return {
      ...to,
      subject: `Your ${job.type} export is ready`,
      text: `The export of ${about}, is complete. For ${keepDays} days it can be fetched here:\n\n${job.resultUrl}\n\nWhoever has this link can fetch it.\n`,
    };
  }
  return {
    ...to,
    subject: `Your ${job.type} export has failed`,
    text: `The export of ${about}, could not be completed: ${job.error ?? 'it was given up'}.\n`,
  };
}
