import { Worker } from 'node:worker_threads';
import { SpoolFault, SpoolTooNew } from './faults.ts';
import type { Loaded } from './endpoints.ts';
import type { AnswerKind, Ask, News, Post, ThreadData } from './protocol.ts';
import type { Rebuilt } from './rebuild.ts';

/** An answer of a thread; `died` when it ended before it gave one. */
export interface Reply {
  readonly kind: AnswerKind | 'died';
  readonly value: unknown;
}

/** One life of a thread, from main's side. */
export interface Thread {
  readonly loaded: Loaded | null;
  readonly rebuilt: Rebuilt | null;
  ask(name: string, args: readonly unknown[]): Promise<Reply>;
  /** Lets it finish what it was asked and waits for its end. */
  end(): Promise<void>;
}

export interface ThreadListener {
  /** Called before the promises of the answers that came with it. */
  news?(news: News): void;
  /** It ended and nobody asked for that. */
  died(reason: string): void;
}

/** Starts a thread and waits until it has opened the queue. Questions of one turn of the event loop travel together. */
export function startThread(script: URL, data: ThreadData, listener: ThreadListener): Promise<Thread> {
  const worker = new Worker(script, { workerData: data });
  const waiting = new Map<number, (reply: Reply) => void>();
  const gone = Promise.withResolvers<void>();
  let outbox: Ask[] = [];
  let count = 0;
  let state: 'starting' | 'running' | 'ending' | 'dead' = 'starting';
  let reason = 'it ended';

  const flush = () => {
    const batch = outbox;
    outbox = [];
    if (state === 'running' || state === 'ending') worker.postMessage(batch);
  };
  const ask = (name: string, args: readonly unknown[]) => new Promise<Reply>((resolve) => {
    if (state !== 'running') return resolve({ kind: 'died', value: null });
    waiting.set(++count, resolve);
    if (outbox.push([count, name, args]) === 1) setImmediate(flush);
  });
  const end = () => {
    if (state === 'running') {
      flush();
      state = 'ending';
      worker.postMessage('end');
    }
    return gone.promise;
  };

  return new Promise<Thread>((resolve, reject) => {
    worker.on('message', (message: Post) => {
      if (message.kind === 'started') {
        state = 'running';
        return resolve(Object.freeze({ loaded: message.loaded, rebuilt: message.rebuilt, ask, end }));
      }
      if (message.kind === 'failed') {
        state = 'ending';
        return reject(message.name === 'SpoolTooNew' ? new SpoolTooNew(message.message) : new SpoolFault(message.message));
      }
      if (message.news) listener.news?.(message.news);
      for (const [n, kind, value] of message.answers) {
        waiting.get(n)?.({ kind, value });
        waiting.delete(n);
      }
    });
    worker.on('error', (error) => { reason = error instanceof Error ? error.message : String(error); });
    worker.on('exit', () => {
      const expected = state === 'ending';
      if (state === 'starting') reject(new SpoolFault(reason));
      state = 'dead';
      for (const settle of waiting.values()) settle({ kind: 'died', value: reason });
      waiting.clear();
      gone.resolve();
      if (!expected) listener.died(reason);
    });
  });
}
