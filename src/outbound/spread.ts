/** Keeps those who wait from all asking at once. */
export interface Spread {
  /** How many milliseconds from now one that has to wait asks again; `chance` is in [0, 1). */
  next(now: number, chance: number): number;
}

const MINUTE_MS = 60_000;
const LONGEST_MS = 15 * MINUTE_MS;
/** Putting one off is a write to the spool; so many in a minute are cheap. */
const ASKS_PER_MINUTE = 1200;

/** Every minute, and less often when so many wait that their asking would be a load of its own. */
export function createSpread(): Spread {
  let span = MINUTE_MS;
  let asked = 0;
  let from = Number.NEGATIVE_INFINITY;
  return Object.freeze({
    next(now: number, chance: number) {
      if (now - from >= MINUTE_MS || now < from) {
        span = Math.min(LONGEST_MS, Math.max(MINUTE_MS, (span * asked) / ASKS_PER_MINUTE));
        asked = 0;
        from = now;
      }
      asked++;
      // Half of it by chance, so that what was queued together does not ask together for ever.
      return Math.round((span * (1 + chance)) / 2);
    },
  });
}
