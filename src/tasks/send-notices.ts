import type { Notices } from '../outbound/types.ts';
import type { Task } from './task.ts';

/** Sends the mail of our own that is due again, and forgets what is over. New mail does not wait for this. */
export function sendNoticesTask(deps: { readonly notices: Pick<Notices, 'sendDue' | 'purge'> }): Task {
  return {
    name: 'send-notices',
    schedule: '* * * * *',
    perHost: true, // each notice is claimed
    async run() {
      const { sent, deferred, failed } = await deps.notices.sendDue();
      const forgotten = await deps.notices.purge();
      return sent + deferred + failed + forgotten > 0 ? { sent, deferred, failed, forgotten } : undefined;
    },
  };
}
