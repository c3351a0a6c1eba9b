import type { Clock } from '../../base/clock.ts';

/** A difference between wall time and running time that is a jump and no drift. */
const JUMP = 60_000;
// After a start or a jump the clock may still be set again (NTP), and an endpoint may need as long to come back as we did.
const UNSURE = 10 * 60_000;

/** How long deliveries have been tried, whatever the wall clock does meanwhile. */
export interface RunningTime {
  /** Milliseconds since `from` (milliseconds since 1970), without the time that the clock jumped over. */
  age(from: number): number;
  /** Whether ten minutes have passed since the start and since the last jump: before that nothing is given up for its age. */
  sure(): boolean;
}

interface Jump {
  /** The wall time that came before it. */
  readonly at: number;
  readonly by: number;
}

/**
 * Watches the wall clock against the one that only grows. A clock that jumps three days ahead (or a machine that slept
 * for three days) must not use up the time of everything that waits, so jumps forward are taken out of the age of what was
 * there before. A jump back only makes ages shorter: then things are tried longer, and nothing is lost.
 */
export function createRunningTime(clock: Clock): RunningTime {
  const jumps: Jump[] = [];
  let wall = clock.now();
  let steady = clock.monotonic();
  let unsureUntil = steady + UNSURE;

  function look(): void {
    const wallNow = clock.now();
    const steadyNow = clock.monotonic();
    const by = wallNow - wall - (steadyNow - steady);
    if (Math.abs(by) > JUMP) {
      if (by > 0) jumps.push({ at: wall, by });
      unsureUntil = steadyNow + UNSURE;
    }
    wall = wallNow;
    steady = steadyNow;
  }

  return Object.freeze({
    age(from: number) {
      look();
      const skipped = jumps.reduce((sum, jump) => (from <= jump.at ? sum + jump.by : sum), 0);
      return Math.max(0, wall - from - skipped);
    },
    sure() {
      look();
      return steady >= unsureUntil;
    },
  });
}
