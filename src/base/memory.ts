import type { Clock } from './clock.ts';
import { frozen } from './frozen.ts';

/** Values by key, of a bounded number: what strangers can make us remember must have an end. */
interface Memory<V> {
  get(key: string): V | undefined;
  set(key: string, value: V): void;
  /** Answers whether there was one. */
  delete(key: string): boolean;
}

interface MemorySettings<V> {
  /** Values that are kept; above that the oldest is dropped. */
  readonly most: number;
  /** Drops what was not used for longest, instead of the oldest. */
  readonly keepUsed?: boolean;
  /** Where values differ much in size: what one takes, and what all together may take. */
  readonly weight?: { readonly of: (key: string, value: V) => number; readonly most: number };
}

/** A memory whose values hold until they are dropped. */
export function createMemory<V>({ most, keepUsed = false, weight }: MemorySettings<V>): Memory<V> {
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
    get(key) {
      const value = kept.get(key);
      if (!keepUsed || value === undefined) return value;
      kept.delete(key);
      kept.set(key, value);
      return value;
    },
    set(key, value) {
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
    delete: remove,
  });
}

/** A memory whose values hold for a time. */
export interface ExpiringMemory<V> {
  get(key: string): V | undefined;
  /** Keeps the value for so many milliseconds; nothing when that is not above 0. */
  set(key: string, value: V, ms: number): void;
  delete(key: string): boolean;
}

/** As `createMemory`, each value until its time is over by the clock. */
export function createExpiringMemory<V>(settings: Omit<MemorySettings<V>, 'weight'>, clock: Clock): ExpiringMemory<V> {
  const kept = createMemory<{ readonly value: V; readonly until: number }>(settings);
  return frozen({
    get(key) {
      const entry = kept.get(key);
      if (entry === undefined || clock.monotonic() < entry.until) return entry?.value;
      kept.delete(key);
      return undefined;
    },
    set(key, value, ms) {
      if (ms > 0) kept.set(key, { value, until: clock.monotonic() + ms });
    },
    delete: kept.delete,
  });
}

/** What was read, believed for a while. */
interface Recent<T> {
  /** What was read at most `freshMs` before `now`, by the clock of the caller; else what is read now. */
  get(key: string, now: number): Promise<T>;
  /** It has changed: what was read, or is being read, is not believed any more. */
  forget(key: string): void;
}

/** Readings that are kept. */
const MOST_READINGS = 10_000;

/**
 * Remembers what `read` found for `freshMs` milliseconds; those who ask meanwhile share one reading. A failure is
 * not remembered.
 */
export function createRecent<T>(read: (key: string) => Promise<T>, freshMs: number): Recent<T> {
  const kept = createMemory<{ readonly at: number; readonly value: Promise<T> }>({ most: MOST_READINGS });
  return frozen({
    async get(key, now) {
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
    forget(key) {
      kept.delete(key);
    },
  });
}

/** Runs of one name that are asked for at the same time are one run, whose result all get. */
export function createShared<T>(): (name: string, run: () => Promise<T>) => Promise<T> {
  const running = new Map<string, Promise<T>>();
  return (name, run) => {
    const known = running.get(name);
    if (known) return known;
    const next = run().finally(() => running.delete(name));
    running.set(name, next);
    return next;
  };
}
