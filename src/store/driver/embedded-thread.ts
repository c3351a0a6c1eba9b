import { randomFillSync } from 'node:crypto';
import { rmSync, statfsSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import type { Statement, TablePlan } from './sql.ts';

/**
 * The thread that owns the file of the embedded store. It runs statements, and knows nothing of rows.
 * Writes that wait when a transaction begins share it and its one sync of the disk; each is acknowledged after that.
 * Every write is one statement, and SQLite undoes a statement that fails without touching its neighbours in the transaction.
 */

/** What the thread is started with. */
export interface ThreadData {
  readonly file: string;
  /** Milliseconds to wait for another process that writes. */
  readonly busyMs: number;
  readonly plans: readonly TablePlan[];
}

/** What it is asked. `forget`: nobody waits for job `n` any more; it is not begun if it has not been. */
export type Job =
  | ({ readonly kind: 'read'; readonly n: number } & Statement)
  /** `grows`: it is not needed for deleting, and gives way where the disk is full. */
  | ({ readonly kind: 'write'; readonly n: number; readonly grows: boolean } & Statement)
  | { readonly kind: 'plan'; readonly n: number; readonly plan: TablePlan }
  | { readonly kind: 'forget'; readonly n: number }
  | { readonly kind: 'close'; readonly n: number };

/** How the file is written, as SQLite says. */
export interface Durability {
  readonly journal: string;
  readonly synchronous: string;
  /** Only where freed pages do not go back to the disk, because a file of an older version could not be taken over: why. */
  readonly compacting?: string;
}

/** Rows of id and JSON, or what went wrong: `away` is temporary (locked, full), `fault` is a mistake of ours. */
export type Reply =
  | { readonly n: number; readonly opened: Durability }
  | { readonly n: number; readonly rows: readonly (readonly [string, string])[] }
  | { readonly n: number; readonly failure: 'duplicate' | 'away' | 'fault'; readonly message: string };

type Write = Extract<Job, { kind: 'write' }>;
type Ended = Extract<Reply, { failure: string }>;

// Primary result codes of SQLite (sqlite.org/rescode.html); an extended code carries its primary in the low byte.
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
/** After these the open file is not trusted again: the thread ends, and a new one recovers from the log. */
const BROKEN = new Set([NOMEM, IOERR, CORRUPT, NOTADB]);
const MOST_STATEMENTS = 500;

/**
 * Deleting needs disk too: SQLite writes the changed pages to its log first. A file of this size is kept beside the database and
 * given up when the disk is full; what it leaves is the log's, which is used again and again from then on.
 */
const RESERVE_BYTES = 4 * 1024 ** 2;
/** The reserve is made only where it takes no more than this share of what is free. */
const RESERVE_SHARE = 1 / 8;
/** Freed pages that are kept for the next rows, and how many of the others are given back in one step, which takes some milliseconds. */
const KEEP_PAGES = 256;
const STEP_PAGES = 256;
/** On a full disk the log has room for few. */
const FULL_DISK_PAGES = 16;
/** How long after a write freed pages are looked at, and how long other work has between two steps. Milliseconds. */
const TIDY_AFTER_MS = 1000;
const TIDY_STEP_MS = 50;
/** SQLite's name for auto_vacuum = INCREMENTAL. */
const INCREMENTAL = 2;
/** The log is cut back to this size when it has been larger. */
const LOG_BYTES = 64 * 1024 ** 2;

function codeOf(error: unknown): number {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode & 0xff : 0;
}

function failed(n: number, error: unknown): Ended {
  const code = codeOf(error);
  const message = error instanceof Error ? error.message : String(error);
  return { n, failure: code === CONSTRAINT ? 'duplicate' : AWAY.has(code) ? 'away' : 'fault', message };
}

function pragma(database: DatabaseSync, name: string): unknown {
  return Object.values(database.prepare(`PRAGMA ${name}`).get() ?? {})[0];
}

function freeOn(file: string): number {
  const { bavail, bsize } = statfsSync(dirname(file));
  return bavail * bsize;
}

function open(file: string, busyMs: number): { database: DatabaseSync; compacting: string | undefined } {
  const database = new DatabaseSync(file, { timeout: busyMs });
  // Of a new file before anything else: it holds for files without a page only.
  database.exec(`PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;
    PRAGMA journal_size_limit = ${LOG_BYTES};`);
  return { database, compacting: takeOver(database, file) };
}

/**
 * A file of a version that kept freed pages is written anew, once. That takes a second for each 20 to 100 MB, and the file's size on
 * the disk twice over. Where it cannot be (no room, another process has the file) everything else works, and the next start tries again.
 */
function takeOver(database: DatabaseSync, file: string): string | undefined {
  if (Number(pragma(database, 'auto_vacuum')) === INCREMENTAL) return undefined;
  if (freeOn(file) < 3 * statSync(file).size) return 'too little free disk to write the file anew';
  try {
    database.exec('PRAGMA auto_vacuum = INCREMENTAL; VACUUM; PRAGMA wal_checkpoint(TRUNCATE);');
    return undefined;
  } catch (error) {
    if (BROKEN.has(codeOf(error))) throw error;
    return error instanceof Error ? error.message : String(error);
  }
}

/** The room that is kept for deleting. */
function createReserve(file: string) {
  const path = `${file}-reserve`;
  const size = () => statSync(path, { throwIfNoEntry: false })?.size;
  return {
    /** Makes it where it is missing and the disk has room. Random bytes, because a file system that compresses keeps nothing for zeros. */
    make(): void {
      if (size() === RESERVE_BYTES || freeOn(file) * RESERVE_SHARE < RESERVE_BYTES) return;
      try {
        writeFileSync(path, randomFillSync(new Uint8Array(RESERVE_BYTES)), { mode: 0o600 });
      } catch {
        rmSync(path, { force: true }); // somebody else was faster; the next time will do
      }
    },
    /** Answers whether there was one. */
    giveUp(): boolean {
      const there = size() !== undefined;
      rmSync(path, { force: true });
      return there;
    },
  };
}

/** What SQLite really does; a file system without shared memory leaves the journal mode as it was, without an error. */
function durability(database: DatabaseSync, compacting: string | undefined): Durability {
  const level = Number(pragma(database, 'synchronous'));
  const synchronous = ['off', 'normal', 'full', 'extra'][level] ?? String(level);
  return {
    journal: String(pragma(database, 'journal_mode')),
    synchronous,
    ...(compacting === undefined ? {} : { compacting }),
  };
}

function apply(database: DatabaseSync, plan: TablePlan): void {
  database.exec('BEGIN IMMEDIATE');
  try {
    database.exec(plan.create);
    const there = database
      .prepare(`SELECT "name" FROM pragma_table_xinfo(?)`)
      .all(plan.table)
      .map(({ name }) => name);
    for (const { name, add } of plan.columns) if (!there.includes(name)) database.exec(add);
    for (const index of plan.indexes) database.exec(index);
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

function createRunner(database: DatabaseSync, reserve: { giveUp(): boolean }) {
  const prepared = new Map<string, StatementSync>();
  const statement = (sql: string) => {
    const known = prepared.get(sql);
    if (known) return known;
    if (prepared.size >= MOST_STATEMENTS) prepared.clear();
    const made = database.prepare(sql);
    prepared.set(sql, made);
    return made;
  };
  const run = (job: Extract<Job, Statement>): Reply => {
    try {
      const rows = statement(job.sql).all(...job.params);
      return { n: job.n, rows: rows.map(({ id, row }) => [String(id), String(row)]) };
    } catch (error) {
      if (BROKEN.has(codeOf(error)) || codeOf(error) === FULL) throw error;
      return failed(job.n, error);
    }
  };
  const away = (writes: readonly Write[], error: unknown): Reply[] =>
    writes.map(({ n }) => ({ n, failure: 'away', message: failed(n, error).message }));
  /** On a full disk there is the room of the reserve, and that of the log, once it is begun anew. */
  const makeRoom = () => {
    reserve.giveUp();
    database.exec('PRAGMA wal_checkpoint(RESTART)');
  };
  /** What need not be is refused; the rest is tried once more. */
  const onFullDisk = (writes: readonly Write[], error: unknown): Reply[] => {
    makeRoom();
    return [
      ...away(
        writes.filter(({ grows }) => grows),
        error,
      ),
      ...runTogether(
        writes.filter(({ grows }) => !grows),
        away,
      ),
    ];
  };
  /** All writes in one transaction. When it breaks as a whole, none of them was written. */
  const runTogether = (writes: readonly Write[], full = onFullDisk): Reply[] => {
    if (writes.length === 0) return [];
    try {
      database.exec('BEGIN IMMEDIATE');
      const replies: Reply[] = [];
      for (const write of writes) {
        replies.push(run(write));
        if (!database.isTransaction) throw new Error('the transaction was given up');
      }
      database.exec('COMMIT');
      return replies;
    } catch (error) {
      if (database.isTransaction) database.exec('ROLLBACK');
      if (BROKEN.has(codeOf(error))) throw error;
      return (codeOf(error) === FULL ? full : away)(writes, error);
    }
  };
  const freed = () => Number(pragma(database, 'freelist_count')) - KEEP_PAGES;
  /** Gives some freed pages back to the disk; answers whether there are more. */
  const tidy = (pages = STEP_PAGES): boolean => {
    try {
      if (freed() <= 0) return false;
      database.exec(`PRAGMA incremental_vacuum(${pages})`);
      // The file becomes shorter when the log is moved into it; on a full disk that must not wait for the end.
      if (freed() <= 0 || pages < STEP_PAGES) database.exec('PRAGMA wal_checkpoint(PASSIVE)');
      return freed() > 0;
    } catch (error) {
      if (BROKEN.has(codeOf(error))) throw error;
      if (codeOf(error) !== FULL || pages < STEP_PAGES) return false; // another process writes; the next write looks again
      makeRoom();
      return tidy(FULL_DISK_PAGES);
    }
  };
  return { run, runTogether, tidy };
}

/** SQLite makes its log and the index of it when a file is opened: on a full disk in the room that was kept. */
function openOnAnyDisk({ file, busyMs, plans }: ThreadData, reserve: { giveUp(): boolean }): ReturnType<typeof open> {
  try {
    const opened = open(file, busyMs);
    for (const plan of plans) apply(opened.database, plan);
    return opened;
  } catch (error) {
    if (![FULL, IOERR].includes(codeOf(error)) || !reserve.giveUp()) throw error;
    return openOnAnyDisk({ file, busyMs, plans }, reserve);
  }
}

/** Takes jobs as they come and runs, in turns, all that have come: reads first, then the writes together. */
function serve(data: ThreadData): void {
  const port = parentPort;
  if (!port) throw new Error('this file is a thread');
  const reserve = createReserve(data.file);
  const { database, compacting } = openOnAnyDisk(data, reserve);
  const runner = createRunner(database, reserve);
  reserve.make();
  port.postMessage([{ n: 0, opened: durability(database, compacting) }]);
  let waiting: Job[] = [];
  let tidying: NodeJS.Timeout | undefined;
  const tidy = () => {
    const more = runner.tidy();
    if (!more) reserve.make();
    tidying = more ? setTimeout(tidy, TIDY_STEP_MS) : undefined;
  };
  tidying = setTimeout(tidy, TIDY_AFTER_MS);

  const plan = (job: Extract<Job, { kind: 'plan' }>): Reply => {
    try {
      apply(database, job.plan);
      return { n: job.n, rows: [] };
    } catch (error) {
      return failed(job.n, error);
    }
  };
  const turn = () => {
    const jobs = waiting;
    waiting = [];
    const forgotten = new Set(jobs.filter(({ kind }) => kind === 'forget').map(({ n }) => n));
    const due = jobs.filter(({ n }) => !forgotten.has(n));
    const first = due.flatMap((job) =>
      job.kind === 'plan' ? [plan(job)] : job.kind === 'read' ? [runner.run(job)] : [],
    );
    if (first.length > 0) port.postMessage(first);
    const writes = due.filter((job): job is Write => job.kind === 'write');
    if (writes.length > 0) {
      port.postMessage(runner.runTogether(writes));
      tidying ??= setTimeout(tidy, TIDY_AFTER_MS);
    }
    const close = due.find(({ kind }) => kind === 'close');
    if (!close) return;
    clearTimeout(tidying);
    database.close();
    port.postMessage([{ n: close.n, rows: [] }]);
    port.close();
  };
  port.on('message', (jobs: readonly Job[]) => {
    if (waiting.length === 0) setImmediate(turn); // after all messages that have already arrived
    waiting.push(...jobs);
  });
}

// The application never imports this file, it starts it; the data is what embedded-link.ts gave.
serve(workerData as ThreadData);
