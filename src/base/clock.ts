import { frozen } from './frozen.ts';

/** Time as a part: tests hand in one that they move themselves. */
export interface Clock {
  /** Wall time in milliseconds since 1970, for what is stored or shown. It may jump. */
  now(): number;
  /** Milliseconds that only ever grow, for deadlines and intervals. */
  monotonic(): number;
  /** Runs `fn` once after `ms` milliseconds; the answer cancels it. */
  after(ms: number, fn: () => void): () => void;
}

/** The clock of the machine. Its timers do not keep the process alive. */
export const systemClock: Clock = Object.freeze({
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms: number, fn: () => void) {
    const timer = setTimeout(fn, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
});

/** Prints a time as the API shows it: `YYYY-MM-DD HH:MM:SS` in UTC. */
export function toTimestamp(date: Date): string {
  return date.toISOString().slice(0, 19).replace('T', ' ');
}

/**
 * Clocks of hosts agree to within this, in milliseconds. A time from beyond it was written by a clock that was wrong.
 */
export const AGREE_MS = 60_000;

/** Waiting that ends early when everything ends. */
export interface Pauses {
  wait(ms: number): Promise<void>;
  end(): void;
}

/** Pauses on a clock. */
export function createPauses(clock: Clock): Pauses {
  const waiting = new Set<() => void>();
  let ended = false;
  return frozen({
    wait: (ms) =>
      new Promise<void>((resolve) => {
        if (ended) return resolve();
        const wake = () => {
          cancel();
          waiting.delete(wake);
          resolve();
        };
        const cancel = clock.after(ms, wake);
        waiting.add(wake);
      }),
    end() {
      ended = true;
      for (const wake of [...waiting]) wake();
    },
  });
}
