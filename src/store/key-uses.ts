import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { atOnce } from '../base/turns.ts';
import { StoreAway } from './driver/port.ts';
import type { KeyRow } from './rows/accounts.ts';
import type { Store } from './store.ts';

interface KeyUsesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'keys'>;
}

/** How often the row of a key is written at most. Milliseconds. */
const WRITE_MS = 60_000;
/** Keys whose use waits to be written; what more keys do in that minute is not noted. */
const MOST_UNWRITTEN = 100_000;

/**
 * When keys were last used. A use is noted in memory, and all that were noted in a minute are written to their rows
 * together, in the background: no call waits for it. A host that is killed forgets the last minute.
 */
export type KeyUses = ReturnType<typeof createKeyUses>;

export function createKeyUses({ store, clock, log }: KeyUsesDeps) {
  /** Row id to milliseconds since 1970. */
  const unwritten = new Map<string, number>();
  let cancel: (() => void) | undefined;
  let writing: Promise<void> = Promise.resolve();

  function schedule(): void {
    cancel ??= clock.after(WRITE_MS, () => {
      writing = write().finally(() => {
        cancel = undefined;
        if (unwritten.size > 0) schedule();
      });
    });
  }

  /** Never throws. What cannot be written is kept for the next time. */
  async function write(): Promise<void> {
    try {
      await atOnce([...unwritten], async ([id, at]) => {
        await writeOne(id, new Date(at));
        if (unwritten.get(id) === at) unwritten.delete(id);
      });
    } catch (error) {
      if (!(error instanceof StoreAway)) log.error('store.fault', { error });
    }
  }

  /** Never back in time: another host may have written a later use. */
  async function writeOne(id: string, at: Date): Promise<void> {
    const written = await store.keys.change({ id, lastUsedAt: { range: { lt: at } } }, { lastUsedAt: at });
    if (!written) await store.keys.change({ id, lastUsedAt: null }, { lastUsedAt: at });
  }

  return frozen({
    /** The key of this row is used now. */
    note(id: string) {
      if (unwritten.size >= MOST_UNWRITTEN && !unwritten.has(id)) return;
      unwritten.set(id, clock.now());
      schedule();
    },
    /** When a key was last used: by its row, or later by what this host has not written yet. Null: never. */
    lastUse({ id, lastUsedAt = null }: KeyRow): Date | null {
      const here = unwritten.get(id);
      return here === undefined || (lastUsedAt && lastUsedAt.getTime() > here) ? lastUsedAt : new Date(here);
    },
    /** Writes what is left. Never throws. */
    async stop() {
      cancel?.();
      await writing.then(write);
      cancel?.();
    },
  });
}
