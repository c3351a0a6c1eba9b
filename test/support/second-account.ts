import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { openDatabase } from '../../src/composition/storage.ts';
import { createAccount, createKey } from '../../src/store/rows/accounts.ts';
import { openStore } from '../../src/store/store.ts';
import { createCaller, type TestDaemon, testSettings } from './daemon.ts';
import { createTestLog } from './log.ts';

/** Makes an account beside the daemon, as `postern account create` does, and calls operations with its key. */
export async function addAccount({ dir, base }: Pick<TestDaemon, 'dir' | 'base'>, name = 'second') {
  const store = await openStore(await openDatabase(testSettings(dir), createTestLog()));
  const parts = { clock: systemClock, ids: createIds(systemClock) };
  const { id } = await createAccount(store, name, parts);
  const key = await createKey(store, id, 'k', parts);
  await store.close();
  return { id, key, ...createCaller(base, key) };
}
