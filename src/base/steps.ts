import { setImmediate } from 'node:timers/promises';

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
