import type { Clock } from '../../src/base/clock.ts';
import type { RunningTime } from '../../src/base/running-time.ts';

/** A clock that stands still until it is moved. */
export interface TestClock extends Clock {
  /** Moves both times forward, running what falls due in order, with room for promises in between. */
  advance(ms: number): Promise<void>;
  /** Moves the wall time alone, as an operator or NTP would. */
  jump(ms: number): void;
}

export function createTestClock(start = Date.UTC(2026, 0, 5, 12, 0, 0)): TestClock {
  let elapsed = 0;
  let offset = start;
  let waiting: { at: number; fn: () => void }[] = [];
  const breathe = () => new Promise<void>((resolve) => setImmediate(resolve));
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
    jump(ms) {
      offset += ms;
    },
  };
}

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
