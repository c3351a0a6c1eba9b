import { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { makePrivate } from '../../base/private-files.ts';
import { inTransaction, pragma, type SqlRow } from '../../base/sqlite.ts';
import {
  type AttemptRecord,
  DELIVERY_KINDS,
  type DeliveryKind,
  KINDS,
  type Message,
  type QueuedDelivery,
  RETURN_TASKS,
  type ReturnTask,
} from '../delivery.ts';
import { DELIVERY_STATES, type DeliveryState, OPEN_STATES } from '../states.ts';
import { SpoolTooNew } from './faults.ts';
import { fillKinds } from './kinds.ts';
import { sumOfDelivery } from './sums.ts';

/**
 * Deliveries are numbered by one counter; a message has the key of its first delivery, and `deliveries` is how many
 * keys belong to it. So tables grow at the end only, and the deliveries of a message are a key range that needs no
 * index.
 *
 * A row keeps its length if it is delivered at the first attempt (`ended_at` holds a time from the beginning, small
 * numbers take no bytes, the body and the verdicts are elsewhere): SQLite then overwrites it in place instead of
 * splitting a full page. STRICT keeps invalid data of a damaged page out of a salvaged file.
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
 * Events for webhooks. An event is pending while it has no batch; afterwards its id is kept as long as the batch, so
 * that the same event is not accepted twice. A batch has the key of its message, which is that of its one delivery;
 * `open` is 1 while it is retried, 2 while it is parked or dead and may be sent later, 0 when it is finished.
 * `hooks` counts sent events, under the name that this queue got when counting began: SQLite's random() is good
 * enough for a name that only has to differ from those of a few other queues.
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

/** Results of outbound attempts until they are in the store. The key gives their order. */
const REPORTS = `
CREATE TABLE reports (key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, body TEXT NOT NULL) STRICT;
`;

/** Index of the start times of waiting deliveries, for monitoring: costs half a microsecond per delivery. */
const SINCE = 'CREATE INDEX IF NOT EXISTS deliveries_since ON deliveries (budget_from) WHERE state = 0;';

/**
 * The saved time for the next start, as JSON in one row; and checksums of a message's row without its body, of its
 * verdicts, and of the constant columns of its deliveries. Rows of an older version have none.
 */
const TIME = `
CREATE TABLE time (key INTEGER PRIMARY KEY, memory TEXT NOT NULL) STRICT;
ALTER TABLE messages ADD COLUMN sum INTEGER;
ALTER TABLE verdicts ADD COLUMN sum INTEGER;
ALTER TABLE deliveries ADD COLUMN sum INTEGER;
`;

/**
 * The kind of a delivery, and of an endpoint's first delivery: the codes of `KINDS`; `task` is an index of `TASKS`, 0
 * for none. Before, URLs and the table of batches implied it (`fillKinds`).
 */
const KIND = `
ALTER TABLE deliveries ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN task INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoints ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
`;

/** The id of the POST that an attempt shared with others. */
const SHARED = 'ALTER TABLE attempts ADD COLUMN batch TEXT;';

/**
 * The details of attempts (queue/detail.ts). Each delivery has eight keys, which its attempts take in turn
 * (`detailKey`): new details go to the end of the table, old ones are overwritten, and no index is needed.
 */
const DETAILS = `
CREATE TABLE details (key INTEGER PRIMARY KEY, n INTEGER NOT NULL, detail TEXT NOT NULL) STRICT;
`;

/** The findings of scanners about messages, as JSON. */
const SCANS = `
CREATE TABLE scans (message INTEGER PRIMARY KEY, scan TEXT NOT NULL, sum INTEGER NOT NULL) STRICT;
`;

/**
 * The sequence of a delivery that goes out in order (disk/turns.ts), and since when the first of a sequence has failed.
 * The index contains only deliveries that wait in a sequence, so it is usually empty.
 */
const TURNS = `
ALTER TABLE deliveries ADD COLUMN sequence TEXT;
ALTER TABLE deliveries ADD COLUMN held_since INTEGER;
CREATE INDEX deliveries_sequence ON deliveries (sequence, key) WHERE state = 0 AND sequence IS NOT NULL;
`;

/**
 * Messages with a copy in the shared store (disk/copied.ts), with the key of the message; `id` is that of the copy. The
 * triggers mark copies as outdated on every change. Without copies they query an empty table.
 */
const COPIED = `
CREATE TABLE copied (
  key INTEGER PRIMARY KEY, id TEXT NOT NULL, parts INTEGER NOT NULL, epoch INTEGER NOT NULL, state INTEGER NOT NULL,
  changes INTEGER NOT NULL
) STRICT;
CREATE INDEX copied_due ON copied (key) WHERE state > 0;
CREATE INDEX copied_epoch ON copied (epoch);
CREATE TRIGGER copied_changed AFTER UPDATE OF state, endpoint ON deliveries
WHEN (old.state <> new.state OR old.endpoint <> new.endpoint) AND EXISTS (SELECT 1 FROM copied) BEGIN
  UPDATE copied SET state = max(state, 1), changes = changes + 1 WHERE key = new.message;
END;
CREATE TRIGGER copied_deleted AFTER DELETE ON deliveries WHEN EXISTS (SELECT 1 FROM copied) BEGIN
  UPDATE copied SET state = max(state, 1), changes = changes + 1 WHERE key = old.message;
END;
`;

/** The changes of each version. A new file gets them in order too, so that its tables equal those of an old one. */
const VERSIONS = [TABLES, EVENTS, REPORTS, SINCE, TIME, KIND, SHARED, DETAILS, SCANS, TURNS, COPIED];

/** The first version that has kinds. */
const WITH_KINDS = 6;

/** Increases with each change of the tables; an older file is upgraded to it, a newer one refused. */
const VERSION = VERSIONS.length;

/** Tables whose rows are salvaged, each with the integer column that identifies its rows. */
export const TABLE_KEYS = [
  ['endpoints', 'key'],
  ['messages', 'key'],
  ['verdicts', 'message'],
  ['scans', 'message'],
  ['deliveries', 'key'],
  ['attempts', 'delivery'],
  ['details', 'key'],
  ['hooks', 'key'],
  ['events', 'key'],
  ['batches', 'message'],
  ['reports', 'key'],
  ['copied', 'key'],
  ['time', 'key'],
] as const;

/** The due time of a delivery behind another of its sequence: after every date, so that nothing finds it due. */
export const BEHIND = 9e15;

/** The history of a delivery is limited to its last attempts. */
export const KEPT_ATTEMPTS = 50;

/** Attempts of a delivery whose details are kept. Part of the format. */
const KEPT_DETAILS = 8;

/** The key of a detail, as SQL over the number of its delivery and of its attempt. */
export const detailKey = (delivery: string, n: string): string =>
  `${delivery} * ${KEPT_DETAILS} + ${n} % ${KEPT_DETAILS}`;

/** The keys that the details of a delivery may have, as SQL. */
export const detailKeys = (delivery: string): string =>
  `BETWEEN ${delivery} * ${KEPT_DETAILS} AND ${delivery} * ${KEPT_DETAILS} + ${KEPT_DETAILS - 1}`;

export function stateCode(state: DeliveryState): number {
  return DELIVERY_STATES.indexOf(state);
}

export const OPEN_CODES: readonly number[] = OPEN_STATES.map(stateCode);

export function kindCode(kind: DeliveryKind): number {
  return KINDS[kind].code;
}

const KINDS_BY_CODE: ReadonlyMap<number, DeliveryKind> = new Map(DELIVERY_KINDS.map((kind) => [kindCode(kind), kind]));

/** Returns the kind of a code; a row with an unknown one is not intact (`isWholeDelivery`). */
export function kindOfCode(code: number): DeliveryKind {
  return KINDS_BY_CODE.get(code) ?? 'inbound';
}

/** The tasks by their code in the file; 0 is none. */
const TASKS: readonly (ReturnTask | undefined)[] = [undefined, ...RETURN_TASKS];

export function taskCode(task: ReturnTask | undefined): number {
  return TASKS.indexOf(task);
}

/** The page cache of a connection. New rows go to the ends of tables; more only held bodies that are not read again. */
const CACHE_KB = 8192;

/** Opens a connection to a queue file with the settings that every connection needs. */
export function connect(path: string): DatabaseSync {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: 10_000 });
  try {
    db.exec(`PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON; PRAGMA cache_size = -${CACHE_KB};
      PRAGMA temp_store = MEMORY`);
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** Creates the tables in an empty file. Free pages can be returned to the disk (`incremental_vacuum`). */
export function makeTables(db: DatabaseSync): void {
  db.exec('PRAGMA auto_vacuum = INCREMENTAL');
  migrate(db);
}

/** Upgrades the tables to this version, in one transaction. */
export function migrate(db: DatabaseSync): void {
  inTransaction(db, () => {
    const version = versionOf(db);
    db.exec(VERSIONS.slice(version).join(''));
    if (version > 0 && version < WITH_KINDS) fillKinds(db, 'main');
    db.exec(`PRAGMA user_version = ${VERSION}`);
  });
}

export function needsMigration(db: DatabaseSync): boolean {
  return versionOf(db) < VERSION;
}

export function lacksKinds(db: DatabaseSync): boolean {
  return versionOf(db) < WITH_KINDS;
}

const versionOf = (db: DatabaseSync): number => Number(pragma(db, 'user_version'));

/** Opens the queue file, or creates it. Refuses one of a newer version; an older one must be upgraded by `migrate`. */
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
    // The writer makes the checkpoints itself: SQLite does not report a failed sync of an automatic one.
    db.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864');
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

export function text(row: SqlRow, name: string): string {
  const value = row[name];
  if (typeof value !== 'string') throw new TypeError(`the column ${name} of the queue is not text`);
  return value;
}

export function number(row: SqlRow, name: string): number {
  const value = row[name];
  if (typeof value !== 'number') throw new TypeError(`the column ${name} of the queue is not a number`);
  return value;
}

export function numberOrNull(row: SqlRow, name: string): number | null {
  return row[name] === null ? null : number(row, name);
}

export function textOrNull(row: SqlRow, name: string): string | null {
  return row[name] === null ? null : text(row, name);
}

/** The columns for `toDelivery`: a delivery `d` with its endpoint and its last attempt. */
export const DELIVERY_ROW = `
SELECT d.key, d.id, d.kind, d.task, d.message, d.sum, m.id AS message_id, m.size, e.account, e.url, d.route, d.pattern,
  d.recipient, d.state, d.created_at, d.due_at, d.ended_at, d.budget_from, d.attempts, d.posts, d.parked, d.note,
  d.sequence, d.held_since, a.status, a.error, b.events, h.id AS hook
FROM deliveries d
JOIN endpoints e ON e.key = d.endpoint
LEFT JOIN messages m ON m.key = d.message
LEFT JOIN attempts a ON a.delivery = d.key AND a.n = d.posts
LEFT JOIN batches b ON b.message = d.message
LEFT JOIN hooks h ON h.key = b.hook`;

/** Converts a row of `DELIVERY_ROW`. */
export function toDelivery(row: SqlRow): QueuedDelivery {
  const state = DELIVERY_STATES[number(row, 'state')] ?? 'dead';
  const { sequence, held_since: heldSince } = row;
  return {
    id: text(row, 'id'),
    kind: kindOfCode(number(row, 'kind')),
    messageId: textOrNull(row, 'message_id') ?? '',
    account: text(row, 'account'),
    url: text(row, 'url'),
    routeId: text(row, 'route'),
    pattern: text(row, 'pattern'),
    recipient: text(row, 'recipient'),
    size: numberOrNull(row, 'size') ?? undefined,
    state,
    createdAt: number(row, 'created_at'),
    dueAt: number(row, 'due_at'),
    attempts: number(row, 'attempts'),
    endedAt: state === 'waiting' ? null : number(row, 'ended_at'),
    budgetFrom: number(row, 'budget_from'),
    parked: number(row, 'parked') === 1,
    lastStatus: numberOrNull(row, 'status'),
    lastError: textOrNull(row, 'note') ?? textOrNull(row, 'error'),
    ...(row['events'] === null
      ? {}
      : { batch: { webhook: textOrNull(row, 'hook') ?? '', events: number(row, 'events') } }),
    ...(state === 'waiting' && row['attempts'] === 0 && number(row, 'posts') > 0 && { replayed: true }),
    ...(row['task'] === 0 ? {} : { task: TASKS[number(row, 'task')] }),
    ...(typeof sequence === 'string' && { sequence }),
    ...(typeof heldSince === 'number' && { heldSince }),
    ...(state === 'waiting' && row['due_at'] === BEHIND && { behind: true }),
  };
}

/**
 * Whether a row of `DELIVERY_ROW` is intact; one of an older version has no checksum. A newer version may
 * have written a kind without a road here: the delivery must not take another road.
 */
export function isWholeDelivery(row: SqlRow): boolean {
  const { id, kind, task, message, route, pattern, recipient, sum } = row;
  if (
    typeof id !== 'string' ||
    typeof kind !== 'number' ||
    !KINDS_BY_CODE.has(kind) ||
    typeof task !== 'number' ||
    typeof message !== 'number' ||
    typeof route !== 'string' ||
    typeof pattern !== 'string' ||
    typeof recipient !== 'string'
  )
    return false;
  return sum === null || sum === sumOfDelivery({ id, kind, task, message, route, pattern, recipient });
}

/** Converts a row of `attempts` with its detail. */
export function toAttempt(row: SqlRow): AttemptRecord {
  return {
    at: number(row, 'at'),
    durationMs: number(row, 'duration'),
    status: numberOrNull(row, 'status'),
    error: textOrNull(row, 'error'),
    answer: text(row, 'answer'),
    ...(row['batch'] === null ? {} : { batch: text(row, 'batch') }),
    ...(row['detail'] === null ? {} : { detail: text(row, 'detail') }),
  };
}

/** Converts a row of `messages` with its verdicts, without the body. */
export function toMessage(row: SqlRow): Message {
  const verdicts = verdictsOf(row);
  return {
    id: text(row, 'id'),
    receivedAt: number(row, 'received_at'),
    envelope: JSON.parse(text(row, 'envelope')),
    trace: text(row, 'trace'),
    verdicts: verdicts === null ? null : JSON.parse(verdicts),
  };
}

/** Returns null for verdicts damaged on disk: they are computed again. */
function verdictsOf(row: SqlRow): string | null {
  const { verdicts, verdicts_sum: sum } = row;
  return typeof verdicts === 'string' && (sum === null || sum === crc32(verdicts)) ? verdicts : null;
}

/** Rounds a time to whole milliseconds, from 0 up to the largest safe integer (for "never"). */
export function whole(time: number): number {
  return Math.min(Math.max(Math.round(time), 0), Number.MAX_SAFE_INTEGER);
}
