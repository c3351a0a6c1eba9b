import { frozen } from '../base/frozen.ts';

/** Consecutive faults after which a scanner counts as away. */
const MISSES = 3;
/** Milliseconds until a scanner that is away is asked again: the first time, and at most. */
const FIRST_GAP = 1000;
const LONGEST_GAP = 15_000;

/** One question to a scanner; one of the two is called. Each returns whether the scanner came back or went away. */
interface ScanTrial {
  passed(): boolean;
  failed(now: number): boolean;
}

/** A scanner that is away is asked about one message at a time, as a probe. Times are monotonic milliseconds. */
export function createBreaker() {
  let misses = 0;
  let asking = 0;
  let gap = FIRST_GAP;
  let probeAt = 0;
  const isAway = () => misses >= MISSES;
  return frozen({
    isAway,
    /** When the scanner may be asked; `now` or earlier: immediately. */
    nextAsk(now: number) {
      if (!isAway()) return now;
      return asking > 0 ? Math.max(probeAt, now + FIRST_GAP) : probeAt;
    },
    begin(): ScanTrial {
      const probe = isAway();
      asking++;
      return frozen({
        passed() {
          asking--;
          const was = isAway();
          misses = 0;
          gap = FIRST_GAP;
          return was;
        },
        failed(now) {
          asking--;
          const was = isAway();
          misses++;
          if (probe) gap = Math.min(2 * gap, LONGEST_GAP);
          if (isAway() && (probe || !was)) probeAt = now + gap;
          return isAway() && !was;
        },
      });
    },
  });
}
