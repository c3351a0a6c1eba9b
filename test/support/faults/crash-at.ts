/**
 * Loaded before the daemon, in each of its threads: kills the process at one step. `CRASH_AT` is `before|after STEP N`,
 * the N-th time since the file `CRASH_ARMED` is there, so that a start can first make good what the last crash left.
 * The steps are calls that the daemon makes of Node, so that it needs no switches for this. `FAIL_COMMIT=N` lets the
 * N-th commit of new mail from then on fail as a failed sync does.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { Socket } from 'node:net';
import { DatabaseSync, StatementSync } from 'node:sqlite';

type Step =
  | 'tables'
  | 'message row'
  | 'accept commit'
  | 'settle commit'
  | 'checkpoint'
  | 'blob write'
  | 'blob sync'
  | 'blob rename'
  | 'folder sync'
  | 'reply'
  | 'post'
  | 'answer'
  | 'log removal'
  | 'appoint'
  | 'adopt';

const [, when, wanted, nth] = /^(before|after) (.+) (\d+)$/.exec(process.env.CRASH_AT ?? '') ?? [];
const { existsSync } = fs;
const isArmed = () => existsSync(process.env.CRASH_ARMED ?? '');
let count = 0;

function die(): void {
  process.kill(process.pid, 'SIGKILL');
}

/** Runs a step, unless its time has come. */
function at(step: Step | undefined, run: () => unknown): unknown {
  const now = step !== undefined && step === wanted && isArmed() && ++count === Number(nth);
  if (now && when === 'before') die();
  const value = run();
  if (now && value instanceof Promise) return value.finally(die);
  if (now) die();
  return value;
}

/** Puts `around` in the place of a method; `run` does what it did. */
function patch(
  target: object,
  name: string,
  around: (self: object, args: readonly unknown[], run: () => unknown) => unknown,
): void {
  const real: unknown = Reflect.get(target, name);
  if (typeof real !== 'function') throw new Error(`there is no ${name} to be replaced`);
  Reflect.set(target, name, function replaced(this: object, ...args: unknown[]) {
    return around(this, args, () => Reflect.apply(real, this, args));
  });
}

// The queue file: each thread has its own, and this one knows what was written since the last BEGIN.
const wrote = new Set<'accept' | 'settle'>();
let commits = 0;

patch(StatementSync.prototype, 'run', (self, _args, run) => {
  const sql = self instanceof StatementSync ? self.sourceSQL : '';
  const message = sql.startsWith('INSERT INTO messages');
  if (message) wrote.add('accept');
  if (sql.startsWith('UPDATE deliveries SET state = ?, due_at')) wrote.add('settle');
  return at(message ? 'message row' : undefined, run);
});
patch(StatementSync.prototype, 'get', (self, _args, run) =>
  at(
    self instanceof StatementSync && self.sourceSQL === 'PRAGMA wal_checkpoint(PASSIVE)' ? 'checkpoint' : undefined,
    run,
  ),
);
patch(DatabaseSync.prototype, 'exec', (self, [sql], run) => {
  if (sql === 'BEGIN IMMEDIATE') wrote.clear();
  if (sql === 'COMMIT' && wrote.has('accept') && isArmed() && ++commits === Number(process.env.FAIL_COMMIT))
    failSync(self);
  if (sql === 'COMMIT')
    return at(wrote.has('accept') ? 'accept commit' : wrote.has('settle') ? 'settle commit' : undefined, run);
  return at(
    String(sql).includes('CREATE TABLE meta') && String(sql).includes('CREATE TABLE deliveries') ? 'tables' : undefined,
    run,
  );
});

/** What SQLite says after a sync that failed (SQLITE_IOERR_FSYNC). */
function failSync(db: object): never {
  if (db instanceof DatabaseSync) db.exec('ROLLBACK');
  throw Object.assign(new Error('disk I/O error'), { code: 'ERR_SQLITE_ERROR', errcode: 1034 });
}

// Large bodies.
patch(fs.promises, 'open', async (_self, [path], run) => {
  const handle = await run();
  if (handle instanceof Object && /\/spool\/tmp\//.test(String(path))) {
    patch(handle, 'write', (_handle, _args, write) => at('blob write', write));
    patch(handle, 'datasync', (_handle, _args, sync) => at('blob sync', sync));
  } else if (handle instanceof Object && /\/spool\/blobs$/.test(String(path))) {
    patch(handle, 'sync', (_handle, _args, sync) => at('folder sync', sync));
  }
  return handle;
});
patch(fs.promises, 'rename', (_self, [, to], run) =>
  at(/\/spool\/blobs\//.test(String(to)) ? 'blob rename' : undefined, run),
);

// A new queue file that takes the place of one that cannot be trusted.
patch(fs, 'renameSync', (_self, [, to], run) =>
  at(String(to).endsWith('spool.db.next') ? 'appoint' : String(to).endsWith('spool.db') ? 'adopt' : undefined, run),
);
patch(fs, 'rmSync', (_self, [path], run) => at(String(path).endsWith('spool.db-wal') ? 'log removal' : undefined, run));

// The two sides of the network.
patch(Socket.prototype, 'write', (_self, [chunk], run) =>
  at(startOf(chunk, '250 2.0.0 OK: queued') ? 'reply' : startOf(chunk, 'POST /') ? 'post' : undefined, run),
);
patch(Socket.prototype, 'read', (_self, _args, run) => {
  const chunk = run();
  return at(startOf(chunk, 'HTTP/1.1 200') ? 'answer' : undefined, () => chunk);
});

function startOf(chunk: unknown, text: string): boolean {
  if (typeof chunk === 'string') return chunk.startsWith(text);
  return (
    chunk instanceof Uint8Array &&
    Buffer.from(chunk.buffer, chunk.byteOffset, Math.min(chunk.byteLength, text.length)).toString('latin1') === text
  );
}

syncBuiltinESMExports();
