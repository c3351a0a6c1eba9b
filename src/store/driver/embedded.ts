import { mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { Worker } from 'node:worker_threads';
import { type Clock, systemClock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { createRoom, lookAtDisk, type Room, type RoomSettings } from '../../base/room.ts';
import type { Durability, Job, Reply, ThreadData } from './embedded-thread.ts';
import {
  type Collection,
  type CollectionSpec,
  createPresence,
  type Database,
  DuplicateRow,
  type Filter,
  type Page,
  type Presence,
  pings,
  type Row,
  StoreAway,
  StoreFull,
  toSlice,
  toTerms,
  within,
} from './port.ts';
import { addSql, changeSql, insertSql, removeSql, type Statement, selectSql, type TablePlan, toPlan } from './sql.ts';
import {
  checkId,
  type Fields,
  fresh,
  markDate,
  type Shape,
  shapeOf,
  toAmounts,
  toFields,
  toPatch,
  toRow,
} from './values.ts';

/** `file` is made where it is missing; `timeoutMs` is how long an operation may take before the store counts as away. */
export interface EmbeddedSettings extends LinkSettings {
  /** Free disk that is left alone. */
  readonly room: RoomSettings;
}

/** A patch of so many bytes of JSON makes no row much larger, also when each of its fields is. */
const SMALL_PATCH = 4096;

/**
 * The embedded store: one SQLite file (WAL, synchronous=FULL), a table a collection, a row as JSON, a generated column and an
 * index for each declared one. It lives in a thread, so that a sync of the disk never stops the event loop. Another process,
 * such as the command line, may use the file at the same time.
 *
 * What holds when an answer is lost (the thread died, or was too slow) is what holds for MongoDB, see mongo.ts.
 */
export async function openEmbedded(
  settings: EmbeddedSettings,
  deps: { readonly log: Log; readonly clock?: Clock },
): Promise<Database> {
  await makeFile(settings.file);
  const presence = createPresence(deps.log, 'embedded');
  const clock = deps.clock ?? systemClock;
  const room = createRoom('store', settings.room, {
    clock,
    log: deps.log,
    look: () => lookAtDisk(dirname(settings.file)),
  });
  await room.start();
  const link = createLink({ clock, presence }, settings);
  await link.open().catch((error: unknown) => {
    room.stop();
    throw error;
  });
  const collection = async <R extends Row>(spec: CollectionSpec<R>) => {
    const shape = shapeOf(spec);
    await link.plan(toPlan(shape, spec.indexes, spec.unique ?? []));
    return createCollection<R>(link, shape, room);
  };
  const alive = await collection(pings);
  return frozen({
    collection,
    async ping() {
      await alive.add('ping', { count: 1 }, { count: 0 });
    },
    async close() {
      room.stop();
      await link.close();
    },
  });
}

/** SQLite gives its log the rights of the file; nobody else may read the keys that are in it. */
async function makeFile(file: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await (await open(file, 'a', 0o600)).close();
}

function createCollection<R extends Row>(link: Link, shape: Shape, room: Pick<Room, 'has'>): Collection<R> {
  /** What makes the file grow is refused where the disk has no room, and gives way to deleting where it has none at all. */
  const write = (statement: Statement, grows: boolean) => {
    if (grows && !room.has()) throw new StoreFull();
    return link.write(statement, grows);
  };
  const rows = (answer: Rows) => answer.map(([id, text]) => toRow<R>(shape, id, readFields(text)));
  const first = (answer: Rows) => rows(answer)[0];
  const many = async (filter: Filter<R>, page: Page<R> = {}) => {
    const slice = toSlice(shape, page);
    return rows(await link.read(selectSql(shape, toTerms(shape, filter), slice)));
  };
  const one = async (filter: Filter<R>) => (await many(filter, { limit: 1 }))[0];
  return frozen({
    one,
    many,
    async insert(row) {
      const statement = insertSql(shape, checkId(shape, row.id), toFields(shape, row, markDate));
      try {
        await write(statement, !shape.upkeep);
        return 'inserted';
      } catch (error) {
        if (error instanceof DuplicateRow) return 'duplicate';
        throw error;
      }
    },
    async change(filter, patch) {
      const fields = toPatch(shape, patch, markDate);
      const terms = toTerms(shape, filter);
      if (Object.keys(fields).length === 0) return one(filter);
      const statement = changeSql(shape, terms, fields);
      return first(await write(statement, !shape.upkeep && sizeOf(statement) > SMALL_PATCH));
    },
    async add(id, amounts, row) {
      const sums = toAmounts(shape, amounts);
      const answer = await write(addSql(shape, checkId(shape, id), sums, fresh(shape, row, sums, markDate)), false);
      const made = first(answer);
      if (!made) throw new Error(`${shape.name}: no row after an addition`);
      return made;
    },
    async remove(filter) {
      return first(await write(removeSql(shape, toTerms(shape, filter)), false));
    },
  });
}

/** Characters of the text among the parameters. */
function sizeOf({ params }: Statement): number {
  return params.reduce<number>((size, param) => size + (typeof param === 'string' ? param.length : 0), 0);
}

/** A row's JSON is our own, written by sql.ts. */
function readFields(text: string): Fields {
  const fields: Fields = JSON.parse(text);
  return fields;
}

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

  return frozen({
    async open() {
      presence.here({ ...(await running().opened) });
    },
    async plan(plan) {
      await ask({ kind: 'plan', plan });
      plans.push(plan);
    },
    read: (statement) => ask({ kind: 'read', ...statement }),
    write: (statement, grows) => ask({ kind: 'write', grows, ...statement }),
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
