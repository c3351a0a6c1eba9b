import { DatabaseSync } from 'node:sqlite';
import { SpoolTooNew } from '../faults.ts';
import type { DeliveryState } from '../types.ts';

/**
 * One sequence numbers deliveries; a message has the number of its first delivery, and `deliveries` says how many
 * numbers are its own. So everything grows at its end, and the deliveries of a message are a range that needs no index.
 *
 * A row keeps its length when it is delivered at the first attempt (`ended_at` holds a time from the beginning, small
 * numbers take no bytes, the body and the verdicts are elsewhere): SQLite then overwrites it in place instead of
 * splitting a full page. STRICT keeps nonsense from a damaged page out of a salvaged file.
 */
const TABLES = `
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE endpoints (
  key INTEGER PRIMARY KEY, account TEXT NOT NULL, url TEXT NOT NULL, memory TEXT, UNIQUE (account, url)
) STRICT;
CREATE TABLE messages (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, received_at INTEGER NOT NULL, deliveries INTEGER NOT NULL,
  envelope TEXT NOT NULL, trace TEXT NOT NULL, size INTEGER NOT NULL,
  blob TEXT, sha256 TEXT, crc INTEGER, bytes BLOB
) STRICT;
CREATE INDEX messages_blob ON messages (blob) WHERE blob IS NOT NULL;
CREATE TABLE verdicts (message INTEGER PRIMARY KEY, verdicts TEXT NOT NULL) STRICT;
CREATE TABLE deliveries (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, message INTEGER NOT NULL, endpoint INTEGER NOT NULL,
  route TEXT NOT NULL, pattern TEXT NOT NULL, recipient TEXT NOT NULL, bytes INTEGER NOT NULL,
  state INTEGER NOT NULL, created_at INTEGER NOT NULL, due_at INTEGER NOT NULL, ended_at INTEGER NOT NULL,
  budget_from INTEGER NOT NULL, attempts INTEGER NOT NULL, posts INTEGER NOT NULL, parked INTEGER NOT NULL, note TEXT
) STRICT;
CREATE INDEX deliveries_due ON deliveries (endpoint, due_at) WHERE state = 0;
CREATE INDEX deliveries_ended ON deliveries (state, ended_at, bytes) WHERE state > 0;
CREATE TABLE attempts (
  delivery INTEGER NOT NULL, n INTEGER NOT NULL, at INTEGER NOT NULL, duration REAL NOT NULL,
  status INTEGER, error TEXT, answer TEXT NOT NULL, PRIMARY KEY (delivery, n)
) WITHOUT ROWID, STRICT;
INSERT INTO meta (name, value) VALUES ('checked', 0);
`;

/**
 * Events on their way to webhooks. An event is pending while it names no batch; afterwards its id stays for as long as the
 * batch is kept, so that the same event is not taken twice. A batch has the number of its message, which is that of its one
 * delivery; `open` is 1 while it keeps its place, 2 while it is parked or dead and may go out one day, 0 when it is over. \`hooks\` counts what was sent, under the name that this queue had when the counting began: SQLite's own chance
 * is good enough for a name that only has to differ from those of a handful of other queues.
 */
const EVENTS = `
INSERT INTO meta (name, value) VALUES ('spool', random() & 9007199254740991);
CREATE TABLE hooks (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, account TEXT NOT NULL, url TEXT NOT NULL, gone INTEGER NOT NULL,
  spool INTEGER NOT NULL, batches INTEGER NOT NULL, events INTEGER NOT NULL, sent_at INTEGER, error TEXT, error_at INTEGER
) STRICT;
CREATE TABLE events (
  key INTEGER PRIMARY KEY, hook INTEGER NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, size INTEGER NOT NULL,
  batch INTEGER, body TEXT, UNIQUE (hook, id)
) STRICT;
CREATE INDEX events_pending ON events (hook, key, at, size) WHERE batch IS NULL;
CREATE INDEX events_frozen ON events (batch) WHERE batch IS NOT NULL;
CREATE TABLE batches (
  message INTEGER PRIMARY KEY, hook INTEGER NOT NULL, events INTEGER NOT NULL, open INTEGER NOT NULL, counted INTEGER NOT NULL
) STRICT;
CREATE INDEX batches_hook ON batches (hook);
CREATE INDEX batches_left ON batches (hook, open) WHERE open > 0;
`;

