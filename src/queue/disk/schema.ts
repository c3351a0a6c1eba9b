import { DatabaseSync, type SQLOutputValue } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import {
  type AttemptRecord,
  DELIVERY_KINDS,
  type DeliveryKind,
  type DeliveryState,
  KINDS,
  type Message,
  type QueuedDelivery,
  type ReturnTask,
} from '../delivery.ts';
import { SpoolTooNew } from './faults.ts';

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
 * Events on their way to webhooks. An event is pending while it names no batch; afterwards its id stays for as long as
 * the batch is kept, so that the same event is not taken twice. A batch has the number of its message, which is that of
 * its one delivery; `open` is 1 while it keeps its place, 2 while it is parked or dead and may go out one day, 0 when
 * it is over. `hooks` counts what was sent, under the name that this queue had when the counting began: SQLite's own
 * chance is good enough for a name that only has to differ from those of a handful of other queues.
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
 * What the next start has to know of the time, as JSON in one row; and checksums over what a message's row says beside
 * its body, over its verdicts, and over what stays the same of its deliveries. Rows of an older version have none.
 */
const TIME = `
CREATE TABLE time (key INTEGER PRIMARY KEY, memory TEXT NOT NULL) STRICT;
ALTER TABLE messages ADD COLUMN sum INTEGER;
ALTER TABLE verdicts ADD COLUMN sum INTEGER;
ALTER TABLE deliveries ADD COLUMN sum INTEGER;
`;

/**
 * What a delivery is, and what an endpoint got first: the codes of `KINDS`; `task` is a number of `TASKS`, 0 for
 * none. Before, that stood in URLs and in the table of batches (`fillKinds`).
 */
const KIND = `
ALTER TABLE deliveries ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
ALTER TABLE deliveries ADD COLUMN task INTEGER NOT NULL DEFAULT 0;
ALTER TABLE endpoints ADD COLUMN kind INTEGER NOT NULL DEFAULT 0;
`;

/** The id of the POST that an attempt shared with others. */
const SHARED = 'ALTER TABLE attempts ADD COLUMN batch TEXT;';

/**
 * The details of attempts (queue/detail.ts). Each delivery has eight places, which its attempts take in turn (`placeOf`):
 * so what is new goes to the end of the table, what is old is overwritten, and no index is needed.
 */
const DETAILS = `
CREATE TABLE details (key INTEGER PRIMARY KEY, n INTEGER NOT NULL, detail TEXT NOT NULL) STRICT;
`;

/** What each version added. A new file gets them in turn too, so that its tables are those of one that grew. */
const VERSIONS = [TABLES, EVENTS, REPORTS, SINCE, TIME, KIND, SHARED, DETAILS];

/** The first version that has kinds. */
const WITH_KINDS = 6;

/** Grows with the tables; an older file is brought up to it, a newer one refused. */
const VERSION = VERSIONS.length;

/** Tables whose rows matter, each with the whole number its rows are found by. */
export const TABLE_KEYS = [
  ['endpoints', 'key'],
  ['messages', 'key'],
  ['verdicts', 'message'],
  ['deliveries', 'key'],
  ['attempts', 'delivery'],
  ['details', 'key'],
  ['hooks', 'key'],
  ['events', 'key'],
  ['batches', 'message'],
  ['reports', 'key'],
  ['time', 'key'],
] as const;

/** Attempts of a delivery whose details are kept. Part of the format. */
const PLACES = 8;

/** The key of a detail, as SQL over the number of its delivery and of its attempt. */
export const placeOf = (delivery: string, n: string): string => `${delivery} * ${PLACES} + ${n} % ${PLACES}`;

/** The keys that the details of a delivery may have, as SQL. */
export const placesOf = (delivery: string): string =>
  `BETWEEN ${delivery} * ${PLACES} AND ${delivery} * ${PLACES} + ${PLACES - 1}`;

/** A state as the file holds it; 0 must stay `waiting`, the indexes are over that. */
export const STATES: readonly DeliveryState[] = ['waiting', 'delivered', 'dead', 'dropped'];

/** The number of a state in the file. */
export function stateCode(state: DeliveryState): number {
  return STATES.indexOf(state);
}

/** The number of a kind in the file. */
export function kindCode(kind: DeliveryKind): number {
  return KINDS[kind].code;
}

const KINDS_BY_CODE: ReadonlyMap<number, DeliveryKind> = new Map(DELIVERY_KINDS.map((kind) => [kindCode(kind), kind]));

