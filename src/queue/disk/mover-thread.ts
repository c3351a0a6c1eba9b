import { fdatasyncSync, openSync, statSync } from 'node:fs';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { resultCode } from '../../base/sqlite.ts';
import { reasonOf } from './faults.ts';
import { connect } from './schema.ts';

/** The data of the mover thread: the port for its results, and the cell that is 1 while it works. */
export interface MoverData {
  readonly answers: MessagePort;
  readonly cell: SharedArrayBuffer;
}

/** The result of a move; an error sent between threads loses its class and SQLite's result code. */
export type Moved =
  | { readonly failed: false }
  | { readonly failed: true; readonly code: number | undefined; readonly reason: string };

/** SQLITE_IOERR_FSYNC: SQLite's code for a failed sync of the file. */
const SYNC_FAILED = 1034;

/**
 * Returns a function that moves the log into the queue file at `path`, concurrently with the writer. It connects for
 * each move, since the file may have been replaced.
 */
function createMove(sync: (path: string) => void): (path: string) => Moved {
  return (path) => {
    try {
      const db = connect(path);
      try {
        db.prepare('PRAGMA wal_checkpoint(PASSIVE)').get();
      } finally {
        db.close();
      }
    } catch (error) {
      return { failed: true, code: resultCode(error), reason: reasonOf(error) };
    }
    try {
      sync(path);
    } catch (error) {
      return { failed: true, code: SYNC_FAILED, reason: reasonOf(error) };
    }
    return { failed: false };
  };
}

/**
 * Returns a function that syncs the file. SQLite syncs it only when the whole log is moved, which the writer does: what
 * is synced here saves the writer time. Descriptors are never closed: closing one would drop SQLite's locks on the
 * file, which belong to the process (fcntl(2)). A new one is opened only after the file was replaced.
 */
function createSync(): (path: string) => void {
  let fd = -1;
  let inode = 0;
  return (path) => {
    const { ino } = statSync(path);
    if (ino !== inode) fd = openSync(path, 'r+');
    inode = ino;
    fdatasyncSync(fd);
  };
}

function serve(port: MessagePort, { answers, cell }: MoverData): void {
  const working = new Int32Array(cell);
  const move = createMove(createSync());
  port.on('message', (path: string) => {
    answers.postMessage(move(path));
    Atomics.store(working, 0, 0);
    Atomics.notify(working, 0);
  });
}

if (parentPort) serve(parentPort, workerData);