/** What attempts at mail going out have brought about, until the store was told. The number says what came first. */
const REPORTS = `
CREATE TABLE reports (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
`;

/** From when each that waits has waited, for whoever watches the queue: half a microsecond for each delivery. */
const SINCE = 'CREATE INDEX IF NOT EXISTS deliveries_since ON deliveries (budget_from) WHERE state = 0;';

/**
 * What the next start has to know of the time, as JSON in one row; and checksums over
 * what a message's row says beside its body, over its verdicts, and over what stays the same of its deliveries. Rows of an older version have none.
 */
const TIME = `
CREATE TABLE time (key INTEGER PRIMARY KEY, memory TEXT NOT NULL) STRICT;
ALTER TABLE messages ADD COLUMN sum INTEGER;
ALTER TABLE verdicts ADD COLUMN sum INTEGER;
ALTER TABLE deliveries ADD COLUMN sum INTEGER;
`;

/** What each version added. A new file gets them in turn too, so that its tables are those of one that grew. */
const VERSIONS = [TABLES, EVENTS, REPORTS, SINCE, TIME];

/** Grows with the tables; an older file is brought up to it, a newer one refused. */
export const VERSION = VERSIONS.length;

/** Tables whose rows matter, each with the whole number its rows are found by. */
export const TABLE_KEYS = [
  ['endpoints', 'key'],
  ['messages', 'key'],
  ['verdicts', 'message'],
  ['deliveries', 'key'],
  ['attempts', 'delivery'],
  ['hooks', 'key'],
  ['events', 'key'],
  ['batches', 'message'],
  ['reports', 'key'],
  ['time', 'key'],
] as const;

/** A state as the file holds it; 0 must stay `waiting`, the indexes are over that. */
export const STATES: readonly DeliveryState[] = ['waiting', 'delivered', 'dead', 'dropped'];

/** The number of a state in the file. */
export function stateCode(state: DeliveryState): number {
  return STATES.indexOf(state);
}

/** A connection to a queue file with what every connection needs. */
export function connect(path: string): DatabaseSync {
  const db = new DatabaseSync(path, { timeout: 10_000 });
  db.exec(
    'PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY',
  );
  return db;
}

/** Makes the tables in an empty file. Pages that became free can be given back to the disk (`incremental_vacuum`). */
export function makeTables(db: DatabaseSync): void {
  db.exec('PRAGMA auto_vacuum = INCREMENTAL');
  grow(db);
}

/** Brings the tables up to this version. The daemon and a visitor may both want to: the second finds nothing left to do. */
function grow(db: DatabaseSync): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    db.exec(`${VERSIONS.slice(versionOf(db)).join('')} PRAGMA user_version = ${VERSION}; COMMIT`);
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}

function versionOf(db: DatabaseSync): number {
  return Number(db.prepare('PRAGMA user_version').get()?.['user_version']);
}

/** Opens the queue file, makes it when it is not there, and refuses one of a newer version. */
export function openFile(path: string): DatabaseSync {
  const db = connect(path);
  try {
    const version = versionOf(db);
    if (version > VERSION) {
      throw new SpoolTooNew(
        `the queue ${path} has format ${version}, this version of Postern knows ${VERSION}; run the newer one`,
      );
    }
    if (version === 0) makeTables(db);
    else if (version < VERSION) grow(db);
    // Checkpoints are made by the writer itself: SQLite keeps quiet about a sync that failed in an automatic one.
    db.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864');
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}
