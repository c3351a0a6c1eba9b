import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { createLog, type Log } from '../base/log.ts';
import type { Settings } from '../settings.ts';
import { openDatabase } from '../composition/storage.ts';
import { openSpool } from '../spool/spool.ts';
import type { Spool } from '../spool/types.ts';
import { openStore, type Store } from '../store/store.ts';

/** What goes wrong while a command works is said by the command itself; the log of the daemon is not its place. */
const quiet: Log = createLog('silent');

/** Lends the queue of this host to `use`, whether the daemon runs or not: it notices within a second what was changed. */
export async function withSpool<T>(settings: Settings, use: (spool: Spool) => Promise<T>): Promise<T> {
  const dir = join(settings.data_dir, 'spool');
  if (!existsSync(dir)) throw new Error(`there is no queue in ${settings.data_dir} (data_dir); has the daemon run here?`);
  const spool = await openSpool(
    { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: settings.smtp.max_message_bytes },
    { clock: systemClock, log: quiet, role: 'visitor' },
  );
  try {
    return await use(spool);
  } finally {
    await spool.close();
  }
}

/** Lends the store to `use`. */
export async function withStore<T>(settings: Settings, use: (store: Store) => Promise<T>): Promise<T> {
  mkdirSync(settings.data_dir, { recursive: true, mode: 0o750 });
  const store = await openStore(await openDatabase(settings, quiet));
  try {
    return await use(store);
  } finally {
    await store.close();
  }
}
