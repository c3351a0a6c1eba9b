import { join } from 'node:path';
import { systemClock } from '../../src/base/clock.ts';
import type { Log } from '../../src/base/log.ts';
import { openEmbedded } from '../../src/store/driver/embedded.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { createTestLog } from './log.ts';
import { NO_FLOOR } from './room.ts';
import { borrowDatabase } from './shared-database.ts';
import { PATIENCE } from './until.ts';

/** An empty embedded store; in `dir` if its file matters. */
export async function openTestStore(log: Log = createTestLog(), dir?: string): Promise<Store> {
  if (dir === undefined) return openStore(await borrowDatabase(log));
  return openStore(
    await openEmbedded(
      { file: join(dir, 'store.db'), timeoutMs: 5000 * PATIENCE, room: NO_FLOOR },
      { log, clock: systemClock },
    ),
  );
}
