import { join } from 'node:path';
import { systemClock } from '../../src/base/clock.ts';
import type { Log } from '../../src/base/log.ts';
import { openEmbedded } from '../../src/store/driver/embedded.ts';
import { openStore, type Store } from '../../src/store/store.ts';
import { createTestLog } from './log.ts';
import { NO_FLOOR } from './room.ts';
import { tempDir } from './temp.ts';
import { PATIENCE } from './until.ts';

/** An empty embedded store in `dir`, or in a folder of its own. */
export async function openTestStore(log: Log = createTestLog(), dir?: string): Promise<Store> {
  return openStore(
    await openEmbedded(
      { file: join(dir ?? (await tempDir()), 'store.db'), timeoutMs: 5000 * PATIENCE, room: NO_FLOOR },
      { log, clock: systemClock },
    ),
  );
}
