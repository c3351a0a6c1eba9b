import { createSerialQueue } from './concurrency.ts';
import { errorText } from './errors.ts';
import type { Log } from './log.ts';
import { createThreadMetrics, type Metrics } from './metrics.ts';
import { type Line, type Protocol, serveThread, type ThreadReply } from './worker.ts';

// The thread's end of a pool (worker-pool.ts): its tasks, and the pulse that shows the pool that it is not stuck.

/**
 * A value passed between threads, and the parts of it that are transferred instead of copied. Memory transferred to a
 * task is freed after its reply, because the garbage collector does not count most of it and would be late.
 */
export interface Packed<T> {
  readonly value: T;
  readonly transfer: readonly ArrayBuffer[];
}

/** Runs work that input may hang or crash: under the deadline, one at a time per thread, with its call identifiable. */
export type Guarded = <T>(work: () => Promise<T>) => Promise<T>;

/** A named task of a thread. A rejection fails the task; an error thrown outside of it ends the thread. */
export type ThreadTask<In, Out> = (input: In, guarded: Guarded) => Promise<Packed<Out>>;

/** Runs the thread of a pool. */
export function serveTasks<Data>(
  open: (
    data: Data,
    deps: { readonly log: Log; readonly metrics: Metrics },
  ) => Readonly<Record<string, ThreadTask<never, unknown>>>,
): void {
  serveThread<TaskProtocol<Data>>(({ own, pulse, numbers, beatMs: every }, line) => {
    const cells = new Int32Array(pulse);
    const tasks = open(own, { log: line.log, metrics: createThreadMetrics(numbers) });
    const reply = createReplies(line);
    const inTurn = createSerialQueue();
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
        reply([n, 'failed', errorText(error)], [], handedOver);
      }
    };
    const take = (calls: readonly TaskProtocol<Data>['call'][]): void => {
      for (const call of calls) void run(call);
    };
    const beats = setInterval(() => {
      Atomics.add(cells, CELL.beat, 1);
    }, every).unref();
    return {
      ready: undefined,
      // A port delivers up to a thousand messages before the event loop turns. Under load this meant seconds without
      // timers, DNS replies or beats, and a busy thread looked stuck. So work starts after the port, once per turn.
      take: (calls) => void setImmediate(take, calls),
      end: () => clearInterval(beats),
    };
  });
}

/** The protocol of a pool's thread. */
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

/** The cells of a pulse: number of the guarded call (0: none), and a count that rises unless the thread is stuck. */
export const CELL = Object.freeze({ at: 0, beat: 1 });
// Replies are batched, because each message to the pool wakes both threads.
const REPLIES_AT_ONCE = 8;

function createReplies<Data>(line: Pick<Line<TaskProtocol<Data>>, 'reply'>) {
  let replies: ThreadReply<'done' | 'failed'>[] = [];
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
    // Free inputs last: a reply may use the memory of its input. Buffers transferred with a reply are detached.
    for (const memory of input) if (!memory.detached) memory.transfer(0);
  };
  return (
    reply: ThreadReply<'done' | 'failed'>,
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
