import { frozen } from '../base/frozen.ts';

/** Consecutive faults after which a scanner counts as away. */
const MISSES = 3;
/** Milliseconds until a scanner that is away is asked again: the first time, and at most. */
const FIRST_GAP = 1000;
const LONGEST_GAP = 15_000;

/** A scanner that is away is asked about one message at a time, as a probe. Times are monotonic milliseconds. */
interface Breaker {
  isAway(): boolean;
  /** When the scanner may be asked; `now` or earlier: immediately. */
  nextAsk(now: number): number;
  begin(): Asking;
}

/** One question to a scanner; one of the two is called. Each returns whether the scanner came back or went away. */
interface Asking {
  passed(): boolean;
  failed(now: number): boolean;
}

export function createBreaker(): Breaker {
  let misses = 0;
  let asking = 0;
  let gap = FIRST_GAP;
  let probeAt = 0;
  const isAway = () => misses >= MISSES;
  return frozen({
    isAway,
    nextAsk(now) {
      if (!isAway()) return now;
      return asking > 0 ? Math.max(probeAt, now + FIRST_GAP) : probeAt;
    },
    begin() {
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