/** The kind behind a number; a row with one that nobody knows is not whole (`isWholeDelivery`). */
export function kindOfCode(code: number): DeliveryKind {
  return KINDS_BY_CODE.get(code) ?? 'inbound';
}

/** A task as the file holds it; 0 is none. */
const TASKS: readonly (ReturnTask | undefined)[] = [undefined, 'read', 'forward', 'report'];

/** The number of a task in the file. */
export function taskCode(task: ReturnTask | undefined): number {
  return TASKS.indexOf(task);
}

/**
 * What a connection keeps of the file in memory. New rows go to the ends of their tables, which are a few pages; more
 * than this held bodies that nobody asks for again.
 */
const CACHE_KB = 8192;

/** A connection to a queue file with what every connection needs. */
export function connect(path: string): DatabaseSync {
  const db = new DatabaseSync(path, { timeout: 10_000 });
  db.exec(
    `PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON; PRAGMA cache_size = -${CACHE_KB}; PRAGMA temp_store = MEMORY`,
  );
  return db;
}

/** Makes the tables in an empty file. Pages that became free can be given back to the disk (`incremental_vacuum`). */
export function makeTables(db: DatabaseSync): void {
  db.exec('PRAGMA auto_vacuum = INCREMENTAL');
  grow(db);
}

/** Brings the tables up to this version, in one transaction. */
export function grow(db: DatabaseSync): void {
  db.exec('BEGIN IMMEDIATE');
  try {
    const version = versionOf(db);
    db.exec(VERSIONS.slice(version).join(''));
    if (version > 0 && version < WITH_KINDS) fillKinds(db, 'main');
    db.exec(`PRAGMA user_version = ${VERSION}; COMMIT`);
  } catch (error) {
    if (db.isTransaction) db.exec('ROLLBACK');
    throw error;
  }
}

/**
 * Says of each endpoint and delivery of an older version what it is, as that version did: by its URL, and by whether it
 * is a batch, which has no recipient. A checksum that was right is right afterwards; one that was wrong stays wrong.
 */
export function fillKinds(db: DatabaseSync, schema: 'main' | 'fresh'): void {
  db.function('crc32', { deterministic: true }, (text) => crc32(String(text)));
  db.exec(`
    UPDATE ${schema}.endpoints SET kind = CASE WHEN url GLOB 'smtp:*' THEN 2 ELSE 3 END
      WHERE url GLOB 'smtp:*' OR url IN ('return:', 'postmaster:') OR url GLOB 'report:*';
    CREATE TEMP TABLE kinds (endpoint INTEGER PRIMARY KEY, kind INTEGER NOT NULL, task INTEGER NOT NULL);
    INSERT INTO temp.kinds SELECT key, kind,
      CASE WHEN kind = 2 THEN 0 WHEN url = 'return:' THEN 1 WHEN url = 'postmaster:' THEN 2 ELSE 3 END
      FROM ${schema}.endpoints WHERE kind > 0;
    UPDATE ${schema}.deliveries SET kind = k.kind, task = k.task FROM temp.kinds k WHERE k.endpoint = deliveries.endpoint;
    UPDATE ${schema}.deliveries SET kind = 1
      WHERE kind = 0 AND (recipient = '' OR key IN (SELECT message FROM ${schema}.batches));
    UPDATE ${schema}.endpoints SET kind = 1 WHERE kind = 0 AND key IN (
      SELECT endpoint FROM ${schema}.deliveries GROUP BY endpoint HAVING min(kind) = 1);
    UPDATE ${schema}.deliveries SET sum = crc32(${SUMMED} || ' ' || kind || ' ' || task)
      WHERE kind > 0 AND sum = crc32(${SUMMED});
    DROP TABLE temp.kinds;`);
}

/** What the checksum of a delivery was made of before there were kinds, and is for inbound mail. */
const SUMMED = `id || ' ' || message || ' ' || route || ' ' || pattern || ' ' || recipient`;

/** Whether a queue file has the form of an older version. */
export function isOld(db: DatabaseSync): boolean {
  return versionOf(db) < VERSION;
}

/** Whether a queue file is of a version without kinds. */
export function lacksKinds(db: DatabaseSync): boolean {
  return versionOf(db) < WITH_KINDS;
}

function versionOf(db: DatabaseSync): number {
  return Number(db.prepare('PRAGMA user_version').get()?.['user_version']);
}

