import { createBoundedCache } from '../base/cache.ts';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { StoreAway } from './driver/port.ts';

/** The delay before a store that did not answer is tried again. Milliseconds. */
const AGAIN_MS = 2000;
/** Cached values; beyond that the oldest is evicted. */
const MOST = 50_000;

/** Store reads, cached by key for a while; other hosts may change them. `read` must not return undefined. */
export function createCachedReads<T extends NonNullable<unknown> | null>(
  read: (key: string) => Promise<T>,
  freshMs: number,
  { clock }: { readonly clock: Clock },
) {
  const known = createBoundedCache<{ readonly value: T; readonly readAt: number }>({ most: MOST });
  /** Set while the store is unavailable. */
  let askAgainAt: number | undefined;

  /** Reads the value now; throws `StoreAway`. */
  async function now(key: string): Promise<T> {
    if (askAgainAt !== undefined) askAgainAt = Number.POSITIVE_INFINITY; // one reader at a time
    try {
      const value = await read(key);
      askAgainAt = undefined;
      keep(key, value);
      return value;
    } catch (error) {
      askAgainAt = error instanceof StoreAway ? clock.monotonic() + AGAIN_MS : undefined;
      throw error;
    }
  }

  /** Undefined if the store is unavailable. */
  async function ask(key: string): Promise<T | undefined> {
    try {
      return await now(key);
    } catch (error) {
      if (error instanceof StoreAway) return undefined;
      throw error;
    }
  }

  /** Stores a value that the caller knows to be current. */
  function keep(key: string, value: T): void {
    known.set(key, { value, readAt: clock.monotonic() });
  }

  return frozen({
    /**
     * Returns the cached value if it is younger than `freshMs`, else reads it. While the store is unavailable, the last
     * value is returned without waiting: otherwise each caller would be held for as long as a store operation may take,
     * and mail would pile up. Undefined: the store is unavailable and the key was never read.
     */
    async of(key: string): Promise<T | undefined> {
      const last = known.get(key);
      const at = clock.monotonic();
      if (last && at - last.readAt < freshMs) return last.value;
      if (last && askAgainAt !== undefined) {
        // Any other error reaches the first caller that waits for the store again.
        if (at >= askAgainAt) ask(key).catch(() => undefined);
        return last.value;
      }
      const value = await ask(key);
      return value === undefined ? last?.value : value;
    },
    now,
    keep,
  });
}
