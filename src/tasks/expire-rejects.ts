import type { Clock } from '../base/clock.ts';
import type { Store } from '../store/store.ts';
import { type Belief, createSteadiness } from './purge.ts';
import type { Task } from './task.ts';

/** Entries that are marked side by side; then the next so many. */
const STEP = 50;

/**
 * Marks entries of the rejection list whose time is over. Nobody waits for it: who reads the list looks at the clock too. The
 * mark keeps expired entries out of the index that the list reads.
 */
export function expireRejectsTask({
  store: { rejects },
  clock,
  time,
}: {
  store: Pick<Store, 'rejects'>;
  clock: Clock;
  time?: Belief;
}): Task {
  const isSteady = createSteadiness(clock, time);
  return {
    name: 'expire-rejects',
    schedule: '* * * * *',
    async run(ending) {
      // The mark stays when the clock is set right, and an address that bounced would be mailed again.
      if (!isSteady()) return undefined;
      let expired = 0;
      while (!ending?.aborted) {
        const now = new Date(clock.now());
        const due = await rejects.many(
          { expired: false, expiresAt: { range: { lte: now } } },
          { sort: 'expiresAt', limit: STEP },
        );
        // One that was renewed since it was read has another version, and is not due any more.
        const marked = await Promise.all(
          due.map(({ id, version }) =>
            rejects.change({ id, version, expired: false }, { expired: true, version: version + 1 }),
          ),
        );
        expired += marked.filter((row) => row !== undefined).length;
        if (due.length < STEP) break;
      }
      return expired > 0 ? { expired } : undefined;
    },
  };
}
