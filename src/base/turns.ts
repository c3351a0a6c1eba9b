import { setImmediate } from 'node:timers/promises';

/** Runs what has the same name one after the other, in the order it came. */
export type Turns = <T>(name: string, run: () => Promise<T>) => Promise<T>;

/**
 * For rows that many would rewrite at once. The store decides who wins; of those in one process, nobody has to lose
 * first. Without it, n calls would take n² rounds.
 *
 * What fails holds nobody up: those that waited for it run all the same, or else (`fail`) fail with it. That is for
 * callers who would only wait for the same deadline in turn while the store is away.
 */
export function createTurns(behindFailure: 'run' | 'fail'): Turns {
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

/** Runs one thing after another. */
type Turn = <T>(work: () => Promise<T>) => Promise<T>;

/** One turn for all; what fails holds nobody up. */
export function createTurn(): Turn {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const mine = last.then(work);
    last = mine.catch(() => undefined);
    return mine;
  };
}

/** Work in steps of about a millisecond, and what comes of it. */
export type Steps<T> = Generator<void, T>;

/** Takes all steps at once: on a thread that nothing else waits for. */
export function toEnd<T>(steps: Steps<T>): T {
  for (let step = steps.next(); ; step = steps.next()) if (step.done) return step.value;
}

/** Takes the steps one by one, and lets other work go on in between. */
export async function inSlices<T>(steps: Steps<T>): Promise<T> {
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done) return step.value;
    await setImmediate();
  }
}

/** So many look-ups or writes of one call side by side: a thousand recipients must not crowd out everybody else's. */
const SIDE_BY_SIDE = 16;

/**
 * Runs `work` for every item, a bounded number at a time, and answers the results in the order of the items. The first
 * failure ends it.
 */
export async function atOnce<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < items.length; at += SIDE_BY_SIDE)
    results.push(...(await Promise.all(items.slice(at, at + SIDE_BY_SIDE).map(work))));
  return results;
}