/**
 * Opens the queue file, makes it when it is not there, and refuses one of a newer version. One of an older version has
 * to `grow`.
 */
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
    // Checkpoints are made by the writer itself: SQLite keeps quiet about a sync that failed in an automatic one.
    db.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = 67108864');
    return db;
  } catch (error) {
    db.close();
    throw error;
  }
}

/** A row as node:sqlite answers it. */
export type SqlRow = Readonly<Record<string, SQLOutputValue>>;

/** A text that the tables promise to be one. */
export function text(row: SqlRow, name: string): string {
  const value = row[name];
  if (typeof value !== 'string') throw new TypeError(`the queue holds no text in ${name}`);
  return value;
}

/** A number that the tables promise to be one. */
export function number(row: SqlRow, name: string): number {
  const value = row[name];
  if (typeof value !== 'number') throw new TypeError(`the queue holds no number in ${name}`);
  return value;
}

/** A number that may be missing. */
export function numberOrNull(row: SqlRow, name: string): number | null {
  return row[name] === null ? null : number(row, name);
}

/** A text that may be missing. */
export function textOrNull(row: SqlRow, name: string): string | null {
  return row[name] === null ? null : text(row, name);
}

/** What `toDelivery` reads: a delivery `d` with its endpoint and its last attempt. */
export const DELIVERY = `
SELECT d.key, d.id, d.kind, d.task, d.message, d.sum, m.id AS message_id, m.size, e.account, e.url, d.route, d.pattern, d.recipient, d.state, d.created_at, d.due_at,
  d.ended_at, d.budget_from, d.attempts, d.parked, d.note, a.status, a.error, b.events, h.id AS hook
FROM deliveries d
JOIN endpoints e ON e.key = d.endpoint
LEFT JOIN messages m ON m.key = d.message
LEFT JOIN attempts a ON a.delivery = d.key AND a.n = d.posts
LEFT JOIN batches b ON b.message = d.message
LEFT JOIN hooks h ON h.key = b.hook`;

/** A row of `DELIVERY` as the rest of the house sees it. */
export function toDelivery(row: SqlRow): QueuedDelivery {
  const state = STATES[number(row, 'state')] ?? 'dead';
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
    ...(row['task'] === 0 ? {} : { task: TASKS[number(row, 'task')] }),
  };
}

/**
 * Whether a row of `DELIVERY` says what was written; one of an older version has no checksum. A newer version may have
 * left a kind that we have no road for: over another one it must not go.
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

/** A row of `attempts` with its detail. */
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

/** A row of `messages` with its verdicts; the body aside. */
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

/** Verdicts that were damaged on the disk are taken again. */
function verdictsOf(row: SqlRow): string | null {
  const { verdicts, verdicts_sum: sum } = row;
  return typeof verdicts === 'string' && (sum === null || sum === crc32(verdicts)) ? verdicts : null;
}

/** Times are whole milliseconds; one beyond what a double counts exactly ("never") becomes the largest that it does. */
export function whole(time: number): number {
  return Math.min(Math.max(Math.round(time), 0), Number.MAX_SAFE_INTEGER);
}

/** What the row of a message says beside its body, as it is stored; of the body, what it is checked by. */
interface SummedRow {
  readonly id: string;
  readonly receivedAt: number;
  readonly deliveries: number;
  readonly envelope: string;
  readonly trace: string;
  readonly size: number;
  readonly crc: number | null;
  readonly blob: string | null;
  readonly sha256: string | null;
}

/** The checksum of a message's row: SQLite does not notice a changed bit in a value. */
export function sumOf({ id, receivedAt, deliveries, envelope, trace, size, crc, blob, sha256 }: SummedRow): number {
  return crc32(`${id} ${receivedAt} ${deliveries} ${size} ${crc} ${blob} ${sha256} ${trace}\n${envelope}`);
}

/** What the row of a delivery says for as long as it is there; where it goes to and what became of it change. */
interface SummedDelivery {
  readonly id: string;
  /** Numbers of its kind and task. */
  readonly kind: number;
  readonly task: number;
  /** The number of its message. */
  readonly message: number;
  readonly route: string;
  readonly pattern: string;
  readonly recipient: string;
}

/** The checksum of a delivery's row; that of inbound mail is as it was before there were kinds. */
export function sumOfDelivery({ id, kind, task, message, route, pattern, recipient }: SummedDelivery): number {
  const rest = kind === 0 && task === 0 ? '' : ` ${kind} ${task}`;
  return crc32(`${id} ${message} ${route} ${pattern} ${recipient}${rest}`);
}
