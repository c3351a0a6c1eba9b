import type { Clock } from '../../../src/base/clock.ts';

/** A clock with a given speed, whose wall time can be set. */
export interface FastClock extends Clock {
  /** How many milliseconds pass in one of the machine's, from now on; fewer when the machine is busy. */
  speed(factor: number): void;
  /** Sets the wall time, as an operator or NTP would. */
  jump(ms: number): void;
  /** Milliseconds that passed, whatever is shown. */
  passed(): number;
  /** Resolves in the tick in which this number of milliseconds has passed. */
  reaches(ms: number): Promise<void>;
  /** It stands still from then on. */
  stop(): void;
}

export interface FastClockSettings {
  /** Wall time at the start, in milliseconds since 1970. */
  readonly start?: number;
  /** What the wall shows at a time; UTC when nothing is said. */
  readonly shows?: (utc: number) => number;
  /** For controls: intervals are measured by the wall, as a program does that knows no other clock. */
  readonly intervalsByWall?: boolean;
}

interface Timer {
  readonly at: number;
  readonly fn: () => void;
}

const TICK_MS = 2;
/**
 * What one tick brings at most, in milliseconds of the machine's: a machine that was busy must not find that an hour
 * has passed.
 */
const MAX_MS = 8;

export function createFastClock({
  start = Date.now(),
  shows = (utc) => utc,
  intervalsByWall = false,
}: FastClockSettings = {}): FastClock {
  let factor = 1;
  let base = 0;
  let since = performance.now();
  let offset = start;
  const timers = new Set<Timer>();
  const waiters = new Set<Timer>();
  const passed = () => base + Math.min(performance.now() - since, MAX_MS) * factor;
  const wall = () => Math.round(shows(offset + passed()));
  const first = wall();
  const steps = intervalsByWall ? () => wall() - first : passed;

  function tick(): void {
    base = passed();
    since = performance.now();
    const now = steps();
    const due = [...timers].filter(({ at }) => at <= now).sort((a, b) => a.at - b.at);
    for (const timer of due) if (timers.delete(timer)) timer.fn();
    for (const waiter of waiters) if (waiter.at <= base && waiters.delete(waiter)) waiter.fn();
  }
  const ticking = setInterval(tick, TICK_MS);
  ticking.unref();

  return {
    passed,
    now: wall,
    monotonic: steps,
    after(ms, fn) {
      const timer: Timer = { at: steps() + ms, fn };
      timers.add(timer);
      return () => {
        timers.delete(timer);
      };
    },
    speed(next) {
      tick();
      factor = next;
    },
    jump(ms) {
      offset += ms;
    },
    reaches: (at) => new Promise((fn) => waiters.add({ at, fn })),
    stop() {
      clearInterval(ticking);
    },
  };
}
