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

// Functions on a thread of their own, called by name. Calls are numbered, so that a reply finds who waits for it, and
// travel in batches, because each message costs both threads a wake-up. Both ends are here: `startThread` is ours,
// `serveThread` the thread's.

/** A call on its way to a thread. Nobody waits for a reply to number 0. */
export type Call = readonly [n: number, name: string, args: readonly unknown[]];

/** The reply to call `n`. `Kind` are the words of that thread for how a call can end. */
export type Reply<Kind extends string> = readonly [n: number, kind: Kind, value: unknown];

/** What came of a call; `died` when the thread ended before it replied. */
export interface Outcome<Kind extends string> {
  readonly kind: Kind | 'died';
  /** Values lose their types between threads: the caller says what a name answers. */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly value: any;
}

/** The types that both ends of a thread agree on. */
export interface Protocol {
  /** What the thread is started with. */
  readonly data: unknown;
  /** The calls it takes, and its words for how they end. */
  readonly call: Call;
  readonly kind: string;
  /** What it says when it has started, and what it reports beside its replies. */
  readonly ready: unknown;
  readonly news: unknown;
}

/** A running thread. */
export interface Thread<P extends Protocol> {
  /** What it said when it had started; rejects with `ThreadEnded` when it never did. */
  readonly ready: Promise<P['ready']>;
  /** Never rejects. A patient call waits some milliseconds for others to travel with. `transfer`: memory handed over. */
  ask(
    name: string,
    args: readonly unknown[],
    patient?: boolean,
    transfer?: readonly Transferable[],
  ): Promise<Outcome<P['kind']>>;
  /** As `ask`, with a callback, and with memory that is handed over. Returns the number of the call. */
  call(
    name: string,
    args: readonly unknown[],
    settle: (outcome: Outcome<P['kind']>) => void,
    transfer?: readonly Transferable[],
  ): number;
  /** A call without a reply. */
  tell(name: string, args: readonly unknown[]): void;
  /** Lets it finish what it was asked, and resolves when it is gone. */
  end(): Promise<void>;
  /** Ends it at once. */
  terminate(): Promise<void>;
  /** Ends it at once, as if it had failed for this reason. */
  kill(reason: string): void;
}

/** What a thread is started with. */
interface ThreadOptions<Data> {
  readonly script: URL;
  readonly data: Data;
  readonly limits?: Omit<ResourceLimits, 'maxYoungGenerationSizeMb'>;
  /** Megabytes of its heap for what is new; it takes all of them. Node's own choice is 48 or more. */
  readonly youngMb: number;
  /**
   * `turn`: calls wait until the event loop has done what is ready, so that more travel together. `soon`: they do not.
   */
  readonly gather: 'soon' | 'turn';
}

/** What is to be known of a thread. */
export interface ThreadListener<News> {
  /** It says something beside its replies; called before those that came with it are settled. */
  news?(news: News): void;
  /** It is gone, and neither `end` nor `terminate` was called; called before its calls are settled. */
  ended?(end: ThreadEnd): void;
}

/** How a thread ended. */
export interface ThreadEnd {
  readonly reason: string;
  /** What it threw. */
  readonly error: Error | undefined;
  /** False when it never was ready. */
  readonly started: boolean;
}

/** A thread ended before it was ready; the cause is what it threw. */
export class ThreadEnded extends Error {
  override readonly name = 'ThreadEnded';
}

/** The highest number of a call; it fits a cell of an Int32Array. */
const HIGHEST = 0x7fffffff;
/** How long a patient call waits at most. */
const PATIENCE_MS = 5;

/** Starts a thread. It can be called at once; calls wait until it is ready. */
export function startThread<P extends Protocol>(
  { script, data, limits, youngMb, gather }: ThreadOptions<P['data']>,
  { log }: { readonly log: Log },
  listener: ThreadListener<P['news']>,
): Thread<P> {
  const worker = new Worker(script, {
    workerData: data,
    resourceLimits: { ...limits, maxYoungGenerationSizeMb: youngMb },
  });
  const calls = createCalls<P['kind']>(gather, (batch, transfer) => worker.postMessage(batch, transfer));
  const ready = Promise.withResolvers<P['ready']>();
  ready.promise.catch(() => undefined); // not everybody waits for it
  const gone = Promise.withResolvers<void>();
  let end: ThreadEnd = { reason: 'it ended', error: undefined, started: false };
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
    ready: ready.promise,
    ask: calls.ask,
    call: calls.call,
    tell: calls.tell,
    end() {
      if (!wanted) calls.end();
      wanted = true;
      return gone.promise;
    },
    async terminate() {
      wanted = true;
      await worker.terminate();
    },
    kill(reason) {
      end = { ...end, reason };
      void worker.terminate();
    },
  });
}

