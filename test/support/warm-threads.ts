import { EventEmitter } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import {
  MessageChannel,
  receiveMessageOnPort,
  type Transferable,
  Worker,
  type WorkerOptions,
} from 'node:worker_threads';
import type { ThreadCall } from '../../src/base/worker.ts';

// Threads of the tests' own process are used again. Loading the modules of a daemon's threads takes five times as long
// as an average test; a test run starts thousands. A thread that ended goes to the pool, where the next one of the same
// script takes its place: its modules stay loaded, its entry point runs anew with its own port and data
// (warm-thread.ts). A pool terminates its threads when it stops: those without work end as if asked to. Other threads
// that fail or are terminated are real ones to the end. Daemons in processes of their own are not affected.

/** The binding itself is replaced below. */
const Real = Worker;

/** Idle threads kept by a process. */
const KEPT = 16;
/** Milliseconds after which a pool's idle thread that does not end is terminated after all. */
const ENDING_MS = 1000;
const SOURCES = new URL('../../src/', import.meta.url).href;

/** A thread for uses in turn. */
interface Warm {
  readonly key: string;
  readonly worker: Worker;
  /** The thread's current use. */
  use: WarmWorker | undefined;
}

/** Emits `thread` for each thread that the process starts. */
export const startedThreads = new EventEmitter();

let idle: Warm[] = [];

function start(key: string, script: URL, options: WorkerOptions): Warm {
  const { workerData: _own, transferList: _moved, ...rest } = options;
  const worker = new Real(new URL('./warm-thread.ts', import.meta.url), { ...rest, workerData: script.href });
  const warm: Warm = { key, worker, use: undefined };
  // The thread's only message: its use has ended, and what it opened is closed.
  worker.on('message', () => {
    const { use } = warm;
    warm.use = undefined;
    worker.unref();
    idle.push(warm);
    if (idle.length > KEPT) void idle.shift()?.worker.terminate();
    use?.exited(0);
  });
  worker.on('error', (error) => warm.use?.emit('error', error));
  worker.on('exit', (code) => {
    idle = idle.filter((one) => one !== warm);
    warm.use?.exited(code);
  });
  return warm;
}

/** The part of `Worker` that the product and its tests use, over a thread that may have had other uses. */
export class WarmWorker extends EventEmitter {
  readonly #warm: Warm;
  readonly #port;
  /** Only a pool's threads have a pulse (base/worker-tasks.ts). */
  readonly #ofPool: boolean;
  #started = false;
  /** Calls without a reply. */
  #waiting = 0;
  readonly threadId: number;

  constructor(script: URL, options: WorkerOptions = {}) {
    super();
    const key = JSON.stringify([script.href, options.resourceLimits]);
    const found = idle.findLast((one) => one.key === key);
    idle = idle.filter((one) => one !== found);
    this.#warm = found ?? start(key, script, options);
    this.#warm.use = this;
    this.threadId = this.#warm.worker.threadId;
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    port1.on('message', (message) => this.#received(message));
    this.#warm.worker.ref();
    const { workerData, transferList = [] } = options;
    this.#ofPool = workerData?.pulse !== undefined;
    this.#warm.worker.postMessage({ port: port2, data: workerData }, [port2, ...transferList]);
    process.nextTick(() => startedThreads.emit('thread', this));
  }

  #received(message: any): void {
    if (message?.kind === 'ready') this.#started = true;
    if (message?.kind === 'replies') this.#waiting -= message.replies.length;
    this.emit('message', message);
  }

  postMessage(calls: readonly ThreadCall[], transfer?: readonly Transferable[]): void {
    this.#waiting += calls.length;
    this.#port.postMessage(calls, transfer);
  }

  async terminate(): Promise<number> {
    if (this.#warm.use !== this) return 0;
    if (!this.#ofPool || !this.#started || this.#waiting > 0) return this.#warm.worker.terminate();
    const late = setTimeout(() => void this.#warm.worker.terminate(), ENDING_MS);
    const ended = new Promise<number>((resolve) => this.once('exit', resolve));
    this.#port.postMessage([[0, 'end', []]] satisfies ThreadCall[]);
    return ended.finally(() => clearTimeout(late));
  }

  ref(): void {
    this.#warm.worker.ref();
    this.#port.ref();
  }

  unref(): void {
    this.#warm.worker.unref();
    this.#port.unref();
  }

  exited(code: number): void {
    for (let more = receiveMessageOnPort(this.#port); more; more = receiveMessageOnPort(this.#port))
      this.#received(more.message);
    this.#port.close();
    this.emit('exit', code);
  }
}

const threads = process.getBuiltinModule('node:worker_threads');
threads.Worker = new Proxy(Real, {
  construct: (_real, [script, options]: [URL, WorkerOptions]) =>
    script instanceof URL && script.href.startsWith(SOURCES)
      ? new WarmWorker(script, options)
      : new Real(script, options),
});
syncBuiltinESMExports();
