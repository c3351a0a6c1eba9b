import { Worker } from 'node:worker_threads';
import type { Clock } from '../base/clock.ts';
import { DuplicateRow, StoreAway } from './collection.ts';
import { within } from './deadline.ts';
import type { Durability, Job, Reply, ThreadData } from './embedded-thread.ts';
import type { Presence } from './presence.ts';
import type { Statement, TablePlan } from './sql.ts';

/** Rows as the thread answers them: id and JSON. */
export type Rows = readonly (readonly [string, string])[];

/** The application's end of the thread that owns the file. */
export interface Link {
  /** Resolves when the file is open; throws `StoreAway` with what SQLite said otherwise. */
  open(): Promise<void>;
  /** Makes a table, now and whenever the thread has to be started again. */
  plan(plan: TablePlan): Promise<void>;
  /** Throws `StoreAway` when the thread died or was too slow: a write may then have been done or not. */
  read(statement: Statement): Promise<Rows>;
  /** Resolves after the sync. On a full disk what `grows` fails, and the rest is given the room that was kept for it. Throws `DuplicateRow` when a unique index said no. */
  write(statement: Statement, grows: boolean): Promise<Rows>;
  close(): Promise<void>;
}

export interface LinkSettings {
  readonly file: string;
  readonly timeoutMs: number;
}

interface Pending {
  resolve(rows: Rows): void;
  reject(error: Error): void;
}

/** A thread, who waits for it, and what is about to be sent to it. */
interface Running {
  readonly worker: Worker;
  readonly opened: Promise<Durability>;
  readonly pending: Map<number, Pending>;
  outbox: Job[];
}

// A job as the caller gives it: the link numbers it.
type Unnumbered = Job extends infer J ? (J extends Job ? Omit<J, 'n'> : never) : never;

export function createLink(
  { clock, presence }: { readonly clock: Clock; readonly presence: Presence },
  settings: LinkSettings,
): Link {
  const plans: TablePlan[] = [];
  let current: Running | null = null;
  let closed = false;
  let last = 0;

  /** The thread there is, or another one when that died. */
  const running = (): Running => {
    if (current) return current;
    const made = start({ file: settings.file, busyMs: settings.timeoutMs, plans }, () => {
      if (current === made) current = null;
    });
    current = made;
    return made;
  };

  const ask = async (job: Unnumbered): Promise<Rows> => {
    if (closed) throw new StoreAway('the store is closed');
    const thread = running();
    const n = ++last;
    try {
      const rows = await within(clock, settings.timeoutMs, post(thread, { ...job, n }), () =>
        send(thread, { kind: 'forget', n }),
      );
      presence.here();
      return rows;
    } catch (error) {
      if (error instanceof StoreAway) presence.away(error.message);
      throw error;
    }
  };

  return Object.freeze({
    async open() {
      presence.here({ ...(await running().opened) });
    },
    async plan(plan: TablePlan) {
      await ask({ kind: 'plan', plan });
      plans.push(plan);
    },
    read: (statement: Statement) => ask({ kind: 'read', ...statement }),
    write: (statement: Statement, grows: boolean) => ask({ kind: 'write', grows, ...statement }),
    async close() {
      if (closed) return;
      closed = true;
      const thread = current;
      if (!thread) return;
      const exit = new Promise((resolve) => thread.worker.once('exit', resolve));
      await post(thread, { kind: 'close', n: ++last }).catch(() => undefined);
      await exit;
    },
  });
}

/** Starts a thread; `ended` is called when it is no more, before those who wait for it are told. */
function start(data: ThreadData, ended: () => void): Running {
  const worker = new Worker(new URL('./embedded-thread.ts', import.meta.url), { workerData: data });
  const pending = new Map<number, Pending>();
  const opened = Promise.withResolvers<Durability>();
  opened.promise.catch(() => undefined); // only the first start is waited for
  let reason = 'the thread ended';
  worker.on('error', (error) => {
    reason = `${data.file}: ${error instanceof Error ? error.message : String(error)}`;
  });
  worker.on('exit', () => {
    ended();
    const away = new StoreAway(reason);
    opened.reject(away);
    for (const job of pending.values()) job.reject(away);
    pending.clear();
  });
  worker.on('message', (replies: readonly Reply[]) => {
    for (const reply of replies) {
      if ('opened' in reply) opened.resolve(reply.opened);
      else settle(pending, reply);
    }
  });
  return { worker, opened: opened.promise, pending, outbox: [] };
}

function post(thread: Running, job: Job): Promise<Rows> {
  const { promise, resolve, reject } = Promise.withResolvers<Rows>();
  thread.pending.set(job.n, { resolve, reject });
  send(thread, job);
  return promise;
}

/** What one turn of the loop asks travels as one message. To a thread that is no more it goes nowhere. */
function send(thread: Running, job: Job): void {
  if (thread.outbox.push(job) > 1) return;
  queueMicrotask(() => {
    thread.worker.postMessage(thread.outbox);
    thread.outbox = [];
  });
}

function settle(pending: Map<number, Pending>, reply: Exclude<Reply, { opened: Durability }>): void {
  const job = pending.get(reply.n);
  pending.delete(reply.n);
  if ('rows' in reply) job?.resolve(reply.rows);
  else if (reply.failure === 'duplicate') job?.reject(new DuplicateRow(reply.message));
  else job?.reject(reply.failure === 'away' ? new StoreAway(reply.message) : new Error(`store: ${reply.message}`));
}
