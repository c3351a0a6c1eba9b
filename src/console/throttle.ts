import { createExpiringCache } from '../base/cache.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { Denial } from './denial.ts';

/** Wrong tries within the window after which further ones are delayed, and after which they are refused. */
const FREE_TRIES = 3;
const MAX_TRIES = 20;
const WINDOW_MS = 15 * 60_000;
/** How much each delay exceeds the one before, and the longest delay. */
const STEP_MS = 250;
const LONGEST_MS = 4000;
const MAX_KEYS = 20_000;

/** Slows down guessing: of passwords by network and by name, of tokens by network. */
export function createThrottle(clock: Clock) {
  const tries = createExpiringCache<{ count: number; readonly until: number }>({ most: MAX_KEYS }, clock);

  function count(key: string): number {
    const known = tries.get(key);
    if (known) return ++known.count;
    tries.set(key, { count: 1, until: clock.monotonic() + WINDOW_MS }, WINDOW_MS);
    return 1;
  }

  return frozen({
    /**
     * Counts a try under each key, and delays it. It counts as wrong until `forgive` is called, so that concurrent
     * tries cannot outrun the count. Throws `Denial` if there were too many.
     */
    async admit(keys: readonly string[]): Promise<void> {
      const full = keys.map((key) => tries.get(key)).find((entry) => entry && entry.count >= MAX_TRIES);
      if (full) {
        const seconds = Math.ceil((full.until - clock.monotonic()) / 1000);
        const minutes = Math.ceil(seconds / 60);
        throw new Denial('Too_Many_Tries', `Too many attempts. Try again in ${minutes} min.`, seconds);
      }
      const most = Math.max(...keys.map(count));
      const wait = Math.min(LONGEST_MS, Math.max(0, most - FREE_TRIES) * STEP_MS);
      if (wait > 0) await new Promise<void>((resolve) => void clock.after(wait, resolve));
    },
    /** Uncounts a try that was right. */
    forgive(keys: readonly string[]): void {
      for (const key of keys) {
        const entry = tries.get(key);
        if (entry) entry.count--;
      }
    },
  });
}
