import type { Clock } from '../../base/clock.ts';
import { CELL } from './protocol.ts';

// Looks per deadline. Counting looks instead of time keeps a machine that was asleep from blaming its messages.
const LOOKS = 20;

export interface Watch {
  /** Looks again and again until `stop`. */
  start(): void;
  stop(): void;
}

/**
 * Watches the cells of a render thread: `onBreach` is called once when one job is parsed for longer than `timeoutMs`
 * (with its number), or when the thread does not move at all for that long (with 0).
 */
export function createWatch(
  cells: Int32Array,
  timeoutMs: number,
  clock: Clock,
  onBreach: (number: number) => void,
): Watch {
  let cancel: (() => void) | undefined;
  let parsing = { value: 0, looks: 0 };
  let beat = { value: 0, looks: 0 };
  const look = (): void => {
    parsing = seen(parsing, Atomics.load(cells, CELL.parsing));
    beat = seen(beat, Atomics.load(cells, CELL.beat));
    if (parsing.value !== 0 && parsing.looks > LOOKS) return onBreach(parsing.value);
    if (beat.looks > LOOKS) return onBreach(parsing.value);
    cancel = clock.after(timeoutMs / LOOKS, look);
  };
  return {
    start() {
      if (cancel !== undefined) return;
      parsing = beat = { value: -1, looks: 0 };
      cancel = clock.after(timeoutMs / LOOKS, look);
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
  };
}

function seen(before: { value: number; looks: number }, value: number): { value: number; looks: number } {
  return { value, looks: before.value === value ? before.looks + 1 : 0 };
}

/** Milliseconds between beats of a thread that is watched with this deadline. */
export function beatMs(timeoutMs: number): number {
  return Math.max(1, timeoutMs / LOOKS / 2);
}
