import { mapConcurrently } from '../base/concurrency.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import { StoreAway } from './driver/port.ts';
import type { KeyRow } from './rows/accounts.ts';
import type { Store } from './store.ts';

interface KeyUsesDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly store: Pick<Store, 'keys'>;
}

/** The shortest interval between two writes of a key's row. Milliseconds. */
const WRITE_MS = 60_000;
/** Maximum number of keys whose use waits to be written; uses of further keys are dropped. */
const MAX_UNWRITTEN = 100_000;

/**
 * When keys were last used. Uses are noted in memory and written to their rows once a minute, in the background. A host
 * that is killed loses the last minute.
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

  /** Never throws. Uses that cannot be written are kept for the next time. */
  async function write(): Promise<void> {
    try {
      await mapConcurrently([...unwritten], async ([id, at]) => {
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
    /** Notes a use of the key of this row. */
    note(id: string) {
      if (unwritten.size >= MAX_UNWRITTEN && !unwritten.has(id)) return;
      unwritten.set(id, clock.now());
      schedule();
    },
    /** When a key was last used, including uses that this host has not written yet. Null: never. */
    lastUse({ id, lastUsedAt = null }: KeyRow): Date | null {
      const here = unwritten.get(id);
      return here === undefined || (lastUsedAt && lastUsedAt.getTime() > here) ? lastUsedAt : new Date(here);
    },
    /** Writes the remaining uses. Never throws. */
    async stop() {
      cancel?.();
      await writing.then(write);
      cancel?.();
    },
  });
}
