import type { Clock } from '../../src/base/clock.ts';

/** A clock that runs this many times as fast as the system's. */
export function createFastClock(factor: number): Clock {
  const began = Date.now();
  const steady = performance.now();
  const elapsed = () => (performance.now() - steady) * factor;
  return {
    now: () => began + elapsed(),
    monotonic: elapsed,
    after(ms, fn) {
      const timer = setTimeout(fn, ms / factor);
      timer.unref();
      return () => clearTimeout(timer);
    },
  };
}
