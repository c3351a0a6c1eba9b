import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Clock, systemClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { createRunningTime, type RunningTime, readTimeMemory } from '../base/running-time.ts';
import type { Spool } from '../queue/delivery.ts';
import { openSpool } from '../queue/spool.ts';
import type { Settings } from '../settings.ts';
import { openEmbedded } from '../store/driver/embedded.ts';
import { measured } from '../store/driver/measured.ts';
import type { Database } from '../store/driver/port.ts';
import { createKeyUses, type KeyUses } from '../store/key-uses.ts';
import { createTokenSecret, type TokenSecret } from '../store/rows/hosts.ts';
import { openStore, type Store } from '../store/store.ts';
import { meteredDatabase, type UsageMeter } from '../store/usage.ts';
import { readStoreUrl } from './files.ts';
import { type DaemonDeps, roomSettings, spoolDir } from './slices.ts';

/** The queue, the store and what accounts have in it, the time that counts, what signs tokens, and uses of keys. */
export interface Storage {
  readonly spool: Spool;
  readonly store: Store;
  readonly meter: UsageMeter;
  readonly time: RunningTime;
  readonly tokenSecret: TokenSecret;
  readonly keyUses: KeyUses;
}

/** The queue and the store. */
export async function openStorage(
  settings: Settings,
  { log, clock, ids, metrics, role }: DaemonDeps,
): Promise<Storage> {
  const dir = spoolDir(settings);
  mkdirSync(dir, { recursive: true, mode: 0o750 });
  const spool = await openSpool(
    {
      dir,
      ...roomSettings(settings),
    },
    { clock, log, metrics, role },
  );
  const time = await openTime(spool, { clock, log });
  const { database, meter } = await meteredDatabase(measured(await openDatabase(settings, log), { clock, metrics }), {
    clock,
    log,
  });
  const store = await openStore(database);
  return {
    spool,
    store,
    meter,
    time,
    tokenSecret: createTokenSecret(store, ids),
    keyUses: createKeyUses({ store, clock, log }),
  };
}

const DAY_MS = 86_400_000;

/** The time that counts for what waits. A clock that is far from what the last process saw is a person's to look at. */
async function openTime(
  spool: Pick<Spool, 'lastTime'>,
  { clock, log }: { clock: Clock; log: Log },
): Promise<RunningTime> {
  const { memory, newest } = await spool.lastTime();
  const kept = memory === null ? undefined : readTimeMemory(memory);
  const time = createRunningTime(clock, kept ?? (newest === null ? undefined : { seen: newest, skips: [] }));
  if (time.odd !== 0) {
    const days = Math.round(Math.abs(time.odd) / DAY_MS);
    log.warn('daemon.clock', {
      days,
      note: `the clock is ${days} days ${time.odd > 0 ? 'ahead of' : 'behind'} what this queue saw last; expiry is suspended for one hour so that the clock can be corrected`,
    });
  }
  return time;
}

/**
 * The store's database: MongoDB when a URL is set, else a file under data_dir. How long a thread or a server may take is
 * real time, whatever clock the rest runs by.
 */
export async function openDatabase(settings: Settings, log: Log): Promise<Database> {
  const { timeout_ms: timeoutMs } = settings.store;
  const address = readStoreUrl(settings.store);
  if (address !== '') {
    // The driver takes 30 MB and a tenth of the start: who does not use it should not have it.
    const { openMongo } = await import('../store/driver/mongo.ts');
    return openMongo({ url: address, timeoutMs }, { log, clock: systemClock });
  }
  return openEmbedded(
    { file: join(resolve(settings.data_dir), 'store.db'), timeoutMs, room: roomSettings(settings) },
    { log, clock: systemClock },
  );
}
