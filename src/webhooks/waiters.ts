import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';

/** A call that waits for mail. */
interface Waiter {
  /** Clears earlier signals. Call it before a read, so that none is missed between the read and the wait. */
  rest(): void;
  /** Resolves at a signal, when the client disconnects, and after this number of milliseconds. */
  wait(ms: number): Promise<void>;
  leave(): void;
}

/** The key of a wait: the mail of an endpoint, or of a route. */
type Name = { readonly account: string } & ({ readonly url: string } | { readonly routeId: string });

/** Wakes calls that wait for mail. */
export function createBell(clock: Clock) {
  const listeners = new Map<string, Set<() => void>>();
  const keyOf = (name: Name) => `${name.account}\0${'url' in name ? name.url : name.routeId}`;

  return frozen({
    listen(name: Name, gone: AbortSignal): Waiter {
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
      return {
        rest() {
          rung = gone.aborted;
        },
        wait: (ms) =>
          new Promise<void>((resolve) => {
            if (rung) return resolve();
            const cancel = clock.after(ms, () => wake());
            wake = () => {
              cancel();
              wake = () => {};
              resolve();
            };
          }),
        leave() {
          gone.removeEventListener('abort', ring);
          here.delete(ring);
          if (here.size === 0) listeners.delete(key);
        },
      };
    },
    ring(name: Name) {
      for (const ring of listeners.get(keyOf(name)) ?? []) ring();
    },
    ringAll() {
      for (const here of listeners.values()) for (const ring of here) ring();
    },
  });
}
