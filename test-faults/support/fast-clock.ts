import type { Clock } from '../../src/base/clock.ts';

/** A clock that runs as fast as it is told to, and whose wall time can be set. */
export interface FastClock extends Clock {
  /** How many milliseconds pass in one of the machine's, from now on. */
  speed(factor: number): void;
  /** Sets the wall time, as an operator or NTP would. */
  jump(ms: number): void;
  /** Milliseconds that passed, whatever is shown. */
  passed(): number;
}

export interface FastClockSettings {
  /** Wall time at the start, in milliseconds since 1970. */
  readonly start?: number;
  /** What the wall shows at a time; UTC when nothing is said. */
  readonly shows?: (utc: number) => number;
  /** For controls: intervals are measured by the wall, as a program does that knows no other clock. */
  readonly intervalsByWall?: boolean;
}

interface Timer { readonly at: number; readonly fn: () => void; handle?: NodeJS.Timeout }

export function createFastClock({ start = Date.now(), shows = (utc) => utc, intervalsByWall = false }: FastClockSettings = {}): FastClock {
  let factor = 1;
  let base = 0;
  let since = performance.now();
  let offset = start;
  const timers = new Set<Timer>();
  const passed = () => base + (performance.now() - since) * factor;
  const wall = () => Math.round(shows(offset + passed()));
  const first = wall();

  function arm(timer: Timer): void {
    clearTimeout(timer.handle);
    timer.handle = setTimeout(() => {
      timers.delete(timer);
      timer.fn();
    }, Math.max(0, (timer.at - passed()) / factor));
    timer.handle.unref();
  }

  return {
    passed,
    now: wall,
    monotonic: intervalsByWall ? () => wall() - first : passed,
    after(ms, fn) {
      const timer: Timer = { at: passed() + ms, fn };
      timers.add(timer);
      arm(timer);
      return () => {
        clearTimeout(timer.handle);
        timers.delete(timer);
      };
    },
    speed(next) {
      base = passed();
      since = performance.now();
      factor = next;
      for (const timer of timers) arm(timer);
    },
    jump(ms) { offset += ms; },
  };
}
