import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { createDiskSpace, type DiskSpace, type DiskSpaceSettings, readDiskSpace } from '../../base/disk-space.ts';
import { errorText } from '../../base/errors.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import { moduleUrl } from '../../base/module-url.ts';
import { makePrivate } from '../../base/private-files.ts';
import { type Outcome, startThread, type Thread } from '../../base/worker.ts';
import type { StoreCalls, StoreProtocol } from './embedded-thread.ts';
import {
  type Collection,
  type CollectionSpec,
  createPresence,
  type Database,
  DuplicateRow,
  type Filter,
  filterTerms,
  type PageOptions,
  type Presence,
  pings,
  type Row,
  StoreAway,
  StoreFull,
  toSlice,
  within,
} from './port.ts';
import {
  addSql,
  changeSql,
  insertSql,
  removeAllSql,
  removeSql,
  type Statement,
  selectSql,
  type TablePlan,
  toPlan,
} from './sql.ts';
import {
  checkId,
  fresh,
  markDate,
  type Shape,
  type StoredFields,
  shapeOf,
  toAmounts,
  toFields,
  toPatch,
  toRow,
} from './values.ts';

interface EmbeddedSettings {
  /** Created if missing. */
  readonly file: string;
  /** How long an operation may take before the store counts as unavailable. Milliseconds. */
  readonly timeoutMs: number;
  /** Disk space to keep free. */
  readonly room: DiskSpaceSettings;
}

/** Bytes of JSON in a patch that cannot make a row much larger, even if every field grows. */
const SMALL_PATCH = 4096;
/** A write goes to the log first and then to the file, and changes pages of its indexes too. */
const COPIES = 2;
const INDEX_BYTES = 16_384;

/**
 * Opens the embedded store: one SQLite file (WAL, synchronous=FULL), a table per collection, rows as JSON, and a
 * generated column and an index for each declared one. It runs in a thread, so that a disk sync never blocks the event
 * loop. Another process, such as the command line, may use the file at the same time.
 *
 * The guarantees when a response is lost (the thread died, or was too slow) are those of MongoDB, see mongo.ts.
 *
 * `room` is watched by the caller; without it, the store watches the disk by its settings.
 */
export async function openEmbedded(
  settings: EmbeddedSettings,
  { log, clock, room: watched }: { readonly log: Log; readonly clock: Clock; readonly room?: DiskSpace },
): Promise<Database> {
  await mkdir(dirname(settings.file), { recursive: true });
  makePrivate(settings.file); // it holds keys
  const presence = createPresence(log, 'embedded');
  const room =
    watched ??
    createDiskSpace('store', settings.room, { clock, log, look: () => readDiskSpace(dirname(settings.file)) });
  if (!watched) await room.start();
  const link = createLink({ clock, log, presence }, settings);
  await link.open().catch((error: unknown) => {
    if (!watched) room.stop();
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
    left: room.left,
    async ping() {
      await alive.add('ping', { count: 1 }, { count: 0 });
    },
    async close() {
      if (!watched) room.stop();
      await link.close();
    },
  });
}

function createCollection<R extends Row>(
  link: Link,
  shape: Shape,
  room: Pick<DiskSpace, 'reserve' | 'look'>,
): Collection<R> {
  /** Runs a write that grows the file: reserves its bytes, and refuses it if the disk is nearly full. */
  const grow = async (statement: Statement) => {
    const bytes = COPIES * sizeOf(statement) + INDEX_BYTES;
    const done = room.reserve(bytes) ?? (await room.look().then(() => room.reserve(bytes)));
    if (!done) throw new StoreFull();
    try {
      return await link.write(statement, true);
    } finally {
      done();
    }
  };
  const write = (statement: Statement, grows: boolean) => (grows ? grow(statement) : link.write(statement, false));
  const rows = (answer: Rows) => answer.map(([id, text]) => toRow<R>(shape, id, readFields(text)));
  const first = (answer: Rows) => rows(answer)[0];
  const many = async (filter: Filter<R>, page: PageOptions<R> = {}) => {
    const slice = toSlice(shape, page);
    return rows(await link.read(selectSql(shape, filterTerms(shape, filter), slice)));
  };
  const one = async (filter: Filter<R>) => (await many(filter, { limit: 1 }))[0];
  const insert = async (row: R) => {
    const statement = insertSql(shape, checkId(shape, row.id), toFields(shape, row, markDate));
    try {
      await write(statement, !shape.upkeep);
      return 'inserted';
    } catch (error) {
      if (error instanceof DuplicateRow) return 'duplicate';
      throw error;
    }
  };
  return frozen<Collection<R>>({
    one,
    many,
    insert,
    // The thread writes waiting statements together; a full disk refuses all of them.
    insertAll: (all) => Promise.all(all.map(insert)),
    async change(filter, patch) {
      const fields = toPatch(shape, patch, markDate);
      const terms = filterTerms(shape, filter);
      if (Object.keys(fields).length === 0) return one(filter);
      const statement = changeSql(shape, terms, fields);
      return first(await write(statement, !shape.upkeep && sizeOf(statement) > SMALL_PATCH));
    },
    async add(id, amounts, row) {
      const sums = toAmounts(shape, amounts);
      // Never refused; but if the disk is full, deletions come first.
      const answer = await link.write(
        addSql(shape, checkId(shape, id), sums, fresh(shape, row, sums, markDate)),
        !shape.upkeep,
      );
      const made = first(answer);
      if (!made) throw new Error(`${shape.name}: add returned no row`);
      return made;
    },
    async removeAll(filter) {
      return (await write(removeAllSql(shape, filterTerms(shape, filter)), false)).length;
    },
    async remove(filter) {
      return first(await write(removeSql(shape, filterTerms(shape, filter)), false));
    },
  });
}

