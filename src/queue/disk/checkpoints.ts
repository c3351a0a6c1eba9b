import { MessageChannel, type MessagePort, receiveMessageOnPort, Worker } from 'node:worker_threads';
import { kindOf } from './faults.ts';
import type { Moved, MoverData } from './mover-thread.ts';
import type { OpenFile } from './open-file.ts';

/**
 * Pages in the log after which they are moved into the file (8 MiB): fewer would be synced more often than they are
 * worth.
 */
const MANY = 2048;
/** So few that the writer moves them itself, in about the time of a commit (2 MiB). */
const FEW = 512;
/** Pages of a log that begins anew once all of it was moved (32 MiB). A log of this length stays on the disk. */
const LONG = 4 * MANY;
/**
 * Unmoved pages at which new mail waits for the disk (128 MiB): the log of one that cannot keep up must not grow for
 * ever.
 */
const TOO_MANY = 64 * FEW;
/** How long a move may hold up what cannot be done beside it. */
const REST_MS = 60_000;

/** A move that failed on its own thread, so that the file cannot be trusted any more. */
class MoveFailed extends Error {
  override readonly name = 'MoveFailed';
  readonly errcode: number | undefined;

  constructor(code: number | undefined, reason: string) {
    super(reason);
    this.errcode = code;
  }
}

/**
 * Moves the log into the file. A move takes tens of milliseconds, most of it a sync, and nothing could be accepted
 * meanwhile: so the bulk is moved on a thread of its own beside the commits, and the writer itself moves only the
 * little that came in between, which lets the log begin anew.
 */
interface Checkpoints {
  /** To be called after each commit. Throws when the file cannot be trusted any more. */
  tend(file: OpenFile): void;
  /** Waits for a move that is under way, and forgets how it went: the file is about to be replaced or closed. */
  rest(): void;
  stop(): void;
}

export function createCheckpoints(path: string): Checkpoints {
  const mover = createMover();
  /** Pages that the last move left in the log, because they came in meanwhile or someone was reading. */
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
    tend(file) {
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
    rest() {
      mover.rest();
      mover.result();
      left = 0;
    },
    stop: mover.stop,
  };
}

/**
 * Throws what makes the file one that cannot be trusted. Somebody else is at it, or there is no room just now: the log
 * stays as it is.
 */
function tell(error: unknown): void {
  const kind = kindOf(error);
  if (kind !== 'busy' && kind !== 'full') throw error;
}

/**
 * The thread that moves. It is started by the first move, and looked at between commits: its answers wait for no turn
 * of the loop.
 */
function createMover() {
  const cell = new SharedArrayBuffer(4);
  const working = new Int32Array(cell);
  let thread: { readonly worker: Worker; readonly answers: MessagePort } | undefined;

  function start() {
    const { port1, port2 } = new MessageChannel();
    const workerData: MoverData = { answers: port2, cell };
    const worker = new Worker(new URL('./mover-thread.ts', import.meta.url), {
      workerData,
      transferList: [port2],
      trackUnmanagedFds: false,
      resourceLimits: { maxYoungGenerationSizeMb: 3 },
    });
    worker.on('exit', () => {
      // What it fails at it answers; one that ended without being asked is replaced by the next move.
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
