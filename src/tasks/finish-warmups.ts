import type { Clock } from '../base/clock.ts';
import type { Store } from '../store/store.ts';
import type { Task } from './task.ts';

/** Ends warmups at their end. Records show an end that has passed as over before this has run. */
export function finishWarmupsTask({
  store,
  clock,
}: {
  readonly store: Pick<Store, 'ips'>;
  readonly clock: Clock;
}): Task {
  return {
    name: 'finish-warmups',
    schedule: '*/10 * * * *',
    async run(ending) {
      const over = { warmupEndAt: { range: { lte: new Date(clock.now()) } } };
      let finished = 0;
      // Found and cleared in one write: one that has begun again meanwhile is not found.
      while (!ending?.aborted && (await store.ips.change(over, { warmupStartAt: null, warmupEndAt: null }))) finished++;
      return finished > 0 ? { finished } : undefined;
    },
  };
}
