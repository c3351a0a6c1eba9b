import { Worker } from 'node:worker_threads';
import { frozen } from '../../base/frozen.ts';
import type { Endpoint } from '../delivery.ts';
import type { Changes } from './changes.ts';
import { SpoolFault, SpoolTooNew } from './faults.ts';
import type { Loaded } from './open-file.ts';
import type { Rebuilt } from './rebuild.ts';

/** An answer of a thread; `died` when it ended before it gave one. */
export interface Reply {
  readonly kind: AnswerKind | 'died';
  /** Values lose their types between threads; who asks says what is answered (`WriterAsk`, `Queries`). */
  // biome-ignore lint/suspicious/noExplicitAny: see above
  readonly value: any;
}

/** One life of a thread, from main's side. */
export interface Thread {
  readonly loaded: Loaded | null;
  readonly rebuilt: Rebuilt | null;
  /** A patient question waits some milliseconds for others to travel with: a trip of its own costs both threads a wake-up, and the writer a sync. */
  ask(name: string, args: readonly unknown[], patient?: boolean): Promise<Reply>;
  /** Lets it finish what it was asked and waits for its end. */
  end(): Promise<void>;
}

export interface ThreadListener {
  /** Called before the promises of the answers that came with it. */
  news?(news: News): void;
  /** It ended and nobody asked for that. */
  died(reason: string): void;
}

/** Starts a thread and waits until it has opened the queue. */
export async function startThread(script: URL, data: ThreadData, listener: ThreadListener): Promise<Thread> {
  const worker = new Worker(script, { workerData: data });
  const questions = createQuestions((message) => worker.postMessage(message));
  const started = Promise.withResolvers<{ readonly loaded: Loaded | null; readonly rebuilt: Rebuilt | null }>();
  const gone = Promise.withResolvers<void>();
  let expected = true; // a thread that never got started has nothing to be missed
  let reason = 'it ended';

  worker.on('message', (message: Post) => {
    if (message.kind === 'started') {
      expected = false;
      started.resolve({ loaded: message.loaded, rebuilt: message.rebuilt });
    } else if (message.kind === 'failed') {
      started.reject(
        message.name === 'SpoolTooNew' ? new SpoolTooNew(message.message) : new SpoolFault(message.message),
      );
    } else {
      if (message.news) listener.news?.(message.news);
      questions.answer(message.answers);
    }
  });
  worker.on('error', (error) => {
    reason = error instanceof Error ? error.message : String(error);
  });
  worker.on('exit', () => {
    started.reject(new SpoolFault(reason));
    questions.giveUp(reason);
    gone.resolve();
    if (!expected) listener.died(reason);
  });

  const opened = await started.promise;
  return frozen({
    ...opened,
    ask: questions.ask,
    end() {
      if (!expected) questions.end();
      expected = true;
      return gone.promise;
    },
  });
}

/** How long a patient question waits at most. Nobody outside waits for it; after a crash it would be asked again. */
const PATIENCE_MS = 5;

/** What a thread was asked and has not answered. Questions of one turn of the event loop travel together. */
function createQuestions(post: (message: readonly Ask[] | 'end') => void) {
  const waiting = new Map<number, (reply: Reply) => void>();
  let outbox: Ask[] = [];
  let leaving: 'no' | 'soon' | 'now' = 'no';
  let count = 0;
  let over = false;
  const flush = () => {
    const batch = outbox;
    outbox = [];
    leaving = 'no';
    if (batch.length > 0) post(batch);
  };
  const leave = (patient: boolean) => {
    if (leaving === 'now' || (patient && leaving === 'soon')) return;
    leaving = patient ? 'soon' : 'now';
    if (patient) setTimeout(flush, PATIENCE_MS);
    else setImmediate(flush);
  };
  return {
    ask: (name: string, args: readonly unknown[], patient = false) =>
      new Promise<Reply>((resolve) => {
        if (over) return resolve({ kind: 'died', value: 'it ended' });
        waiting.set(++count, resolve);
        outbox.push([count, name, args]);
        leave(patient);
      }),
    answer(answers: readonly Answer[]) {
      for (const [n, kind, value] of answers) {
        waiting.get(n)?.({ kind, value });
        waiting.delete(n);
      }
    },
    end() {
      flush();
      over = true;
      post('end');
    },
    giveUp(reason: string) {
      over = true;
      for (const settle of waiting.values()) settle({ kind: 'died', value: reason });
      waiting.clear();
    },
  };
}

/** What main asks of a thread: the name of a function there and its arguments, numbered so that the answer finds back. */
export type Ask = readonly [n: number, name: string, args: readonly unknown[]];

/**
 * done: with what the function answered, after the sync · full: no space, nothing of it is kept · fault: refused, nothing
 * of it is kept · again: not its own fault, ask once more later · damaged: the file has to be rebuilt first.
 */
export type AnswerKind = 'done' | 'full' | 'fault' | 'again' | 'damaged';
export type Answer = readonly [n: number, kind: AnswerKind, value: unknown];

/** What the writer reports along with its answers. */
export interface News {
  /** Set when the file cannot be trusted from now on. */
  readonly broken?: { readonly reason: string; readonly damaged: boolean };
  /** How many more, or fewer, wait for each endpoint. */
  readonly shifts?: readonly (readonly [endpoint: number, more: number])[];
  readonly endpoints?: readonly EndpointRow[];
  /** Everything anew: another process changed the file, or it was rebuilt. */
  readonly loaded?: Loaded;
  readonly commit?: CommitFigures;
}

/** One commit: milliseconds with its sync, what it wrote, and how many of that were new messages. */
export interface CommitFigures {
  readonly ms: number;
  readonly writes: number;
  readonly messages: number;
}

/** An endpoint that is new, or whose memory changed. */
export interface EndpointRow extends Endpoint {
  readonly key: number;
  readonly memory: string | null;
}

/** What a thread posts: first `started` or `failed`, then answers. */
export type Post =
  | { readonly kind: 'started'; readonly loaded: Loaded | null; readonly rebuilt: Rebuilt | null }
  | { readonly kind: 'failed'; readonly name: string; readonly message: string }
  | { readonly kind: 'answers'; readonly answers: readonly Answer[]; readonly news: News | null };

/** What the writer thread can be asked beside the changes; these stand outside the common transaction. */
export interface Duties {
  /** Looks whether another process changed the file. */
  poll(): void;
  /** Moves everything that can be read into a new file. */
  rebuild(now: number, keepAside: boolean): Rebuilt;
}

export type WriterAsk = Changes & Duties;

/** Where the threads find their things. */
export interface ThreadData {
  readonly dir: string;
  readonly role: 'daemon' | 'visitor';
  /** For the name of a damaged file that is kept aside. */
  readonly now: number;
}

/** Calls a function by its name. Arguments lose their types between threads: main checked them against the same table. */
export function call(table: object, [, name, args]: Ask): unknown {
  const found: unknown = Reflect.get(table, name);
  if (typeof found !== 'function') throw new TypeError(`the queue knows no ${name}`);
  return Reflect.apply(found, table, args);
}
