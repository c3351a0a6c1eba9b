import { randomFillSync } from 'node:crypto';
import { closeSync, openSync, rmSync, statfsSync, statSync, writeSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { errorText } from '../../base/errors.ts';
import { inTransaction, pragma, primaryCode } from '../../base/sqlite.ts';
import { type Protocol, serveThread, type ThreadReply } from '../../base/worker.ts';
import type { Statement, TablePlan } from './sql.ts';

/**
 * The thread that owns the file of the embedded store. It runs statements and knows nothing about rows. Writes waiting
 * when a transaction begins share it and its one disk sync; each is acknowledged after that. Every write is one
 * statement, and SQLite undoes a failed statement without affecting others in the transaction.
 */

/** The thread's start data. */
interface ThreadData {
  readonly file: string;
  /** Milliseconds to wait for another process that is writing. */
  readonly busyMs: number;
  readonly plans: readonly TablePlan[];
}

/** Its calls, by name, with their arguments. */
export interface StoreCalls {
  readonly read: readonly [statement: Statement];
  /** `yields`: it is not needed for deleting, and fails when the disk is full. */
  readonly write: readonly [statement: Statement, yields: boolean];
  readonly plan: readonly [plan: TablePlan];
  /** Cancels the call `lost`, whose caller no longer waits, unless it has begun. */
  readonly forget: readonly [lost: number];
}
type Call<K extends keyof StoreCalls> = readonly [n: number, name: K, args: StoreCalls[K]];

/** The protocol. `away`: temporary (locked, full); `fault`: a fault of ours; `done`: rows of id and JSON. */
export interface StoreProtocol extends Protocol {
  readonly data: ThreadData;
  readonly call: { [K in keyof StoreCalls]: Call<K> }[keyof StoreCalls];
  readonly kind: 'done' | 'duplicate' | 'away' | 'fault';
  readonly ready: ReturnType<typeof durability>;
}

type StoreReply = ThreadReply<StoreProtocol['kind']>;

// Primary result codes of SQLite (sqlite.org/rescode.html); the low byte of an extended code is its primary code.
const BUSY = 5,
  LOCKED = 6,
  NOMEM = 7,
  READONLY = 8,
  IOERR = 10,
  CORRUPT = 11,
  FULL = 13,
  CANTOPEN = 14,
  CONSTRAINT = 19,
  NOTADB = 26;
const AWAY = new Set([BUSY, LOCKED, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB]);
/** After these errors the open file is not trusted: the thread ends, and a new one recovers from the log. */
const BROKEN = new Set([NOMEM, IOERR, CORRUPT, NOTADB]);
const MAX_STATEMENTS = 500;

/**
 * Deleting needs disk space too: SQLite first writes the changed pages to its log, and a log that is full can begin
 * again only when all of it is in the file. A file of this size is kept beside the database and deleted when the disk
 * is full: the file and the log take that space at once, before other programs do. The
 * smaller one is for small disks.
 */
const RESERVE_BYTES = [16 * 1024 ** 2, 4 * 1024 ** 2];
/** Random bytes that are written at a time. */
const RANDOM_BYTES = 64 * 1024;
/** The reserve is made only if it takes at most this share of the free space. */
const RESERVE_SHARE = 1 / 8;
/** Bytes of statements in one transaction: so the log of the last ones fits into the reserve. */
const COMMIT_BYTES = 4 * 1024 ** 2;
/** Freed pages kept for new rows, and how many of the others are returned per step, which takes some milliseconds. */
const KEEP_PAGES = 256;
const STEP_PAGES = 256;
/** The log has little space on a full disk, and less if another program took the space of the reserve. */
const FULL_DISK_PAGES = [16, 2];
/** How long after a write freed pages are checked, and the pause between two steps. Milliseconds. */
const TIDY_AFTER_MS = 1000;
const TIDY_STEP_MS = 50;
/** SQLite's name for auto_vacuum = INCREMENTAL. */
const INCREMENTAL = 2;
/** The log is truncated to this size after it was larger. */
const LOG_BYTES = 64 * 1024 ** 2;

function failed(n: number, error: unknown): StoreReply {
  const code = primaryCode(error);
  return [n, code === CONSTRAINT ? 'duplicate' : AWAY.has(code) ? 'away' : 'fault', errorText(error)];
}

function freeOn(file: string): number {
  const { bavail, bsize } = statfsSync(dirname(file));
  return bavail * bsize;
}

function open(file: string, busyMs: number): { database: DatabaseSync; compacting: string | undefined } {
  const database = new DatabaseSync(file, { timeout: busyMs });
  // Before anything else: auto_vacuum can only be set while the file has no pages.
  database.exec(`PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
    PRAGMA trusted_schema = OFF; PRAGMA journal_size_limit = ${LOG_BYTES};`);
  return { database, compacting: takeOver(database, file) };
}

/**
 * Rebuilds a file of an older version, which kept freed pages, once. That takes a second per 20 to 100 MB, and twice
 * the file's size on disk. If it is not possible (no space, file in use), everything else works, and the next start
 * tries again.
 */
function takeOver(database: DatabaseSync, file: string): string | undefined {
  if (Number(pragma(database, 'auto_vacuum')) === INCREMENTAL) return undefined;
  if (freeOn(file) < 3 * statSync(file).size) return 'too little free disk space to rebuild the file';
  try {
    database.exec('PRAGMA auto_vacuum = INCREMENTAL; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);');
    return undefined;
  } catch (error) {
    if (BROKEN.has(primaryCode(error))) throw error;
    return errorText(error);
  }
}

/** In pieces, because an idle thread would keep a buffer of that size. */
function writeRandom(path: string, flag: 'w' | 'a', bytes: number): void {
  const piece = new Uint8Array(RANDOM_BYTES);
  const file = openSync(path, flag, 0o600);
  try {
    for (let left = bytes; left > 0; ) left -= writeSync(file, randomFillSync(piece), 0, Math.min(left, piece.length));
  } finally {
    closeSync(file);
  }
}

/** The disk space reserved for deleting. */
function createReserve(file: string) {
  const path = `${file}-reserve`;
  const log = `${file}-wal`;
  const size = (of = path) => statSync(of, { throwIfNoEntry: false })?.size;
  /** Bytes given up and not yet taken by the log. */
  let owed = 0;
  return {
    /** Creates the reserve if there is room. Random bytes: a compressing file system reserves nothing for zeros. */
    make(): void {
      const kept = size() ?? 0;
      const bytes = RESERVE_BYTES.find((one) => one <= (freeOn(file) + kept) * RESERVE_SHARE) ?? 0;
      if (kept >= bytes) return;
      try {
        writeRandom(path, 'w', bytes);
      } catch {
        rmSync(path, { force: true }); // another process was first; try again next time
      }
    },
    /** Deletes the reserve; returns whether there was one. */
    giveUp(): boolean {
      const bytes = size();
      rmSync(path, { force: true });
      owed += bytes ?? 0;
      return bytes !== undefined;
    },
    /** Makes the log as large as the space given up. SQLite overwrites and ignores what is behind its last entry. */
    intoLog(): void {
      const bytes = owed - (size(log) ?? 0);
      owed = 0;
      if (bytes <= 0) return;
      try {
        writeRandom(log, 'a', bytes);
      } catch {
        // It is as large as there was space for.
      }
    },
  };
}

/** The modes that SQLite actually uses: without shared memory the journal mode silently stays unchanged. */
function durability(database: DatabaseSync, compacting: string | undefined) {
  const level = Number(pragma(database, 'synchronous'));
  const synchronous = ['off', 'normal', 'full', 'extra'][level] ?? String(level);
  return {
    journal: String(pragma(database, 'journal_mode')),
    synchronous,
    /** Why freed pages are not returned to the disk, if an old file could not be converted. */
    ...(compacting !== undefined && { compacting }),
  };
}

/** The columns and indexes of a plan that its table lacks. */
function missing(database: DatabaseSync, { table, columns, indexes }: TablePlan) {
  const there = database
    .prepare(
      `SELECT "name" FROM pragma_table_xinfo(?1)
      UNION ALL SELECT "name" FROM "sqlite_schema" WHERE "type" = 'index' AND "tbl_name" = ?1`,
    )
    .all(table)
    .map(({ name }) => name);
  return [...columns, ...indexes].filter(({ name }) => !there.includes(name));
}

/**
 * Creates missing tables, columns and indexes in one transaction, so that a new file costs one disk sync. If nothing is
 * missing, writes nothing and does not wait for other processes.
 */
function apply(database: DatabaseSync, plans: readonly TablePlan[]): void {
  const complete = (plan: TablePlan) =>
    plan.columns.length + plan.indexes.length > 0 && missing(database, plan).length === 0;
  const incomplete = plans.filter((plan) => !complete(plan));
  if (incomplete.length === 0) return;
  inTransaction(database, () => {
    for (const plan of incomplete) {
      database.exec(plan.create);
      for (const { add } of missing(database, plan)) database.exec(add);
    }
  });
}

type Reserve = ReturnType<typeof createReserve>;

function createRunner(database: DatabaseSync, reserve: Pick<Reserve, 'giveUp' | 'intoLog'>) {
  const prepared = new Map<string, StatementSync>();
  const statement = (sql: string) => {
    const known = prepared.get(sql);
    if (known) return known;
    if (prepared.size >= MAX_STATEMENTS) prepared.clear();
    const made = database.prepare(sql);
    prepared.set(sql, made);
    return made;
  };
  const run = ([n, , [{ sql, params, bytes = Infinity }]]: Call<'read' | 'write'>): StoreReply => {
    try {
      const found = statement(sql);
      const rows: [string, string][] = [];
      let size = 0;
      for (const { id, row } of bytes === Infinity ? found.all(...params) : found.iterate(...params)) {
        const text = String(row);
        rows.push([String(id), text]);
        size += text.length;
        if (size >= bytes) break;
      }
      return [n, 'done', rows];
    } catch (error) {
      if (BROKEN.has(primaryCode(error)) || primaryCode(error) === FULL) throw error;
      return failed(n, error);
    }
  };
  const away = (writes: readonly Call<'write'>[], error: unknown): StoreReply[] =>
    writes.map(([n]) => [n, 'away', errorText(error)]);
  /** Frees the space of the reserve, and that of the log once it is restarted. */
  const makeRoom = () => {
    reserve.giveUp();
    database.exec('PRAGMA wal_checkpoint(RESTART)');
    reserve.intoLog();
  };
  /** Refuses writes that yield; retries the others once. */
  const onFullDisk = (writes: readonly Call<'write'>[], error: unknown): StoreReply[] => {
    makeRoom();
    const yielding = writes.filter(([, , [, yields]]) => yields);
    const others = writes.filter(([, , [, yields]]) => !yields);
    return [...away(yielding, error), ...runTogether(others, away)];
  };
  /** Runs all writes in one transaction. If it fails as a whole, none of them was written. */
  const runTogether = (writes: readonly Call<'write'>[], full = onFullDisk): StoreReply[] => {
    if (writes.length === 0) return [];
    try {
      database.exec('BEGIN IMMEDIATE');
      const replies: StoreReply[] = [];
      for (const write of writes) {
        replies.push(run(write));
        if (!database.isTransaction) throw new Error('the transaction was rolled back');
      }
      database.exec('COMMIT');
      return replies;
    } catch (error) {
      if (database.isTransaction) database.exec('ROLLBACK');
      if (BROKEN.has(primaryCode(error))) throw error;
      return (primaryCode(error) === FULL ? full : away)(writes, error);
    }
  };
  const freed = () => Number(pragma(database, 'freelist_count')) - KEEP_PAGES;
  /** Returns some freed pages to the disk; returns whether there are more. */
  const tidy = ([pages = 1, ...fewer]: readonly number[] = [STEP_PAGES, ...FULL_DISK_PAGES]): boolean => {
    try {
      if (freed() <= 0) return false;
      database.exec(`PRAGMA incremental_vacuum(${pages})`);
      // The file shrinks when the log is checkpointed; on a full disk that must not wait until the end.
      if (freed() <= 0 || pages < STEP_PAGES) database.exec('PRAGMA wal_checkpoint(PASSIVE)');
      return freed() > 0;
    } catch (error) {
      if (BROKEN.has(primaryCode(error))) throw error;
      // another process is writing; the next write checks again
      if (primaryCode(error) !== FULL || fewer.length === 0) return false;
      makeRoom();
      return tidy(fewer);
    }
  };
  return { run, runTogether, tidy };
}

/** Groups writes into transactions, in their order. */
function inPortions(writes: readonly Call<'write'>[]): Call<'write'>[][] {
  const portions: Call<'write'>[][] = [];
  let bytes = Infinity;
  for (const write of writes) {
    if (bytes > COMMIT_BYTES) {
      portions.push([]);
      bytes = 0;
    }
    portions.at(-1)?.push(write);
    const [, , [{ params }]] = write;
    for (const param of params) if (typeof param === 'string') bytes += param.length;
  }
  return portions;
}

/** SQLite creates its log and its index when a file is opened; on a full disk this uses the reserve. */
function openOnAnyDisk({ file, busyMs, plans }: ThreadData, reserve: Reserve): ReturnType<typeof open> {
  try {
    const opened = open(file, busyMs);
    apply(opened.database, plans);
    reserve.intoLog();
    return opened;
  } catch (error) {
    if (![FULL, IOERR].includes(primaryCode(error)) || !reserve.giveUp()) throw error;
    return openOnAnyDisk({ file, busyMs, plans }, reserve);
  }
}

// Collects calls as they arrive and runs them in turns: reads first, then all writes together.
serveThread<StoreProtocol>((data, line) => {
  const reserve = createReserve(data.file);
  const { database, compacting } = openOnAnyDisk(data, reserve);
  const runner = createRunner(database, reserve);
  reserve.make();
  let tidying: NodeJS.Timeout | undefined;
  const tidy = () => {
    const more = runner.tidy();
    if (!more) reserve.make();
    tidying = more ? setTimeout(tidy, TIDY_STEP_MS) : undefined;
  };
  tidying = setTimeout(tidy, TIDY_AFTER_MS);

  const plan = ([n, , [table]]: Call<'plan'>): StoreReply => {
    try {
      apply(database, [table]);
      return [n, 'done', []];
    } catch (error) {
      return failed(n, error);
    }
  };
  return {
    ready: durability(database, compacting),
    take(first) {
      const calls = [...first, ...line.arrived()];
      const forgotten = new Set(calls.flatMap((call) => (call[1] === 'forget' ? call[2] : [])));
      const replies: StoreReply[] = [];
      const writes: Call<'write'>[] = [];
      for (const call of calls) {
        if (forgotten.has(call[0])) continue;
        if (call[1] === 'plan') replies.push(plan(call));
        else if (call[1] === 'read') replies.push(runner.run(call));
        else if (call[1] === 'write') writes.push(call);
      }
      if (replies.length > 0) line.reply(replies);
      if (writes.length === 0) return;
      for (const some of inPortions(writes)) line.reply(runner.runTogether(some));
      tidying ??= setTimeout(tidy, TIDY_AFTER_MS);
    },
    end() {
      clearTimeout(tidying);
      database.close();
    },
  };
});
