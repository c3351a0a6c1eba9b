import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';

const MINUTE = 60_000;
/** A difference between wall time and running time that is a jump and no drift. */
const JUMP = MINUTE;
// After a start or a jump the clock may still be set again (NTP), and an endpoint may need as long to come back as we
// did.
const UNSURE = 10 * MINUTE;
/**
 * A clock that is this far from what the last process saw was set, or we were away for long: a person should know
 * which.
 */
const ODD = 24 * 60 * MINUTE;
/** For so long such a clock must run before anything ends by it. */
const DOUBT = 60 * MINUTE;
/** More than a host is stopped in the days that something waits. */
const MOST_SKIPS = 64;

/** Time that the wall clock shows and in which we did not run: it jumped, or we were not there. */
interface Skip {
  /** What has an older wall time was there before it. */
  readonly at: number;
  readonly by: number;
}

/** What a start has to know of the process before it. */
export interface TimeMemory {
  /** The wall time, when it was last believed. */
  readonly seen: number;
  readonly skips: readonly Skip[];
}

/** How long deliveries have been tried, whatever the wall clock does meanwhile. */
export interface RunningTime {
  /**
   * Milliseconds since `from` (milliseconds since 1970), without the time that the clock jumped over and long pauses
   * between two processes.
   */
  age(from: number): number;
  /**
   * Whether ten minutes have passed since the start and since the last jump, and the clock is not in doubt: before that
   * nothing is given up for its age.
   */
  sure(): boolean;
  /**
   * False for an hour after a start whose clock is more than a day from what was last seen: nothing is forgotten by it.
   */
  believed(): boolean;
  /** How far the clock was from what was last seen when we started, in milliseconds; 0 when that gives no doubt. */
  readonly odd: number;
  /**
   * What to keep for the next start; undefined while the clock is not to be relied on, when what was kept before stays.
   */
  memory(): TimeMemory | undefined;
}

/**
 * Watches the wall clock against the one that only grows. A clock that jumps three days ahead (or a machine that slept
 * for three days) must not use up the time of everything that waits, so jumps forward are taken out of the age of what
 * was there before, and so is the time between two processes, which nobody can tell from a clock that is wrong at the
 * start. A jump back takes off what jumps forward added; beyond that it makes ages shorter: then things are tried
 * longer, and nothing is lost.
 */
export function createRunningTime(clock: Clock, kept?: TimeMemory): RunningTime {
  let wall = clock.now();
  let steady = clock.monotonic();
  let unsureUntil = steady + UNSURE;
  const away = kept ? wall - kept.seen : 0;
  const odd = Math.abs(away) > ODD ? away : 0;
  // All that is there was there before.
  let skips = kept ? withJump(kept.skips, wall, Math.abs(away) > UNSURE ? away : 0) : [];
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
    age(from) {
      look();
      const skipped = skips.reduce((sum, skip) => (from <= skip.at ? sum + skip.by : sum), 0);
      return Math.max(0, wall - from - skipped);
    },
    sure,
    believed: () => clock.monotonic() >= doubtUntil,
    odd,
    memory: () => (sure() ? { seen: wall, skips } : undefined),
  });
}

/** The skips after the clock jumped; what it goes back is taken off the newest ones. */
function withJump(skips: readonly Skip[], at: number, by: number): readonly Skip[] {
  if (by > 0) return [...skips, { at, by }].slice(-MOST_SKIPS);
  const newest = skips.at(-1);
  if (by === 0 || !newest) return skips;
  const rest = newest.by + by;
  const before = skips.slice(0, -1);
  return rest > 0 ? [...before, { at: newest.at, by: rest }] : withJump(before, at, rest);
}

/** Reads what was kept; undefined when it makes no sense. */
export function readTimeMemory(text: string): TimeMemory | undefined {
  try {
    const kept: unknown = JSON.parse(text);
    return isMemory(kept) ? kept : undefined;
  } catch {
    return undefined;
  }
}

function isMemory(value: unknown): value is TimeMemory {
  return (
    isObject(value) && Number.isFinite(value['seen']) && Array.isArray(value['skips']) && value['skips'].every(isSkip)
  );
}

function isSkip(value: unknown): boolean {
  return isObject(value) && Number.isFinite(value['at']) && Number.isFinite(value['by']);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
