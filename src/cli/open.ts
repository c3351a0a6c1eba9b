import { accessSync, constants, existsSync, mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { createHostDeliveries } from '../api/hosts/host-deliveries.ts';
import { systemClock } from '../base/clock.ts';
import { errorText, hasCode } from '../base/errors.ts';
import { createIds } from '../base/ids.ts';
import { createLog } from '../base/log.ts';
import { NO_METRICS } from '../base/metrics.ts';
import { dnsSettings, journalSettings, scannerSettings } from '../composition/slices.ts';
import type { Daemon } from '../daemon.ts';
import type { Resolver } from '../dns/types.ts';
import { openJournalReader } from '../journal/command-access.ts';
import { isUnusable } from '../journal/file.ts';
import type { History } from '../journal/history.ts';
import type { Spool } from '../queue/delivery.ts';
import type { Settings } from '../settings.ts';
import { checkFormat } from '../store/rows/hosts.ts';
import type { Store } from '../store/store.ts';
import { Denied, type Invocation, type Io, Unavailable } from './command.ts';

// The code for the queue, the store and other parts is loaded when a command opens them.

/** The tools of commands, which report their own errors: nothing goes to the daemon's log. */
export const tools = { clock: systemClock, ids: createIds(systemClock), log: createLog('silent') };

const queueDir = (settings: Settings) => join(settings.data_dir, 'spool');

/** Opens this host's queue while `use` runs. A running daemon notices changes within a second. */
export async function withSpool<T>(settings: Settings, use: (spool: Spool) => Promise<T>): Promise<T> {
  const dir = queueDir(settings);
  mustHaveQueue(dir);
  const { openSpool } = await import('../queue/spool.ts');
  const spool = await openSpool(
    { dir, minFreePercent: 0, minFreeBytes: 0, maxMessageBytes: settings.smtp.max_message_bytes },
    { clock: systemClock, log: tools.log, role: 'visitor', metrics: NO_METRICS },
  );
  try {
    return await use(spool);
  } finally {
    await spool.close();
  }
}

/** Opens this host's queue in the form in which its daemon lists it to other hosts. */
export async function withDeliveries<T>(
  settings: Settings,
  use: (deliveries: ReturnType<typeof createHostDeliveries>) => Promise<T>,
): Promise<T> {
  const { rspamd, spamd, clamd, milters } = scannerSettings(settings);
  const hasScanners = rspamd !== '' || Boolean(spamd) || Boolean(clamd) || milters.length > 0;
  const { subjects: keepsHeaders } = journalSettings(settings);
  const { createHostDeliveries } = await import('../api/hosts/host-deliveries.ts');
  return withSpool(settings, (spool) =>
    use(createHostDeliveries({ keepsHeaders, hasScanners }, { spool, clock: systemClock })),
  );
}

/** Whether there is a store: opening the embedded one would create it. */
export function hasStore({ store, data_dir: dir }: Settings): boolean {
  return store.url !== '' || store.url_file !== '' || existsSync(join(dir, 'store.db'));
}

/** A resolver without a cache, because the operator has often just changed a record. */
export async function withResolver<T>(settings: Settings, use: (resolver: Resolver) => Promise<T>): Promise<T> {
  const { createResolver } = await import('../dns/resolver.ts');
  const resolver = createResolver(dnsSettings(settings), {
    ...tools,
    metrics: NO_METRICS,
    cacheEntries: 0,
  });
  // DNS queries do not keep the process alive, which is right in the daemon but not here.
  const alive = setInterval(() => {}, 1000);
  try {
    return await use(resolver);
  } finally {
    await resolver.stop();
    clearInterval(alive);
  }
}

/** Opens the history of this host for reading while `use` runs; a running daemon continues to write it. */
export async function withHistory<T>(settings: Settings, use: (history: History) => Promise<T>): Promise<T> {
  const { file } = journalSettings(settings);
  if (!mustBeOurs(settings.data_dir) || !existsSync(file))
    throw new Unavailable(`no history in ${settings.data_dir} (data_dir). ${STARTED}`);
  const reading = open(file);
  try {
    return await use(reading.history);
  } finally {
    reading.close();
  }
}

function open(file: string): ReturnType<typeof openJournalReader> {
  try {
    return openJournalReader(file, systemClock);
  } catch (error) {
    if (!isUnusable(error)) throw error;
    const reason = errorText(error);
    throw new Unavailable(
      `the history ${file} cannot be read: ${reason}. The daemon replaces it with a new one at its next start`,
    );
  }
}

/** A command that has the store open. */
export interface StoreCall {
  readonly call: Invocation;
  readonly io: Io;
  readonly settings: Settings;
  readonly store: Store;
}

/** The `run` of a command that opens the store first. */
export const runWithStore =
  <T>(use: (parts: StoreCall) => Promise<T>) =>
  (call: Invocation, io: Io): Promise<T> => {
    const { settings } = call.settings();
    return withStore(settings, (store) => use({ call, io, settings, store }));
  };

/** Opens the store while `use` runs. */
export async function withStore<T>(settings: Settings, use: (store: Store) => Promise<T>): Promise<T> {
  mustBeOurs(settings.data_dir);
  mkdirSync(settings.data_dir, { recursive: true, mode: 0o750 });
  const { FEATURES } = await import('../composition/known-features.ts');
  const { openDatabase } = await import('../composition/storage.ts');
  const { openStore } = await import('../store/store.ts');
  const store = await openStore(await openDatabase(settings, tools.log), new Set(FEATURES));
  try {
    await checkFormat(store);
    return await use(store);
  } finally {
    await store.close();
  }
}

/**
 * Calls `use` with the API's operations, so that an operator's changes follow the same rules as those of an account.
 * A running daemon notices changes within `inbound.refresh_ms`.
 */
export async function withOperations<T>(settings: Settings, use: (run: Daemon['run']) => Promise<T>): Promise<T> {
  mustHaveQueue(queueDir(settings));
  // Loaded only if used, as in serve and demo: the whole daemon takes longer to load than most commands take to run.
  const { openDaemon } = await import('../daemon.ts');
  const { createPrometheus } = await import('../base/prometheus.ts');
  const daemon = await openDaemon(settings, {
    ...tools,
    metrics: createPrometheus({ clock: systemClock }, { ofProcess: false }),
    shown: [], // only a daemon shows them
    role: 'visitor',
  });
  try {
    return await use(daemon.run);
  } finally {
    await daemon.stop();
  }
}

/** The advice where nothing has run yet, or other settings are meant. */
const STARTED = 'Start the daemon first, or pass its settings file with --config.';

function mustHaveQueue(dir: string): void {
  if (!mustBeOurs(dir)) throw new Unavailable(`no queue in ${dirname(dir)} (data_dir). ${STARTED}`);
}

/** Whether the folder exists. Throws `Denied` if another user owns it. */
function mustBeOurs(dir: string): boolean {
  try {
    accessSync(dir, constants.R_OK | constants.W_OK | constants.X_OK);
    return true;
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return false;
    if (hasCode(error, 'EACCES'))
      throw new Denied(
        `permission denied: ${dir} (data_dir) belongs to another user. Run this as root or as the daemon's user: ` +
          'sudo postern …',
      );
    throw error;
  }
}