/** The calls of one end that the other has not replied to, and those that have not left yet. */
export function createCalls<Kind extends string>(
  gather: ThreadOptions<unknown>['gather'],
  post: (batch: readonly Call[], transfer: readonly Transferable[]) => void,
) {
  const waiting = new Map<number, (outcome: Outcome<Kind>) => void>();
  let batch: Call[] = [];
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
  const add = (call: Call, patient: boolean) => {
    batch.push(call);
    if (leaving === 'now' || (patient && leaving === 'patiently')) return;
    leaving = patient ? 'patiently' : 'now';
    if (patient) setTimeout(flush, PATIENCE_MS);
    else if (gather === 'turn') setImmediate(flush);
    else queueMicrotask(flush);
  };
  const enter = (
    name: string,
    args: readonly unknown[],
    patient: boolean,
    settle: (outcome: Outcome<Kind>) => void,
  ): number => {
    last = (last % HIGHEST) + 1;
    if (ended !== undefined) settle({ kind: 'died', value: ended });
    else {
      waiting.set(last, settle);
      add([last, name, args], patient);
    }
    return last;
  };

  return {
    ask: (name: string, args: readonly unknown[], patient = false, transfer?: readonly Transferable[]) =>
      new Promise<Outcome<Kind>>((resolve) => {
        if (transfer) transfers.push(...transfer);
        enter(name, args, patient, resolve);
      }),
    call(
      name: string,
      args: readonly unknown[],
      settle: (outcome: Outcome<Kind>) => void,
      transfer?: readonly Transferable[],
    ) {
      if (transfer) transfers.push(...transfer);
      return enter(name, args, false, settle);
    },
    tell(name: string, args: readonly unknown[], patient = false) {
      if (ended === undefined) add([0, name, args], patient);
    },
    settle(replies: readonly Reply<Kind>[]) {
      for (const [n, kind, value] of replies) {
        waiting.get(n)?.({ kind, value });
        waiting.delete(n);
      }
    },
    end() {
      batch.push([0, END, []]);
      flush();
      ended = 'it ended';
    },
    giveUp(reason: string) {
      ended = reason;
      const lost = [...waiting.values()];
      waiting.clear();
      for (const settle of lost) settle({ kind: 'died', value: reason });
    },
  };
}

/** What a thread posts: `ready` once, then replies with or without news, and lines for the log. */
type Message<P extends Protocol> =
  | { readonly kind: 'ready'; readonly value: P['ready'] }
  | { readonly kind: 'replies'; readonly replies: readonly Reply<P['kind']>[]; readonly news: P['news'] | undefined }
  | {
      readonly kind: 'log';
      readonly level: 'info' | 'warn' | 'error' | 'debug';
      readonly event: EventName;
      readonly fields: Fields;
    };

/** The call by which `Thread.end` asks a thread to finish. */
const END = 'end';

/** The thread's end of the line. */
export interface Line<P extends Protocol> {
  /** Lines are written by the process. */
  readonly log: Log;
  reply(replies: readonly Reply<P['kind']>[], news?: P['news'], transfer?: readonly Transferable[]): void;
  /** Calls that arrived while others were done. */
  arrived(): readonly P['call'][];
}

/** What a thread does with its calls. */
interface Served<P extends Protocol> {
  readonly ready: P['ready'];
  take(calls: readonly P['call'][]): void;
  /** Everything was taken, and nothing more comes. */
  end?(): void;
}

/** Runs a thread: `open` prepares it with the data it was started with, and what it throws ends the thread. */
export function serveThread<P extends Protocol>(open: (data: P['data'], line: Line<P>) => Served<P>): void {
  if (!parentPort) return;
  const port: MessagePort = parentPort;
  const post = (message: Message<P>, transfer?: readonly Transferable[]) => port.postMessage(message, transfer);
  let ending = false;
  /** Without the last call, when that is the one that ends the thread. */
  const received = (calls: readonly P['call'][]): readonly P['call'][] => {
    if (calls.at(-1)?.[1] !== END) return calls;
    ending = true;
    return calls.slice(0, -1);
  };
  const at =
    (level: 'info' | 'warn' | 'error' | 'debug') =>
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
 * Calls a function of a table by its name. Arguments lose their types between threads: who asks checked them against
 * the same table.
 */
export function callByName(table: object, [, name, args]: Call): unknown {
  const found: unknown = Reflect.get(table, name);
  if (typeof found !== 'function') throw new TypeError(`there is no ${name} on this thread`);
  return Reflect.apply(found, table, args);
}
