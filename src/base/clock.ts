import { frozen } from './frozen.ts';

export const MINUTE_MS = 60_000;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;

/** The source of time and timers; tests pass one that they advance themselves. */
export interface Clock {
  /** Wall time in milliseconds since 1970, for what is stored or shown. It may jump. */
  now(): number;
  /** Monotonic time in milliseconds, for deadlines and intervals. */
  monotonic(): number;
  /** Runs `fn` once after `ms` milliseconds; returns a function that cancels it. */
  after(ms: number, fn: () => void): () => void;
}

/** The system clock. Its timers do not keep the process alive. */
export const systemClock: Clock = Object.freeze({
  now: () => Date.now(),
  monotonic: () => performance.now(),
  after(ms: number, fn: () => void) {
    const timer = setTimeout(fn, ms);
    timer.unref();
    return () => clearTimeout(timer);
  },
});

/** Formats a time as in the API: `YYYY-MM-DD HH:MM:SS` in UTC. */
export function toTimestamp(date: Date): string {
  return date.toISOString().slice(0, 19).replace('T', ' ');
}

/** The largest expected clock difference between hosts, in milliseconds. Times beyond it come from a wrong clock. */
export const MAX_CLOCK_SKEW_MS = 60_000;

/**
 * The result of `work`, or undefined if it takes more than `ms` milliseconds; with `late`, the result of that, which
 * may throw. The work goes on.
 */
export function withTimeout<T>(clock: Pick<Clock, 'after'>, ms: number, work: Promise<T>): Promise<T | undefined>;
export function withTimeout<T, L>(
  clock: Pick<Clock, 'after'>,
  ms: number,
  work: Promise<T>,
  late: () => L,
): Promise<T | L>;
export function withTimeout<T, L>({ after }: Pick<Clock, 'after'>, ms: number, work: Promise<T>, late?: () => L) {
  return new Promise<T | L | undefined>((resolve, reject) => {
    const cancel = after(ms, () => resolve(Promise.resolve().then(late)));
    work.then(resolve, reject).finally(cancel);
  });
}

/** Runs `work` with a signal that is aborted after `ms` milliseconds, for that reason. */
export async function withDeadline<T>(
  clock: Pick<Clock, 'after'>,
  ms: number,
  work: (signal: AbortSignal) => Promise<T>,
  reason?: Error,
): Promise<T> {
  const late = new AbortController();
  const cancel = clock.after(ms, () => late.abort(reason));
  try {
    return await work(late.signal);
  } finally {
    cancel();
  }
}

/** Creates pauses: waits that can all be ended early. After `end`, every wait resolves immediately. */
export function createPauses(clock: Clock) {
  const waiting = new Set<() => void>();
  let ended = false;
  return frozen({
    wait: (ms: number): Promise<void> =>
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

/**
 * Creates a loop: runs `round` again and again, one at a time, each after the pause in milliseconds that the last one
 * resolved to; undefined ends the loop. `round` handles its own errors.
 */
export function createLoop({ after }: Pick<Clock, 'after'>, round: () => Promise<number | undefined>) {
  let stopped = false;
  let cancel = () => {};
  let current: Promise<void> = Promise.resolve();

  async function run(): Promise<void> {
    const pause = await round();
    if (!stopped && pause !== undefined) next(pause);
  }

  function next(pause: number): void {
    cancel = after(pause, () => {
      current = run();
    });
  }

  return frozen({
    /** Whether a round in progress should end early. */
    isStopped: () => stopped,
    /** Begins with a round, and resolves when it has ended. */
    start(): Promise<void> {
      stopped = false;
      current = run();
      return current;
    },
    /** Begins with a pause. */
    startAfter: next,
    /** Begins no other round, and resolves when the one in progress has ended. */
    stop(): Promise<void> {
      stopped = true;
      cancel();
      return current;
    },
  });
}
