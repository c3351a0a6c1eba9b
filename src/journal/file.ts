import { existsSync, renameSync, rmSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { errorText } from '../base/errors.ts';
import { makePrivate } from '../base/private-files.ts';
import { pragma, primaryCode } from '../base/sqlite.ts';

// The file of the journal. An unusable file is replaced by a new one: history may be lost, mail never.

/** Changes whenever a table does; a file of another version is replaced. */
const VERSION = 1;

/**
 * A delivery is one row, written once if it is delivered within the moment in which rows are gathered. `words`
 * indexes every three characters of the searchable texts; rows after `meta.indexed` are not in it yet. `meta.filled` is
 * 1 once the file has everything that was in the queue when the file was created.
 */
const TABLES = `
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID, STRICT;
INSERT INTO meta (name, value) VALUES ('indexed', 0), ('filled', 0);
CREATE TABLE mail (
  n INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at INTEGER NOT NULL, session TEXT,
  kind TEXT NOT NULL, account TEXT NOT NULL, sender TEXT, recipient TEXT NOT NULL,
  header_from TEXT, subject TEXT, header_id TEXT,
  route TEXT NOT NULL, pattern TEXT NOT NULL, url TEXT NOT NULL, size INTEGER NOT NULL,
  client TEXT, helo TEXT, tls TEXT, spf TEXT, dkim TEXT, dmarc TEXT,
  state TEXT NOT NULL, attempts INTEGER NOT NULL, last_status INTEGER, last_error TEXT, ended_at INTEGER,
  story TEXT NOT NULL
) STRICT;
CREATE INDEX mail_at ON mail (at);
CREATE INDEX mail_account ON mail (account);
CREATE INDEX mail_state ON mail (state) WHERE state <> 'delivered';
CREATE VIRTUAL TABLE words USING fts5 (
  sender, header_from, recipient, subject, header_id,
  tokenize = 'trigram', content = '', contentless_delete = 1, detail = none
);
CREATE TABLE refusals (
  n INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, session TEXT, listener TEXT NOT NULL, stage TEXT NOT NULL,
  reply TEXT NOT NULL, reason TEXT NOT NULL, client TEXT NOT NULL, helo TEXT, tls TEXT, sender TEXT, recipient TEXT,
  account TEXT, times INTEGER NOT NULL
) STRICT;
CREATE INDEX refusals_at ON refusals (at);
CREATE INDEX refusals_account ON refusals (account) WHERE account IS NOT NULL;
CREATE INDEX refusals_session ON refusals (session) WHERE session IS NOT NULL;
CREATE TABLE sessions (
  id TEXT PRIMARY KEY, at INTEGER NOT NULL, listener TEXT NOT NULL, client TEXT NOT NULL, helo TEXT, tls TEXT,
  messages INTEGER NOT NULL, recipients INTEGER NOT NULL, refusals INTEGER NOT NULL, reason TEXT NOT NULL,
  duration INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX sessions_at ON sessions (at);
CREATE TABLE actions (
  n INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, by TEXT NOT NULL, account TEXT NOT NULL,
  what TEXT NOT NULL, count INTEGER NOT NULL, detail TEXT NOT NULL
) STRICT;
CREATE INDEX actions_at ON actions (at);
CREATE INDEX actions_account ON actions (account);
`;

/** Later additions, which do not change the version: a file without them gets them. */
function addLater(db: DatabaseSync): void {
  // The figures of each minute, as JSON (series.ts).
  db.exec('CREATE TABLE IF NOT EXISTS minutes (at INTEGER PRIMARY KEY, figures TEXT NOT NULL) STRICT');
  // The transaction of a message or refusal within its session.
  addColumn(db, 'mail', 'transaction_n', 'INTEGER');
  addColumn(db, 'refusals', 'transaction_n', 'INTEGER');
  // The conversation of a mail; its index has the rows that were written since.
  addColumn(db, 'mail', 'thread', 'TEXT');
  db.exec('CREATE INDEX IF NOT EXISTS mail_thread ON mail (thread) WHERE thread IS NOT NULL');
}

function addColumn(db: DatabaseSync, table: string, column: string, type: string): void {
  if (!db.prepare('SELECT 1 FROM pragma_table_info(?) WHERE name = ?').get(table, column))
    db.exec(`ALTER TABLE ${table} ADD COLUMN ${column} ${type}`);
}

const CACHE_KB = 4096;
/** How long to wait for a lock of another process. */
const BUSY_MS = 2000;

/** Opens the journal for writing, or creates it. An unusable file is kept as `journal.db.damaged`; `replaced`: why. */
export function openJournalFile(path: string): { readonly db: DatabaseSync; readonly replaced: string | undefined } {
  const isFolder = statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
  try {
    if (!isFolder) return { db: open(path), replaced: undefined };
  } catch (error) {
    if (!isUnusable(error)) throw error;
    return { db: begin(path), replaced: errorText(error) };
  }
  return { db: begin(path), replaced: 'a folder was in its place' };
}

/** Sets the current file aside, and begins a new one. */
export function begin(path: string): DatabaseSync {
  if (existsSync(path)) renameSync(path, path + ASIDE);
  for (const suffix of ['-wal', '-shm']) rmSync(path + suffix, { force: true });
  return open(path);
}

/** Deletes the file that was set aside before this time, because its content has expired. */
export function forgetAside(path: string, before: number): void {
  const aside = statSync(path + ASIDE, { throwIfNoEntry: false });
  if (aside && aside.ctimeMs < before) rmSync(path + ASIDE, { recursive: true, force: true });
}

const ASIDE = '.damaged';

/** Opens the journal for reading while another process writes it. Throws if it is missing or of another version. */
export function openForReading(path: string): DatabaseSync {
  const db = new DatabaseSync(path, { readOnly: true, timeout: 5000 });
  try {
    db.exec(`PRAGMA cache_size = -${CACHE_KB}`);
    if (pragma(db, 'user_version') !== VERSION) throw new WrongVersion();
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

class WrongVersion extends Error {
  override readonly name = 'WrongVersion';
  override readonly message = 'the journal is of another version';
}

/** Whether the file itself is unusable: damaged, not a database, or of another version. */
export function isUnusable(error: unknown): boolean {
  return error instanceof WrongVersion || [SQLITE_CORRUPT, SQLITE_NOTADB].includes(primaryCode(error));
}

const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;

function open(path: string): DatabaseSync {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: BUSY_MS });
  try {
    // The first pragma has no effect on a file that is not empty.
    db.exec(`PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
      PRAGMA cache_size = -${CACHE_KB}; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 8388608`);
    const version = pragma(db, 'user_version');
    if (version === 0) db.exec(`BEGIN; ${TABLES} PRAGMA user_version = ${VERSION}; COMMIT`);
    else if (version !== VERSION) throw new WrongVersion();
    addLater(db);
    db.prepare('SELECT count(*) FROM (SELECT n FROM mail ORDER BY n DESC LIMIT 1)').get();
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}
