import { mkdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type Clock, DAY_MS, systemClock } from '../base/clock.ts';
import { createDiskSpace, type DiskSpace, readDiskSpace } from '../base/disk-space.ts';
import type { Log } from '../base/log.ts';
import { keepPrivate } from '../base/private-files.ts';
import { createRunningTime, type RunningTime, readTimeMemory } from '../base/running-time.ts';
import { hasOwnStore } from '../config.ts';
import type { Spool } from '../queue/delivery.ts';
import { openSpool } from '../queue/spool.ts';
import type { Settings } from '../settings.ts';
import { withCircuitBreaker } from '../store/driver/circuit-breaker.ts';
import { openEmbedded } from '../store/driver/embedded.ts';
import { measured } from '../store/driver/measured.ts';
import type { Database } from '../store/driver/port.ts';
import { createKeyUses } from '../store/key-uses.ts';
import { createTokenSecret } from '../store/rows/hosts.ts';
import { openStore } from '../store/store.ts';
import { meteredDatabase } from '../store/usage.ts';
import { readStoreUrl } from './files.ts';
import { FEATURES } from './known-features.ts';
import { type DaemonDeps, growthSettings, roomSettings, spoolDir } from './slices.ts';

export type Storage = Awaited<ReturnType<typeof openStorage>>;

/** Opens the queue and the store. */
export async function openStorage(
  settings: Settings,
  { log, clock, ids, metrics, role, features = FEATURES }: DaemonDeps,
) {
  const dir = spoolDir(settings);
  mkdirSync(dir, { recursive: true, mode: 0o750 });
  const spool = await openSpool(
    { dir, ...roomSettings(settings) },
    { clock, log, metrics, role, copies: !hasOwnStore(settings) },
  );
  if (role === 'daemon')
    void keepPrivate(resolve(settings.data_dir), isOurs).catch((error: unknown) => log.warn('daemon.fault', { error }));
  const time = await openTime(spool, { clock, log });
  const growth = createDiskSpace('store', growthSettings(settings), {
    clock: systemClock,
    log,
    look: () => readDiskSpace(resolve(settings.data_dir)),
  });
  await growth.start();
  const opened = await openDatabase(settings, log, growth).catch((error: unknown) => {
    growth.stop();
    throw error;
  });
  const quick = await withCircuitBreaker(opened, { clock: systemClock });
  const { database, meter } = await meteredDatabase(measured(quick, { clock, metrics }), { clock, log });
  const counted = {
    ...database,
    async close() {
      growth.stop();
      await database.close();
    },
  };
  const store = await openStore(counted, new Set(features));
  return {
    /** Disk space for data of accounts other than mail, which ends before that for mail. */
    growth,
    spool,
    store,
    meter,
    time,
    tokenSecret: createTokenSecret(store, ids),
    keyUses: createKeyUses({ store, clock, log }),
  };
}

/** Names in the folder of the data. */
const OURS = /^(?:spool|exports|links|link-claims|certificates\.json|(?:store|journal)\.db.*)$/;
const isOurs = (name: string) => OURS.test(name);

/** Creates the running time, which expiry uses. Warns the operator if the clock is far from the last time seen. */
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
      note:
        `the clock is ${days} days ${time.odd > 0 ? 'ahead of' : 'behind'} the last time that this queue ` +
        'recorded; expiry is suspended for one hour so that the clock can be corrected',
    });
  }
  return time;
}

/**
 * Opens the store's database: MongoDB if a URL is set, else a file under data_dir. Timeouts use the system clock, even
 * if the rest uses another one. `room` is the watched room of its disk, if there is one.
 */
export async function openDatabase(settings: Settings, log: Log, room?: DiskSpace): Promise<Database> {
  const { timeout_ms: timeoutMs } = settings.store;
  const address = readStoreUrl(settings.store);
  if (address !== '') {
    // Loaded only if used: the driver takes 30 MB and a tenth of the startup time.
    const { openMongo } = await import('../store/driver/mongo.ts');
    const { max_connections: maxConnections, idle_seconds: idleSeconds } = settings.store;
    const pool = { maxConnections, idleMs: idleSeconds * 1000 };
    return openMongo({ url: address, timeoutMs, ...pool }, { log, clock: systemClock });
  }
  return openEmbedded(
    { file: join(resolve(settings.data_dir), 'store.db'), timeoutMs, room: growthSettings(settings) },
    { log, clock: systemClock, ...(room && { room }) },
  );
}
