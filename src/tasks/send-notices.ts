import type { Clock } from '../base/clock.ts';
import type { Notices } from '../outbound/types.ts';
import { type Belief, createSteadiness } from './purge.ts';
import type { Task } from './task.ts';

/** Sends the mail of our own that is due again, and forgets what is over. New mail does not wait for this. */
export function sendNoticesTask(deps: {
  readonly notices: Pick<Notices, 'sendDue' | 'purge'>;
  readonly clock: Clock;
  readonly time?: Belief;
}): Task {
  const isSteady = createSteadiness(deps.clock, deps.time);
  return {
    name: 'send-notices',
    schedule: '* * * * *',
    perHost: true, // each notice is claimed
    async run() {
      const { sent, deferred, failed } = await deps.notices.sendDue();
      const forgotten = isSteady() ? await deps.notices.purge() : 0;
      return sent + deferred + failed + forgotten > 0 ? { sent, deferred, failed, forgotten } : undefined;
    },
  };
}
