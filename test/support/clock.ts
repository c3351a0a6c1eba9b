import type { Clock } from '../../src/base/clock.ts';
import type { RunningTime } from '../../src/base/running-time.ts';

/** A clock that stands still until it is moved. */
export interface TestClock extends Clock {
  /** Moves both times forward, running what falls due in order, with room for promises in between. */
  advance(ms: number): Promise<void>;
  /**
   * Moves both times forward in one step: what fell due meanwhile runs once, at the end. For days that nothing counts
   * the seconds of.
   */
  leap(ms: number): Promise<void>;
  /** Moves the wall time alone, as an operator or NTP would. */
  jump(ms: number): void;
}

/** Knows which calls of some parts are under way, so that a clock of the test can wait for them. */
export interface Watch {
  /** The part with every function watched, also those of what it consists of. */
  over<Part extends object>(part: Part): Part;
  /** Resolves when no call is under way and nothing has followed from the last one. */
  quiet(): Promise<void>;
  /** Whether there ever was a call. */
  used(): boolean;
}

export function createWatch(): Watch {
  const calls = new Set<Promise<unknown>>();
  let used = false;
  const watched =
    (call: (...args: unknown[]) => unknown) =>
    (...args: unknown[]) => {
      used = true;
      const answer = call(...args);
      if (answer instanceof Promise) {
        calls.add(answer);
        const forget = () => calls.delete(answer);
        answer.then(forget, forget);
      }
      return answer;
    };
  const over = <Part extends object>(part: Part): Part =>
    Object.fromEntries(
      Object.entries(part).map(([name, value]) => [name, typeof value === 'function' ? watched(value) : over(value)]),
    ) as Part;
  return {
    over,
    used: () => used,
    async quiet() {
      do {
        await Promise.allSettled(calls);
        await new Promise((resolve) => setImmediate(resolve));
      } while (calls.size > 0);
    },
  };
}

/** `breathe`: what is waited for between two timers, so that what the first has set off is done before the second. */
export function createTestClock(
  start = Date.UTC(2026, 0, 5, 12, 0, 0),
  breathe: () => Promise<unknown> = () => new Promise<void>((resolve) => setImmediate(resolve)),
): TestClock {
  let elapsed = 0;
  let offset = start;
  let waiting: { at: number; fn: () => void }[] = [];
  return {
    now: () => offset + elapsed,
    monotonic: () => elapsed,
    after(ms, fn) {
      const timer = { at: elapsed + ms, fn };
      waiting.push(timer);
      return () => {
        waiting = waiting.filter((other) => other !== timer);
      };
    },
    async advance(ms) {
      const end = elapsed + ms;
      await breathe();
      for (;;) {
        const next = waiting.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
        if (!next) break;
        waiting = waiting.filter((timer) => timer !== next);
        elapsed = Math.max(elapsed, next.at);
        next.fn();
        await breathe();
      }
      elapsed = end;
      await breathe();
    },
    async leap(ms) {
      elapsed += ms;
      const due = new Set(waiting.filter((timer) => timer.at <= elapsed));
      await breathe();
      for (;;) {
        const next = waiting.filter((timer) => due.has(timer)).sort((a, b) => a.at - b.at)[0];
        if (!next) break;
        waiting = waiting.filter((timer) => timer !== next);
        next.fn();
        await breathe();
      }
    },
    jump(ms) {
      offset += ms;
    },
  };
}

/** A clock that runs, and can be moved forward. */
export interface RunningClock extends Clock {
  /** Moves both times forward, running what falls due in order, and gives each of these steps a moment to be done. */
  advance(ms: number): Promise<void>;
  /** Moves both times forward in one step: what fell due meanwhile runs once, at the end. */
  leap(ms: number): void;
}

/** Shorter timers belong to what looks around all the time, and has nothing to wait for. */
const LONG_MS = 4_000;

/** `momentMs`: how much real time the step of a longer timer gets, such as a retry that talks with a server. */
export function createRunningClock(start: number, momentMs: number): RunningClock {
  const began = performance.now();
  let skipped = 0;
  const timers = new Set<{ at: number; isLong: boolean; fn: () => void; real: ReturnType<typeof setTimeout> }>();
  const monotonic = () => performance.now() - began + skipped;
  const rearm = () => {
    for (const timer of timers) {
      clearTimeout(timer.real);
      timer.real = arm(timer.at, timer.fn);
    }
  };
  const arm = (at: number, run: () => void) => setTimeout(run, Math.max(0, at - monotonic())).unref();
  const moment = (ms: number) =>
    new Promise<void>((resolve) => (ms === 0 ? setImmediate(resolve) : setTimeout(resolve, ms)));
  return {
    now: () => Math.round(start + monotonic()),
    monotonic,
    after(ms, fn) {
      const run = () => {
        clearTimeout(timer.real);
        if (timers.delete(timer)) fn();
      };
      const at = monotonic() + ms;
      const timer = { at, isLong: ms >= LONG_MS, fn: run, real: arm(at, run) };
      timers.add(timer);
      return () => {
        clearTimeout(timer.real);
        timers.delete(timer);
      };
    },
    async advance(ms) {
      const end = monotonic() + ms;
      for (;;) {
        const next = [...timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
        if (!next) break;
        skipped += Math.max(0, next.at - monotonic());
        next.fn();
        await moment(next.isLong ? momentMs : 0);
      }
      skipped += Math.max(0, end - monotonic());
      rearm();
    },
    leap(ms) {
      skipped += ms;
      rearm();
    },
  };
}

/** The time of what was done then. */
export const clockAt = (time: number): Pick<Clock, 'now'> => ({ now: () => time });

/** Running time of a process whose clock was never in doubt. */
export function createSureTime({ now }: Pick<Clock, 'now'>): RunningTime {
  return {
    age: (from) => Math.max(0, now() - from),
    sure: () => true,
    believed: () => true,
    odd: 0,
    memory: () => undefined,
  };
}
