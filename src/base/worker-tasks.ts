import type { Log } from './log.ts';
import { createThreadMetrics, type Metrics } from './metrics.ts';
import { createTurn } from './turns.ts';
import { type Line, type Protocol, type Reply, serveThread } from './worker.ts';

// The thread of a pool (worker-pool.ts): its tasks, and the pulse by which the pool sees that it is not stuck.

/**
 * A value on its way between threads, and what of it is handed over and not copied. Memory that a task is handed over is
 * freed when it has replied; garbage collectors see too little of it to be in a hurry.
 */
export interface Packed<T> {
  readonly value: T;
  readonly transfer: readonly ArrayBuffer[];
}

/**
 * Runs what input may hang or break: under the deadline, one at a time on this thread, and known by its number when it
 * does.
 */
export type Guarded = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * What a thread does under a name. What it rejects with fails the task; what is thrown outside of it ends the thread.
 */
export type Task<In, Out> = (input: In, guarded: Guarded) => Promise<Packed<Out>>;

/** Runs the thread of a pool. */
export function serveTasks<Data>(
  open: (
    data: Data,
    deps: { readonly log: Log; readonly metrics: Metrics },
  ) => Readonly<Record<string, Task<never, unknown>>>,
): void {
  serveThread<TaskProtocol<Data>>(({ own, pulse, numbers, beatMs: every }, line) => {
    const cells = new Int32Array(pulse);
    const tasks = open(own, { log: line.log, metrics: createThreadMetrics(numbers) });
    const reply = createReplies(line);
    const inTurn = createTurn();
    const run = async ([n, name, [input, handedOver]]: TaskProtocol<Data>['call']): Promise<void> => {
      const guarded: Guarded = (work) =>
        inTurn(async () => {
          Atomics.store(cells, CELL.at, n);
          try {
            return await work();
          } finally {
            Atomics.store(cells, CELL.at, 0);
          }
        });
      try {
        const task = tasks[name];
        if (!task) throw new TypeError(`there is no task ${name}`);
        const { value, transfer } = await task(input, guarded);
        reply([n, 'done', value], transfer, handedOver);
      } catch (error) {
        reply([n, 'failed', error instanceof Error ? error.message : String(error)], [], handedOver);
      }
    };
    const take = (calls: readonly TaskProtocol<Data>['call'][]): void => {
      for (const call of calls) void run(call);
    };
    setInterval(() => {
      Atomics.add(cells, CELL.beat, 1);
    }, every).unref();
    return {
      ready: undefined,
      // A port hands over up to a thousand messages before the loop turns: under load that is seconds without a timer,
      // a DNS answer or a beat, and a busy thread looked like one that hangs. So work begins behind the port, once in
      // every turn.
      take: (calls) => void setImmediate(take, calls),
    };
  });
}

/** What both ends of a pool's thread agree on. */
export interface TaskProtocol<Data> extends Protocol {
  readonly data: {
    readonly own: Data;
    /** See `CELL`. */
    readonly pulse: SharedArrayBuffer;
    readonly numbers: SharedArrayBuffer;
    readonly beatMs: number;
  };
  readonly call: readonly [n: number, name: string, args: readonly [input: never, handedOver: readonly ArrayBuffer[]]];
  readonly kind: 'done' | 'failed';
}

/**
 * The cells of a pulse: the number of the call that a thread is at (0: none), and a count that moves while it is not
 * stuck.
 */
export const CELL = Object.freeze({ at: 0, beat: 1 });
// Replies share a message to the pool: each costs both threads a wake-up.
const REPLIES_AT_ONCE = 8;

function createReplies<Data>(line: Pick<Line<TaskProtocol<Data>>, 'reply'>) {
  let replies: Reply<'done' | 'failed'>[] = [];
  let transfers: ArrayBuffer[] = [];
  let used: ArrayBuffer[] = [];
  let waiting = false;
  const flush = (): void => {
    if (replies.length === 0) return;
    const [batch, transfer, input] = [replies, transfers, used];
    replies = [];
    transfers = [];
    used = [];
    line.reply(batch, undefined, transfer);
    // A reply may have been made of its input, so that goes last. What it took along is no longer ours.
    for (const memory of input) if (!memory.detached) memory.transfer(0);
  };
  return (
    reply: Reply<'done' | 'failed'>,
    transfer: readonly ArrayBuffer[],
    handedOver: readonly ArrayBuffer[],
  ): void => {
    replies.push(reply);
    transfers.push(...transfer);
    used.push(...handedOver);
    if (replies.length >= REPLIES_AT_ONCE) return flush();
    if (waiting) return;
    waiting = true;
    setImmediate(() => {
      waiting = false;
      flush();
    });
  };
}
