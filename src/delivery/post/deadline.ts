import type { Clock } from '../../base/clock.ts';

/** One absolute deadline over everything that an attempt does. */
export interface Deadline {
  passed(): boolean;
  /** What to do when it passes; takes the place of what was said before, and is done at once when it has passed. */
  onPass(act: () => void): void;
  cancel(): void;
}

export function startDeadline(clock: Pick<Clock, 'after'>, ms: number): Deadline {
  let passed = false;
  let act = (): void => {};
  const cancel = clock.after(ms, () => {
    passed = true;
    act();
  });
  return {
    passed: () => passed,
    onPass(next) {
      act = next;
      if (passed) act();
    },
    cancel,
  };
}
