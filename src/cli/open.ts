import { accessSync, constants, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
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
  mustBeThere(dir);
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

function mustBeThere(dir: string): void {
  try {
    accessSync(dir, constants.R_OK | constants.W_OK | constants.X_OK);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? error.code : undefined;
    if (code === 'ENOENT') throw new Error(`there is no queue in ${dirname(dir)} (data_dir); has the daemon run here?`);
    if (code === 'EACCES') throw new Error(`the queue in ${dirname(dir)} (data_dir) is not yours: run it as the user of the daemon (sudo -u postern postern …)`);
    throw error;
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
