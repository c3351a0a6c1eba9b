import { chownSync, existsSync, mkdirSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { errorText, hasCode } from '../base/errors.ts';
import { createLog } from '../base/log.ts';
import { growthSettings } from '../composition/slices.ts';
import { folderOf, takeLock } from '../queue/disk/folder.ts';
import { isMongoUrl, MONGO_URL, type Settings } from '../settings.ts';
import { type Copied, CopyRefused, copyStore, type Progress } from '../store/copy.ts';
import { openEmbedded } from '../store/driver/embedded.ts';
import { type Database, StoreAway } from '../store/driver/port.ts';
import {
  type Command,
  Denied,
  EXIT,
  type Invocation,
  type Io,
  readSecret,
  toTable,
  Unavailable,
  UsageError,
} from './command.ts';

/** A call may wait longer than those of a daemon, because only one person waits for it. Milliseconds. */
const LEAST_TIMEOUT_MS = 60_000;
/** Progress within a collection is printed after this many rows. */
const REPORT_EVERY = 10_000;

export const storeCopy: Command = {
  args: 'FROM TO',
  options: {
    continue: { help: 'continue an interrupted copy; all rows in TO must come from FROM' },
  },
  notes:
    'FROM and TO: a folder with an embedded store (data_dir, such as /var/lib/postern), or @FILE, a file with the ' +
    'URL of a MongoDB database. The URL itself works too, but other users of the machine can see it on the command ' +
    'line.\n\n  postern store copy /var/lib/postern @/run/postern-store\n\n' +
    'The user postern must be able to read FILE (see "While the service is stopped" in docs/operations.md). FROM is ' +
    'not changed. If the copy is interrupted, run it again with --continue; no daemon starts on TO before the copy ' +
    'is complete. Queues, exports and histories are in data_dir and are not copied.',
  async run(call, io) {
    const [from, to] = [toLocation(call.word('FROM')), toLocation(call.word('TO', 1))];
    const { settings } = call.settings();
    if (from.kind === 'embedded' && !existsSync(from.file))
      throw new Unavailable(
        `no store found: ${from.file} (FROM is a data_dir, or @FILE with the URL of a MongoDB database)`,
      );
    if (from.name === to.name) throw new UsageError('FROM and TO are the same store');
    const held: (() => void)[] = [];
    const opened: Database[] = [];
    try {
      for (const location of [from, to]) held.push(keepDaemonsOut(location));
      for (const location of [from, to]) opened.push(await open(location, settings));
      return await copy(opened, call, io);
    } finally {
      await Promise.all(opened.map((database) => database.close()));
      for (const release of held) release();
    }
  },
};

async function copy([from, to]: readonly Database[], call: Invocation, io: Io): Promise<number> {
  if (!from || !to) throw new Error('two databases are needed');
  try {
    const copied = await copyStore({ from, to }, { resume: call.flag('continue'), onProgress: reporter(io) });
    call.print(copied, () => report(copied));
    return EXIT.ok;
  } catch (error) {
    if (error instanceof StoreAway)
      io.err('Everything copied so far is kept; run the command again with --continue.\n');
    if (!(error instanceof CopyRefused)) throw error;
    io.err(`postern store copy: ${error.message}\n`);
    return EXIT.failed;
  }
}

/** Prints a line when a collection begins, and again after many rows. */
function reporter(io: Io): (progress: Progress) => void {
  let last = '';
  let next = 0;
  return ({ collection, doing, rows }) => {
    if (`${doing} ${collection}` !== last) next = 0;
    last = `${doing} ${collection}`;
    if (rows < next) return;
    next = rows - (rows % REPORT_EVERY) + REPORT_EVERY;
    io.err(`${last}: ${rows} rows\n`);
  };
}

function report(copied: readonly Copied[]): string {
  const filled = copied.filter(({ rows }) => rows > 0);
  const total = copied.reduce((sum, { rows }) => sum + rows, 0);
  return (
    toTable(
      ['collection', 'rows', 'existed before'],
      filled.map(({ collection, rows, there }) => [collection, rows, there]),
    ) +
    `\nBoth sides have the same ${total} rows. To use the copy, change store.url or data_dir ` +
    'in the settings.\n'
  );
}

/** The location of a store; `name` distinguishes two locations. */
type StoreLocation =
  | { readonly kind: 'embedded'; readonly name: string; readonly file: string }
  | { readonly kind: 'mongo'; readonly name: string; readonly url: string };

function toLocation(text: string): StoreLocation {
  if (isMongoUrl(text)) return { kind: 'mongo', name: text, url: text };
  if (text.startsWith('@')) {
    const url = readSecret(text.slice(1));
    if (!isMongoUrl(url)) throw new UsageError(`${text.slice(1)} must contain a URL: ${MONGO_URL}`);
    return { kind: 'mongo', name: url, url };
  }
  if (/^[a-z+]+:\/\//i.test(text)) throw new UsageError(`not a store: ${text}; a URL must be ${MONGO_URL}`);
  const path = resolve(text);
  const file = path.endsWith('.db') ? path : join(path, 'store.db');
  return { kind: 'embedded', name: existsSync(file) ? realpathSync(file) : file, file };
}

/** Locks the queue beside an embedded store, so that no daemon can start. */
function keepDaemonsOut(location: StoreLocation): () => void {
  if (location.kind !== 'embedded') return () => undefined;
  const dir = dirname(location.file);
  const { lock } = folderOf(join(dir, 'spool'));
  if (!existsSync(lock)) return () => undefined;
  try {
    return takeLock(lock).release;
  } catch (error) {
    if (!(error instanceof Error && error.name === 'SpoolInUse')) throw allowed(error);
    throw new Unavailable(
      `a daemon uses ${dir}. Stop it first (systemctl stop postern), or what it writes during the copy is lost`,
    );
  }
}

const quiet = createLog('silent');

async function open(location: StoreLocation, settings: Settings): Promise<Database> {
  const timeoutMs = Math.max(LEAST_TIMEOUT_MS, settings.store.timeout_ms);
  const tools = { log: quiet, clock: systemClock };
  if (location.kind === 'mongo') {
    // Loaded only if used, as in composition/storage.ts.
    const { openMongo } = await import('../store/driver/mongo.ts');
    return openMongo({ url: location.url, timeoutMs }, tools);
  }
  const folder = dirname(location.file);
  const isNew = !existsSync(location.file);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o750 });
    const database = await openEmbedded({ file: location.file, timeoutMs, room: growthSettings(settings) }, tools);
    if (isNew) giveToOwner(location.file);
    return database;
  } catch (error) {
    throw allowed(error);
  }
}

/** Gives a file made by root to the owner of the folder: the daemon's user. */
function giveToOwner(file: string): void {
  if (process.getuid?.() !== 0) return;
  const { uid, gid } = statSync(dirname(file));
  for (const end of ['', '-wal', '-shm']) if (existsSync(file + end)) chownSync(file + end, uid, gid);
}

function allowed(error: unknown): unknown {
  if (!hasCode(error, 'EACCES')) return error;
  return new Denied(`permission denied: ${errorText(error)}; run this as root or as the daemon's user`);
}
