import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';

interface CacheSettings<V> {
  /** Maximum number of values; beyond it the oldest is dropped. */
  readonly most: number;
  /** Drops the least recently used value instead of the oldest. */
  readonly keepUsed?: boolean;
  /** For values of very different sizes: the weight of one value, and the maximum total. */
  readonly weight?: { readonly of: (key: string, value: V) => number; readonly most: number };
}

/** A bounded cache, because strangers must not fill the memory. Its values do not expire. */
export function createBoundedCache<V>({ most, keepUsed = false, weight }: CacheSettings<V>) {
  const kept = new Map<string, V>(); // in the order of insertion
  let total = 0;
  const weigh = (key: string, value: V) => weight?.of(key, value) ?? 0;

  function remove(key: string): boolean {
    const value = kept.get(key);
    if (value === undefined) return false;
    total -= weigh(key, value);
    return kept.delete(key);
  }

  return frozen({
    get(key: string) {
      const value = kept.get(key);
      if (!keepUsed || value === undefined) return value;
      kept.delete(key);
      kept.set(key, value);
      return value;
    },
    set(key: string, value: V) {
      remove(key);
      const own = weigh(key, value);
      if (weight && own > weight.most) return;
      kept.set(key, value);
      total += own;
      for (const oldest of kept.keys()) {
        if (kept.size <= most && (!weight || total <= weight.most)) break;
        remove(oldest);
      }
    },
    /** Returns whether there was a value. */
    delete: remove,
  });
}

/** A cache whose values expire. */
export type ExpiringCache<V> = ReturnType<typeof createExpiringCache<V>>;

/** As `createBoundedCache`, but values expire, by the monotonic clock. */
export function createExpiringCache<V>(settings: Omit<CacheSettings<V>, 'weight'>, clock: Clock) {
  const kept = createBoundedCache<{ readonly value: V; readonly until: number }>(settings);
  return frozen({
    get(key: string): V | undefined {
      const entry = kept.get(key);
      if (entry === undefined || clock.monotonic() < entry.until) return entry?.value;
      kept.delete(key);
      return undefined;
    },
    /** Keeps the value for `ms` milliseconds. Does nothing if `ms` is not positive. */
    set(key: string, value: V, ms: number) {
      if (ms > 0) kept.set(key, { value, until: clock.monotonic() + ms });
    },
    delete: kept.delete,
  });
}

/** Maximum number of readings. */
const MAX_READINGS = 10_000;

/** Caches results of `read` for `freshMs` milliseconds. Concurrent callers share one read. Failures are not cached. */
export function createReadCache<T>(read: (key: string) => Promise<T>, freshMs: number) {
  const kept = createBoundedCache<{ readonly at: number; readonly value: Promise<T> }>({ most: MAX_READINGS });
  return frozen({
    /** Returns a value read at most `freshMs` before `now` (by the caller's clock), or reads it now. */
    async get(key: string, now: number) {
      const known = kept.get(key);
      if (known && now - known.at < freshMs && now >= known.at) return known.value;
      const made = { at: now, value: read(key) };
      kept.set(key, made);
      try {
        return await made.value;
      } catch (error) {
        if (kept.get(key) === made) kept.delete(key);
        throw error;
      }
    },
    /** Discards the value, including one still being read, because it has changed. */
    forget(key: string) {
      kept.delete(key);
    },
  });
}

/** Concurrent calls with the same name share one run and its result. */
export function createSingleFlight<T>(): (name: string, run: () => Promise<T>) => Promise<T> {
  const running = new Map<string, Promise<T>>();
  return (name, run) => {
    const known = running.get(name);
    if (known) return known;
    const next = run().finally(() => running.delete(name));
    running.set(name, next);
    return next;
  };
}
