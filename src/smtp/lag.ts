import type { Clock } from '../base/clock.ts';

const PROBE_MS = 100;
/** How long the loop must lag before new sessions are put off: a single long pause is no overload. */
const PATIENCE_MS = 1000;

/** Watches how late timers come, which is how late everything comes. */
export interface LagProbe {
  start(): void;
  stop(): void;
  /** Whether the loop has lagged by more than the limit for a second. */
  lagging(): boolean;
}

export function createLagProbe(maxLagMs: number, clock: Clock): LagProbe {
  let cancel: (() => void) | undefined;
  let laggingSince: number | undefined;

  function probe() {
    const due = clock.monotonic() + PROBE_MS;
    cancel = clock.after(PROBE_MS, () => {
      if (clock.monotonic() - due <= maxLagMs) laggingSince = undefined;
      else laggingSince ??= due;
      probe();
    });
  }

  return Object.freeze({
    start() {
      if (!cancel) probe();
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
    lagging: () => laggingSince !== undefined && clock.monotonic() - laggingSince >= PATIENCE_MS,
  });
}