/** Bytes of text in the parameters. */
function sizeOf({ params }: Statement): number {
  return params.reduce<number>((size, param) => size + (typeof param === 'string' ? Buffer.byteLength(param) : 0), 0);
}

/** The JSON of a row, written by sql.ts. */
function readFields(text: string): StoredFields {
  const fields: StoredFields = JSON.parse(text);
  return fields;
}

/** Rows as the thread returns them: id and JSON. */
type Rows = readonly (readonly [string, string])[];

/** The main thread's side of the thread that owns the file. */
type Link = ReturnType<typeof createLink>;

const SCRIPT = moduleUrl('./embedded-thread.ts', import.meta.url);
/** The thread holds only rows as text, which are short-lived. */
const YOUNG_MB = 12;

function createLink(
  { clock, log, presence }: { readonly clock: Clock; readonly log: Log; readonly presence: Presence },
  { file, timeoutMs }: Pick<EmbeddedSettings, 'file' | 'timeoutMs'>,
) {
  const plans: TablePlan[] = [];
  let current: Thread<StoreProtocol> | undefined;
  let closed = false;
  const away = (reason: string) => new StoreAway(`${file}: ${reason}`);

  /** The running thread; starts another one if it died. */
  const running = (): Thread<StoreProtocol> => {
    current ??= startThread<StoreProtocol>(
      { script: SCRIPT, data: { file, busyMs: timeoutMs, plans }, youngMb: YOUNG_MB, gather: 'soon' },
      { log },
      {
        ended() {
          current = undefined;
        },
      },
    );
    return current;
  };

  const toRows = ({ kind, value }: Outcome<StoreProtocol['kind']>): Rows => {
    if (kind === 'done') return value;
    if (kind === 'duplicate') throw new DuplicateRow(value);
    if (kind === 'fault') throw new Error(`store: ${value}`);
    throw kind === 'died' ? away(value) : new StoreAway(value);
  };

  const ask = async <K extends keyof StoreCalls>(name: K, ...args: StoreCalls[K]): Promise<Rows> => {
    if (closed) throw new StoreAway('the store is closed');
    const thread = running();
    const { promise, resolve } = Promise.withResolvers<Outcome<StoreProtocol['kind']>>();
    const n = thread.call(name, args, resolve);
    try {
      const rows = toRows(await within(clock, timeoutMs, promise, () => thread.tell('forget', [n])));
      presence.here();
      return rows;
    } catch (error) {
      if (error instanceof StoreAway) presence.away(error.message);
      throw error;
    }
  };

  return frozen({
    /** Resolves when the file is open; otherwise throws `StoreAway` with SQLite's error. */
    async open() {
      const durability = await running().ready.catch((error: unknown) => {
        throw away(errorText(error));
      });
      presence.here({ ...durability });
    },
    /** Creates a table, now and whenever the thread is restarted. */
    async plan(plan: TablePlan) {
      await ask('plan', plan);
      plans.push(plan);
    },
    /** Throws `StoreAway` if the thread died or was too slow. */
    read: (statement: Statement): Promise<Rows> => ask('read', statement),
    /**
     * Resolves after the sync. On a full disk, statements that yield fail, and others use the reserve. Throws
     * `DuplicateRow` on a unique index violation, and `StoreAway` like `read`: the write may have been done then.
     */
    write: (statement: Statement, yields: boolean): Promise<Rows> => ask('write', statement, yields),
    async close() {
      closed = true;
      await current?.end();
    },
  });
}
