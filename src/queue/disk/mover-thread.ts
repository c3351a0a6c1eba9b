import { fdatasyncSync, openSync, statSync } from 'node:fs';
import { type MessagePort, parentPort, workerData } from 'node:worker_threads';
import { codeOf, reasonOf } from './faults.ts';
import { connect } from './schema.ts';

/** What the thread that moves is given: where it answers, and the cell that is 1 while it works. */
export interface MoverData {
  readonly answers: MessagePort;
  readonly cell: SharedArrayBuffer;
}

/** How a move ended; an error that crosses threads keeps neither its class nor what SQLite hung on it. */
export type Moved =
  | { readonly failed: false }
  | { readonly failed: true; readonly code: number | undefined; readonly reason: string };

/** SQLITE_IOERR_FSYNC: what SQLite says when it cannot sync the file. */
const SYNC_FAILED = 1034;

/**
 * Moves the log of the queue file at `path` into it, beside the thread that writes. The connection lives as long as the
 * move: the file may be another one the next time.
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
      return { failed: true, code: codeOf(error), reason: reasonOf(error) };
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
 * SQLite syncs the file only when the whole log is in it, and that is the writer's turn: what is synced here, it need
 * not wait for. Descriptors stay open for good: closing one would drop the locks that SQLite has on the file, which
 * belong to the process (fcntl(2)). There is another one only after a file was replaced.
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
