import { DatabaseSync } from 'node:sqlite';
import { SpoolTooNew } from '../faults.ts';
import type { DeliveryState } from '../types.ts';

/** Raised when the tables change; an older file is brought up to it, a newer one refused. */
export const VERSION = 1;

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

/** Tables whose rows matter, each with the whole number its rows are found by. */
export const TABLE_KEYS = [
  ['endpoints', 'key'], ['messages', 'key'], ['verdicts', 'message'], ['deliveries', 'key'], ['attempts', 'delivery'],
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
  db.exec('PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY');
  return db;
}

/** Makes the tables in an empty file. Pages that became free can be given back to the disk (`incremental_vacuum`). */
export function makeTables(db: DatabaseSync): void {
  db.exec('PRAGMA auto_vacuum = INCREMENTAL');
  db.exec(`BEGIN IMMEDIATE; ${TABLES} PRAGMA user_version = ${VERSION}; COMMIT`);
}

/** Opens the queue file, makes it when it is not there, and refuses one of a newer version. */
export function openFile(path: string): DatabaseSync {
  const db = connect(path);
  try {
    const version = Number(db.prepare('PRAGMA user_version').get()?.['user_version']);
    if (version > VERSION) {
      throw new SpoolTooNew(`the queue ${path} has format ${version}, this version of Postern knows ${VERSION}; run the newer one`);
    }
    if (version === 0) makeTables(db);
    // Checkpoints are made by the writer itself: SQLite keeps quiet about a sync that failed in an automatic one.
    db.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864');
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}
