/**
 * The thread that owns the file of the embedded store. It runs statements, and knows nothing of rows.
 * Writes that wait when a transaction begins share it and its one sync of the disk; each is acknowledged after that.
 * Every write is one statement, and SQLite undoes a statement that fails without touching its neighbours in the transaction.
 */
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import type { Statement, TablePlan } from './sql.ts';

/** What the thread is started with. */
export interface ThreadData {
  readonly file: string;
  /** Milliseconds to wait for another process that writes. */
  readonly busyMs: number;
  readonly plans: readonly TablePlan[];
}

/** What it is asked. `forget`: nobody waits for job `n` any more; it is not begun if it has not been. */
export type Job =
  | ({ readonly kind: 'read' | 'write'; readonly n: number } & Statement)
  | { readonly kind: 'plan'; readonly n: number; readonly plan: TablePlan }
  | { readonly kind: 'forget'; readonly n: number }
  | { readonly kind: 'close'; readonly n: number };

/** How the file is written, as SQLite says. */
export interface Durability {
  readonly journal: string;
  readonly synchronous: string;
}

/** Rows of id and JSON, or what went wrong: `away` is temporary (locked, full), `fault` is a mistake of ours. */
export type Reply =
  | { readonly n: number; readonly opened: Durability }
  | { readonly n: number; readonly rows: readonly (readonly [string, string])[] }
  | { readonly n: number; readonly failure: 'duplicate' | 'away' | 'fault'; readonly message: string };

type Write = Extract<Job, { kind: 'read' | 'write' }>;
type Ended = Extract<Reply, { failure: string }>;

// Primary result codes of SQLite (sqlite.org/rescode.html); an extended code carries its primary in the low byte.
const BUSY = 5, LOCKED = 6, NOMEM = 7, READONLY = 8, IOERR = 10, CORRUPT = 11, FULL = 13, CANTOPEN = 14, CONSTRAINT = 19, NOTADB = 26;
const AWAY = new Set([BUSY, LOCKED, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOTADB]);
/** After these the open file is not trusted again: the thread ends, and a new one recovers from the log. */
const BROKEN = new Set([NOMEM, IOERR, CORRUPT, NOTADB]);
const MOST_STATEMENTS = 500;

function codeOf(error: unknown): number {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode & 0xff : 0;
}

function failed(n: number, error: unknown): Ended {
  const code = codeOf(error);
  const message = error instanceof Error ? error.message : String(error);
  return { n, failure: code === CONSTRAINT ? 'duplicate' : AWAY.has(code) ? 'away' : 'fault', message };
}

function open(file: string, busyMs: number): DatabaseSync {
  const database = new DatabaseSync(file, { timeout: busyMs });
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF;');
  return database;
}

/** What SQLite really does; a file system without shared memory leaves the journal mode as it was, without an error. */
function durability(database: DatabaseSync): Durability {
  const journal = String(Object.values(database.prepare('PRAGMA journal_mode').get() ?? {})[0]);
  const level = Number(Object.values(database.prepare('PRAGMA synchronous').get() ?? {})[0]);
  return { journal, synchronous: ['off', 'normal', 'full', 'extra'][level] ?? String(level) };
}

function apply(database: DatabaseSync, plan: TablePlan): void {
  database.exec('BEGIN IMMEDIATE');
  try {
    database.exec(plan.create);
    const there = database.prepare(`SELECT "name" FROM pragma_table_xinfo(?)`).all(plan.table).map(({ name }) => name);
    for (const { name, add } of plan.columns) if (!there.includes(name)) database.exec(add);
    for (const index of plan.indexes) database.exec(index);
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

function createRunner(database: DatabaseSync) {
  const prepared = new Map<string, StatementSync>();
  const statement = (sql: string) => {
    const known = prepared.get(sql);
    if (known) return known;
    if (prepared.size >= MOST_STATEMENTS) prepared.clear();
    const made = database.prepare(sql);
    prepared.set(sql, made);
    return made;
  };
  const run = (job: Write): Reply => {
    try {
      const rows = statement(job.sql).all(...job.params);
      return { n: job.n, rows: rows.map(({ id, row }) => [String(id), String(row)]) };
    } catch (error) {
      if (BROKEN.has(codeOf(error))) throw error;
      return failed(job.n, error);
    }
  };
  /** All writes in one transaction. When it breaks as a whole, none of them was written. */
  const runTogether = (writes: readonly Write[]): Reply[] => {
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
      return writes.map(({ n }) => ({ n, failure: 'away', message: failed(n, error).message }));
    }
  };
  return { run, runTogether };
}

/** Takes jobs as they come and runs, in turns, all that have come: reads first, then the writes together. */
function serve(data: ThreadData): void {
  const port = parentPort;
  if (!port) throw new Error('this file is a thread');
  const database = open(data.file, data.busyMs);
  const runner = createRunner(database);
  for (const plan of data.plans) apply(database, plan);
  port.postMessage([{ n: 0, opened: durability(database) }]);
  let waiting: Job[] = [];

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
    const first = due.flatMap((job) => (job.kind === 'plan' ? [plan(job)] : job.kind === 'read' ? [runner.run(job)] : []));
    if (first.length > 0) port.postMessage(first);
    const writes = due.filter((job): job is Write => job.kind === 'write');
    if (writes.length > 0) port.postMessage(runner.runTogether(writes));
    const close = due.find(({ kind }) => kind === 'close');
    if (!close) return;
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
