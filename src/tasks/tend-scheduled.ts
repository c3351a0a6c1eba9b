import type { Scheduling } from '../outbound/scheduling.ts';
import type { Task } from './task.ts';

/** Does on this host what was wished on others about messages that are to be sent later. */
export function tendScheduledTask({ scheduling }: { readonly scheduling: Pick<Scheduling, 'tend'> }): Task {
  return {
    name: 'tend-scheduled',
    schedule: '* * * * *',
    perHost: true,
    async run() {
      const tended = await scheduling.tend();
      return tended > 0 ? { tended } : undefined;
    },
  };
}
