import type { Clock } from '../base/clock.ts';

/** Waiting that ends early when everything ends. */
export interface Pauses {
  wait(ms: number): Promise<void>;
  end(): void;
}

/** Pauses on a clock. */
export function createPauses(clock: Clock): Pauses {
  const waiting = new Set<() => void>();
  let ended = false;
  return Object.freeze({
    wait: (ms: number) =>
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
