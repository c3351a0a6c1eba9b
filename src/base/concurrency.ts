import { setImmediate } from 'node:timers/promises';
import { frozen } from './frozen.ts';

/** Runs work with the same name sequentially, in the order of the calls. */
export type KeyedMutex = <T>(name: string, run: () => Promise<T>) => Promise<T>;

/**
 * Serializes concurrent updates of a row within this process, which would otherwise conflict in the store and take n²
 * attempts for n calls.
 *
 * After a failure, the work behind it runs anyway (`run`) or fails with it (`fail`). `fail` is for callers that would
 * each wait for the same timeout in turn while the store is unavailable.
 */
export function createKeyedMutex(behindFailure: 'run' | 'fail'): KeyedMutex {
  const last = new Map<string, Promise<unknown>>();
  return (name, run) => {
    const mine = (last.get(name) ?? Promise.resolve()).then(run, behindFailure === 'run' ? run : undefined);
    last.set(name, mine);
    const done = () => {
      if (last.get(name) === mine) last.delete(name);
    };
    mine.then(done, done);
    return mine;
  };
}

/** Runs work sequentially. */
type SerialQueue = <T>(work: () => Promise<T>) => Promise<T>;

/** Creates a single sequence; a failure does not affect the work behind it. */
export function createSerialQueue(): SerialQueue {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  };
}

/** Limits how much work runs concurrently; the rest waits in the order of the calls. */
export type Semaphore = ReturnType<typeof createSemaphore>;

/** Creates `most` slots; work that fails gives up its slot like any other. */
export function createSemaphore(most: number) {
  const waiting: (() => void)[] = [];
  let taken = 0;
  return frozen({
    async run<T>(work: () => Promise<T>): Promise<T> {
      // Work that ends hands its slot on, so a new call cannot overtake those that wait.
      if (taken < most) taken++;
      else await new Promise<void>((go) => waiting.push(go));
      try {
        return await work();
      } finally {
        const next = waiting.shift();
        if (next) next();
        else taken--;
      }
    },
    /** The number of calls that wait. */
    waiting: () => waiting.length,
  });
}

/** Work in steps of about a millisecond, and its result. */
export type SlicedWork<T> = Generator<void, T>;

/** Runs all steps without a break, for threads that nothing else waits for. */
export function runToEnd<T>(steps: SlicedWork<T>): T {
  for (let step = steps.next(); ; step = steps.next()) if (step.done) return step.value;
}

/** Runs the steps one by one and yields to the event loop in between. */
export async function runInSlices<T>(steps: SlicedWork<T>): Promise<T> {
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done) return step.value;
    await setImmediate();
  }
}

/** Concurrent lookups or writes per call: a thousand recipients must not crowd out other calls. */
const MAX_CONCURRENT = 16;

/** Runs `work` for every item, `most` at a time. Returns the results in order; rejects at the first failure. */
export async function mapConcurrently<T, R>(
  items: readonly T[],
  work: (item: T) => Promise<R>,
  most = MAX_CONCURRENT,
): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += most)
    results.push(...(await Promise.all(items.slice(at, at + most).map(work))));
  return results;
}
