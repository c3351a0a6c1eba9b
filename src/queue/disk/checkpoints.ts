import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { moduleUrl } from '../../base/module-url.ts';
import { kindOf } from './faults.ts';
import type { Moved, MoverData } from './mover-thread.ts';
import type { OpenFile } from './open-file.ts';

/** Pages in the log after which they are moved into the file (8 MiB): a lower number would cause too many syncs. */
const MANY = 2048;
/** At most this many pages are moved by the writer itself, in about the time of a commit (2 MiB). */
const FEW = 512;
/** Pages at which the log restarts once all of it was moved (32 MiB). A log of this length stays on disk. */
const LONG = 4 * MANY;
/** Unmoved pages at which new mail waits for the disk (128 MiB), so that the log does not grow forever. */
const TOO_MANY = 64 * FEW;
/** The longest wait for a running move, in milliseconds. */
const REST_MS = 60_000;

/** A move failed on its thread, so the file can no longer be trusted. */
class MoveFailed extends Error {
  override readonly name = 'MoveFailed';
  readonly errcode: number | undefined;

  constructor(code: number | undefined, reason: string) {
    super(reason);
    this.errcode = code;
  }
}

/**
 * Moves the log into the file. A move takes tens of milliseconds, mostly for a sync, in which nothing could be
 * accepted. So a separate thread moves the bulk during commits, and the writer itself moves only the few pages
 * added in between, which lets the log restart.
 */
export function createCheckpoints(path: string) {
  const mover = createMover();
  /** Pages that the last move left in the log, because they were added meanwhile or a reader needed them. */
  let left = 0;

  function moveHere(file: OpenFile): void {
    try {
      file.checkpoint();
    } catch (error) {
      tell(error);
    }
    left = file.log().unmoved;
  }

  function hear(): Moved | undefined {
    const moved = mover.result();
    if (moved?.failed) tell(new MoveFailed(moved.code, moved.reason));
    return moved;
  }

  return {
    /** Must be called after each commit. Throws when the file can no longer be trusted. */
    tend(file: OpenFile) {
      const moved = hear();
      const { unmoved, length } = file.log();
      left = Math.min(left, unmoved);
      if (unmoved - left >= TOO_MANY) {
        mover.rest();
        hear();
        moveHere(file);
      } else if (mover.busy()) return;
      else if (moved && unmoved <= FEW && length >= LONG) moveHere(file);
      else if (moved) left = unmoved;
      else if (unmoved - left >= MANY) mover.begin(path);
    },
    /** Waits for a running move and ignores its result: the file is about to be replaced or closed. */
    rest() {
      mover.rest();
      mover.result();
      left = 0;
    },
    stop: mover.stop,
  };
}

/** Throws an error that makes the file untrustworthy. If the file is busy or the disk full, the log is unchanged. */
function tell(error: unknown): void {
  const kind = kindOf(error);
  if (kind !== 'busy' && kind !== 'full') throw error;
}

/** Creates the mover thread, started by the first move. Its results are polled between commits, not by events. */
function createMover() {
  const cell = new SharedArrayBuffer(4);
  const working = new Int32Array(cell);
  let thread: { readonly worker: Worker; readonly answers: MessagePort } | undefined;

  function start() {
    const { port1, port2 } = new MessageChannel();
    const workerData: MoverData = { answers: port2, cell };
    const worker = new Worker(moduleUrl('./mover-thread.ts', import.meta.url), {
      workerData,
      transferList: [port2],
      trackUnmanagedFds: false,
      resourceLimits: { maxYoungGenerationSizeMb: 3 },
    });
    worker.on('exit', () => {
      // The thread reports its failures as results; if it ends unexpectedly, the next move starts a new one.
      Atomics.store(working, 0, 0);
      if (thread?.worker === worker) stop();
    });
    worker.on('error', () => {});
    worker.unref();
    return { worker, answers: port1 };
  }

  function stop(): void {
    thread?.answers.close();
    void thread?.worker.terminate();
    thread = undefined;
  }

  return {
    busy: () => Atomics.load(working, 0) === 1,
    begin(path: string) {
      Atomics.store(working, 0, 1);
      thread ??= start();
      thread.worker.postMessage(path);
    },
    result: (): Moved | undefined => (thread ? receiveMessageOnPort(thread.answers)?.message : undefined),
    rest() {
      Atomics.wait(working, 0, 1, REST_MS);
    },
    stop,
  };
}
