import {
  type MessagePort,
  parentPort,
  type ResourceLimits,
  receiveMessageOnPort,
  type Transferable,
  Worker,
  workerData,
} from 'node:worker_threads';
import { frozen } from './frozen.ts';
import type { EventName, Fields, Log } from './log.ts';

// Calls functions on another thread by name. Calls are numbered, to match replies to callers, and batched, because each
// message wakes both threads. Both ends are here: `startThread` for the caller, `serveThread` for the thread.

/** A call to a thread. Number 0 gets no reply. */
export type ThreadCall = readonly [n: number, name: string, args: readonly unknown[]];

/** The reply to call `n`. `Kind`: the possible outcomes of a call, as named by that thread. */
export type ThreadReply<Kind extends string> = readonly [n: number, kind: Kind, value: unknown];

/** The outcome of a call; `died` if the thread ended before it replied. */
export interface Outcome<Kind extends string> {
  readonly kind: Kind | 'died';
  /** Values lose their types between threads: the caller declares the type of the result. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly value: any;
}

/** The types shared by both ends of a thread. */
export interface Protocol {
  /** The start data of the thread. */
  readonly data: unknown;
  /** The calls that it accepts, and their outcomes. */
  readonly call: ThreadCall;
  readonly kind: string;
  /** The value it sends when started, and the news it sends with replies. */
  readonly ready: unknown;
  readonly news: unknown;
}

/** A running thread. */
export type Thread<P extends Protocol> = ReturnType<typeof startThread<P>>;

/** How to start a thread. */
interface ThreadOptions<Data> {
  readonly script: URL;
  readonly data: Data;
  readonly limits?: Omit<ResourceLimits, 'maxYoungGenerationSizeMb'>;
  /** Megabytes of its young generation, all of which it will use. Node's default is 48 or more. */
  readonly youngMb: number;
  /** `turn`: calls wait for the end of the turn of the event loop, to share a batch. `soon`: they do not. */
  readonly gather: 'soon' | 'turn';
}

/** Callbacks for a thread. */
export interface ThreadListener<News> {
  /** The thread sent news. Called before the replies of the same message are settled. */
  news?(news: News): void;
  /** The thread ended without a call of `end` or `terminate`. Called before its calls are settled. */
  ended?(end: ThreadEnd): void;
}

/** How a thread ended. */
export interface ThreadEnd {
  readonly reason: string;
  /** The error it threw, if any. */
  readonly error: Error | undefined;
  /** False if it was never ready. */
  readonly started: boolean;
}

/** A thread ended before it was ready; the cause is the error it threw. */
export class ThreadEnded extends Error {
  override readonly name = 'ThreadEnded';
}

/** The highest call number; it fits a cell of an Int32Array. */
const HIGHEST = 0x7fffffff;
/** Maximum wait of a patient call. */
const PATIENCE_MS = 5;

/** Starts a thread. Calls can be made at once, and wait until it is ready. */
export function startThread<P extends Protocol>(
  { script, data, limits, youngMb, gather }: ThreadOptions<P['data']>,
  { log }: { readonly log: Log },
  listener: ThreadListener<P['news']>,
) {
  const worker = new Worker(script, {
    workerData: data,
    resourceLimits: { ...limits, maxYoungGenerationSizeMb: youngMb },
  });
  const calls = createThreadCalls<P['kind']>(gather, (batch, transfer) => worker.postMessage(batch, transfer));
  const ready = Promise.withResolvers<P['ready']>();
  ready.promise.catch(() => undefined); // not every caller awaits it
  const gone = Promise.withResolvers<void>();
  let end: ThreadEnd = { reason: 'no error was reported', error: undefined, started: false };
  let wanted = false;

  worker.on('message', (message: Message<P>) => {
    if (message.kind === 'replies') {
      if (message.news !== undefined) listener.news?.(message.news);
      calls.settle(message.replies);
    } else if (message.kind === 'log') log[message.level](message.event, message.fields);
    else {
      end = { ...end, started: true };
      ready.resolve(message.value);
    }
  });
  worker.on('error', (thrown: unknown) => {
    const error = thrown instanceof Error ? thrown : undefined;
    end = { ...end, reason: error?.message ?? String(thrown), error };
  });
  worker.on('exit', () => {
    ready.reject(new ThreadEnded(end.reason, { cause: end.error }));
    if (!wanted) listener.ended?.(end);
    calls.giveUp(end.reason);
    gone.resolve();
  });

  return frozen({
    /** The value that it sent when started; rejects with `ThreadEnded` if it never started. */
    ready: ready.promise,
    ask: calls.ask,
    call: calls.call,
    tell: calls.tell,
    /** Ends the thread after its pending calls, and resolves when it has ended. */
    end(): Promise<void> {
      if (!wanted) calls.end();
      wanted = true;
      return gone.promise;
    },
    /** Ends the thread immediately. */
    async terminate() {
      wanted = true;
      await worker.terminate();
    },
    /** Ends the thread immediately, as if it had failed for this reason. */
    kill(reason: string) {
      end = { ...end, reason };
      void worker.terminate();
    },
  });
}

/** The calls of one end: those without a reply so far, and the batch not yet sent. */
export function createThreadCalls<Kind extends string>(
  gather: ThreadOptions<unknown>['gather'],
  post: (batch: readonly ThreadCall[], transfer: readonly Transferable[]) => void,
) {
  const waiting = new Map<number, (outcome: Outcome<Kind>) => void>();
  let batch: ThreadCall[] = [];
  let transfers: Transferable[] = [];
  let leaving: 'no' | 'patiently' | 'now' = 'no';
  let last = 0;
  let ended: string | undefined;

  const flush = () => {
    leaving = 'no';
    if (batch.length === 0) return;
    const [calls, transfer] = [batch, transfers];
    batch = [];
    if (transfer.length > 0) transfers = [];
    post(calls, transfer);
  };
  const add = (call: ThreadCall, patient: boolean) => {
    batch.push(call);
    if (leaving === 'now' || (patient && leaving === 'patiently')) return;
    leaving = patient ? 'patiently' : 'now';
    if (patient) setTimeout(flush, PATIENCE_MS);
    else if (gather === 'turn') setImmediate(flush);
    else queueMicrotask(flush);
  };
  const call = (
    name: string,
    args: readonly unknown[],
    settle: (outcome: Outcome<Kind>) => void,
    transfer: readonly Transferable[] = [],
    patient = false,
  ): number => {
    transfers.push(...transfer);
    last = (last % HIGHEST) + 1;
    if (ended !== undefined) settle({ kind: 'died', value: ended });
    else {
      waiting.set(last, settle);
      add([last, name, args], patient);
    }
    return last;
  };

  return {
    /** Never rejects. A patient call waits some milliseconds to share a batch. `transfer`: memory to move, not copy. */
    ask: (name: string, args: readonly unknown[], patient = false, transfer?: readonly Transferable[]) =>
      new Promise<Outcome<Kind>>((resolve) => call(name, args, resolve, transfer, patient)),
    /** As `ask`, with a callback. Returns the number of the call. */
    call,
    /** A call without a reply. */
    tell(name: string, args: readonly unknown[], patient = false) {
      if (ended === undefined) add([0, name, args], patient);
    },
    settle(replies: readonly ThreadReply<Kind>[]) {
      for (const [n, kind, value] of replies) {
        waiting.get(n)?.({ kind, value });
        waiting.delete(n);
      }
    },
    end() {
      batch.push([0, END, []]);
      flush();
      ended = 'the thread was ended';
    },
    giveUp(reason: string) {
      ended = reason;
      const lost = [...waiting.values()];
      waiting.clear();
      for (const settle of lost) settle({ kind: 'died', value: reason });
    },
  };
}

/** The messages of a thread: `ready` once, then replies with or without news, and log lines. */
type Message<P extends Protocol> =
  | { readonly kind: 'ready'; readonly value: P['ready'] }
  | {
      readonly kind: 'replies';
      readonly replies: readonly ThreadReply<P['kind']>[];
      readonly news: P['news'] | undefined;
    }
  | {
      readonly kind: 'log';
      readonly level: keyof Log;
      readonly event: EventName;
      readonly fields: Fields;
    };

/** The name of the call that `Thread.end` makes. */
const END = 'end';

/** The thread's connection to the thread that started it. */
export interface Line<P extends Protocol> {
  /** The starting thread writes the lines. */
  readonly log: Log;
  reply(replies: readonly ThreadReply<P['kind']>[], news?: P['news'], transfer?: readonly Transferable[]): void;
  /** Returns calls that arrived while others were being processed. */
  arrived(): readonly P['call'][];
}

/** The thread's handlers. */
interface Served<P extends Protocol> {
  readonly ready: P['ready'];
  take(calls: readonly P['call'][]): void;
  /** Called after the last calls. */
  end?(): void;
}

/** Runs a thread. `open` prepares it with its start data; an error thrown there ends the thread. */
export function serveThread<P extends Protocol>(open: (data: P['data'], line: Line<P>) => Served<P>): void {
  if (!parentPort) return;
  const port: MessagePort = parentPort;
  const post = (message: Message<P>, transfer?: readonly Transferable[]) => port.postMessage(message, transfer);
  let ending = false;
  /** Removes the last call if it is the one that ends the thread. */
  const received = (calls: readonly P['call'][]): readonly P['call'][] => {
    if (calls.at(-1)?.[1] !== END) return calls;
    ending = true;
    return calls.slice(0, -1);
  };
  const at =
    (level: keyof Log) =>
    (event: EventName, fields: Fields = {}) =>
      post({ kind: 'log', level, event, fields });
  const { ready, take, end } = open(workerData, {
    log: { info: at('info'), warn: at('warn'), error: at('error'), debug: at('debug') },
    reply: (replies, news, transfer) => post({ kind: 'replies', replies, news }, transfer),
    arrived() {
      const calls: P['call'][] = [];
      for (let more = receiveMessageOnPort(port); more; more = receiveMessageOnPort(port))
        calls.push(...received(more.message));
      return calls;
    },
  });
  post({ kind: 'ready', value: ready });
  port.on('message', (calls: readonly P['call'][]) => {
    take(received(calls));
    if (!ending) return;
    end?.();
    port.close();
  });
}

/**
 * Calls a function of a table by name. Arguments lose their types between threads: the compiler checked them at the
 * caller, against the type of the table.
 */
export function callByName(table: object, [, name, args]: ThreadCall): unknown {
  const found: unknown = Reflect.get(table, name);
  if (typeof found !== 'function') throw new TypeError(`there is no ${name} on this thread`);
  return Reflect.apply(found, table, args);
}
