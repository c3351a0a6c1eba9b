import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';

/** The key of a wait: the mail of an endpoint, or of a route. */
type Name = { readonly account: string } & ({ readonly url: string } | { readonly routeId: string });

/** How long a call waits at most. */
interface Patience {
  readonly waitMs: number;
  readonly gone: AbortSignal;
}

/** Wakes calls that wait for mail. */
export function createMailWaiters(clock: Clock) {
  const listeners = new Map<string, Set<() => void>>();
  const keyOf = (name: Name) => `${name.account}\0${'url' in name ? name.url : name.routeId}`;
  let stopped = false;

  function wakeAll(): void {
    for (const here of listeners.values()) for (const ring of here) ring();
  }

  return frozen({
    /**
     * Repeats `look` at each signal, and after the milliseconds that `restOf` returns for its result, until `restOf`
     * returns undefined (there is a result) or the wait is over. Returns the last result.
     */
    async find<T>(
      name: Name,
      { waitMs, gone }: Patience,
      look: () => Promise<T>,
      restOf: (seen: T) => number | undefined,
    ): Promise<T> {
      const end = clock.monotonic() + waitMs;
      const key = keyOf(name);
      const here = listeners.get(key) ?? new Set();
      listeners.set(key, here);
      let rung = false;
      let wake = () => {};
      const ring = () => {
        rung = true;
        wake();
      };
      here.add(ring);
      gone.addEventListener('abort', ring);
      try {
        for (;;) {
          // Before `look`, so that no signal between it and the wait is missed.
          rung = false;
          const seen = await look();
          const rest = restOf(seen);
          const left = end - clock.monotonic();
          if (rest === undefined || left <= 0 || stopped || gone.aborted) return seen;
          if (rung) continue;
          const signal = Promise.withResolvers<void>();
          wake = signal.resolve;
          const cancel = clock.after(Math.min(left, rest), wake);
          await signal.promise;
          cancel();
        }
      } finally {
        gone.removeEventListener('abort', ring);
        here.delete(ring);
        if (here.size === 0) listeners.delete(key);
      }
    },
    wake(name: Name) {
      for (const ring of listeners.get(keyOf(name)) ?? []) ring();
    },
    wakeAll,
    /** Ends the waits, so that their calls are answered. */
    stop() {
      stopped = true;
      wakeAll();
    },
  });
}
