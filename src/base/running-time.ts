import { z } from 'zod';
import { type Clock, DAY_MS, MINUTE_MS } from './clock.ts';
import { frozen } from './frozen.ts';
import { parseJson } from './schema.ts';

/** A larger difference between wall time and running time is a jump, not drift. */
const JUMP = MINUTE_MS;
// After a start or a jump, NTP may still correct the clock, and endpoints may need as long to recover as we did.
const UNSURE = 10 * MINUTE_MS;
/** A larger difference from the time the last process saw means a wrong clock or a long downtime; it is logged. */
const ODD = DAY_MS;
/** How long expiry is suspended after that. */
const DOUBT = 60 * MINUTE_MS;
/** More than the number of restarts and jumps during the days that a delivery may wait. */
const MAX_SKIPS = 64;

/** What one process saves for the next. */
const memoryShape = z.object({
  /** The wall time when it was last trusted. */
  seen: z.number(),
  /** Forward jumps of the wall clock, and times in which the process did not run. */
  skips: z
    .array(
      z
        .object({
          /** The wall time before it: it applies to everything older. */
          at: z.number(),
          by: z.number(),
        })
        .readonly(),
    )
    .readonly(),
});

export type TimeMemory = Readonly<z.infer<typeof memoryShape>>;
type Skip = TimeMemory['skips'][number];

/** Parses a saved `TimeMemory`; undefined if it is malformed. */
export const readTimeMemory = (text: string): TimeMemory | undefined => parseJson(memoryShape, text);

/** The age of deliveries, corrected for jumps of the wall clock. */
export type RunningTime = ReturnType<typeof createRunningTime>;

/**
 * Compares the wall clock with the monotonic clock. A clock that jumps three days ahead (or a machine that slept for
 * three days) must not make waiting deliveries expire, so forward jumps are subtracted from the age of everything
 * older. So is the time between two processes, which cannot be told from a wrong clock at the start. A backward jump
 * first cancels forward jumps; beyond that, ages become shorter: deliveries are tried longer, and nothing is lost.
 */
export function createRunningTime(clock: Clock, kept?: TimeMemory) {
  let wall = clock.now();
  let steady = clock.monotonic();
  let unsureUntil = steady + UNSURE;
  const gap = kept ? wall - kept.seen : 0;
  const odd = Math.abs(gap) > ODD ? gap : 0;
  // At the start, every delivery is older than the pause.
  let skips = kept ? withJump(kept.skips, wall, Math.abs(gap) > UNSURE ? gap : 0) : [];
  const doubtUntil = odd === 0 ? Number.NEGATIVE_INFINITY : steady + DOUBT;

  function look(): void {
    const wallNow = clock.now();
    const steadyNow = clock.monotonic();
    const by = wallNow - wall - (steadyNow - steady);
    if (Math.abs(by) > JUMP) {
      skips = withJump(skips, wallNow - by, by);
      unsureUntil = steadyNow + UNSURE;
    }
    wall = wallNow;
    steady = steadyNow;
  }

  function sure(): boolean {
    look();
    return steady >= unsureUntil && steady >= doubtUntil;
  }

  return frozen({
    /** Milliseconds since `from` (milliseconds since 1970), without clock jumps and pauses between two processes. */
    age(from: number): number {
      look();
      const skipped = skips.reduce((sum, skip) => (from <= skip.at ? sum + skip.by : sum), 0);
      return Math.max(0, wall - from - skipped);
    },
    /**
     * Whether the clock is trusted: the start and the last jump were at least ten minutes ago. Until then, nothing
     * expires.
     */
    sure,
    /** False for an hour after a start with a clock that differed by more than a day: no age limit deletes anything. */
    believed: (): boolean => clock.monotonic() >= doubtUntil,
    /** The difference of the clock from the last time seen, at the start, in milliseconds; 0 if at most a day. */
    odd,
    /** What to save for the next start; undefined while the clock is not trusted (keep the previous value then). */
    memory: (): TimeMemory | undefined => (sure() ? { seen: wall, skips } : undefined),
  });
}

/** Adds a jump to the skips; a backward jump is subtracted from the newest ones. */
function withJump(skips: readonly Skip[], at: number, by: number): readonly Skip[] {
  if (by > 0) return [...skips, { at, by }].slice(-MAX_SKIPS);
  const newest = skips.at(-1);
  if (by === 0 || !newest) return skips;
  const rest = newest.by + by;
  const before = skips.slice(0, -1);
  return rest > 0 ? [...before, { at: newest.at, by: rest }] : withJump(before, at, rest);
}
