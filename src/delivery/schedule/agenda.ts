import type { Clock } from '../../base/clock.ts';
import { createHeap } from './heap.ts';

/** Something that wants to be woken at a time. */
export interface Sleeper {
  /** Milliseconds that only grow; Infinity: not at all. Written by the agenda. */
  wakeAt: number;
}

/** A timer cannot run for a month (a time that does not fit its 31 bits is over at once): a later time is looked at once a day. */
const LONGEST = 24 * 3_600_000;

/** Wakes many sleepers with one timer. */
export interface Agenda<S extends Sleeper> {
  /** Wakes it at this time and not at the one that was said before. */
  set(sleeper: S, at: number): void;
  stop(): void;
}

export function createAgenda<S extends Sleeper>(clock: Clock, wake: (sleeper: S) => void): Agenda<S> {
  // A sleeper whose time was changed leaves its old entry behind; it is known by the time that no longer fits.
  const entries = createHeap<{ readonly sleeper: S; readonly at: number }>(({ at }) => at);
  let cancel = (): void => {};
  let armedFor = Number.POSITIVE_INFINITY;

  function arm(): void {
    const at = entries.peek()?.at ?? Number.POSITIVE_INFINITY;
    if (at === armedFor) return;
    cancel();
    armedFor = at;
    cancel =
      at === Number.POSITIVE_INFINITY
        ? () => {}
        : clock.after(Math.min(LONGEST, Math.max(0, Math.ceil(at - clock.monotonic()))), fire);
  }

  function fire(): void {
    armedFor = Number.POSITIVE_INFINITY;
    cancel = () => {};
    const now = clock.monotonic();
    for (let entry = entries.peek(); entry && entry.at <= now; entry = entries.peek()) {
      entries.take();
      if (entry.sleeper.wakeAt !== entry.at) continue;
      entry.sleeper.wakeAt = Number.POSITIVE_INFINITY;
      wake(entry.sleeper);
    }
    arm();
  }

  return Object.freeze({
    set(sleeper: S, at: number) {
      if (sleeper.wakeAt === at) return;
      sleeper.wakeAt = at;
      if (at === Number.POSITIVE_INFINITY) return;
      entries.add({ sleeper, at });
      arm();
    },
    stop() {
      cancel();
      entries.drain();
      armedFor = Number.NEGATIVE_INFINITY;
    },
  });
}
