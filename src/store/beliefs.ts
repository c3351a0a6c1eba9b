import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { createMemory } from '../base/memory.ts';
import { StoreAway } from './driver/port.ts';

/** What the store said, by key, believed for a while; other hosts may have changed it since. */
interface Beliefs<T> {
  /**
   * What was read within `freshMs`, else what the store says now. While the store is away what was read last goes on
   * being believed, and nobody waits for an answer: each would hold its place for as long as an operation of the store
   * may take, so that mail would pile up for the time after its return. Undefined: the store is away and was never
   * asked about this.
   */
  of(key: string): Promise<T | undefined>;
  /** What the store says now; throws StoreAway. */
  now(key: string): Promise<T>;
  /** Somebody here knows better. */
  keep(key: string, value: T): void;
}

/** How soon a store that did not answer is asked again. */
const AGAIN_MS = 2000;
/** Values that are kept at a time; above that the one that was read first is forgotten. */
const MOST = 50_000;

/** `read` asks the store. What it finds must not be undefined. */
export function createBeliefs<T extends NonNullable<unknown> | null>(
  read: (key: string) => Promise<T>,
  freshMs: number,
  { clock }: { readonly clock: Clock },
): Beliefs<T> {
  const known = createMemory<{ readonly value: T; readonly readAt: number }>({ most: MOST });
  /** Set while the store is away. */
  let askAgainAt: number | undefined;

  async function now(key: string): Promise<T> {
    if (askAgainAt !== undefined) askAgainAt = Number.POSITIVE_INFINITY; // one at a time
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

  /** Answers nothing when the store is away. */
  async function ask(key: string): Promise<T | undefined> {
    try {
      return await now(key);
    } catch (error) {
      if (error instanceof StoreAway) return undefined;
      throw error;
    }
  }

  function keep(key: string, value: T): void {
    known.set(key, { value, readAt: clock.monotonic() });
  }

  return frozen({
    async of(key) {
      const last = known.get(key);
      const at = clock.monotonic();
      if (last && at - last.readAt < freshMs) return last.value;
      if (last && askAgainAt !== undefined) {
        // What else may be wrong with the store is heard by the first who waits for it again.
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
