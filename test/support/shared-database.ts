import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { systemClock } from '../../src/base/clock.ts';
import type { Log } from '../../src/base/log.ts';
import { openEmbedded } from '../../src/store/driver/embedded.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  type Row,
  StoreAway,
} from '../../src/store/driver/port.ts';
import { afterFile } from './cleanup.ts';
import { createWatch } from './clock.ts';
import { createTestLog } from './log.ts';
import { NO_FLOOR } from './room.ts';
import { tempDir } from './temp.ts';
import { PATIENCE } from './until.ts';

interface Shared {
  readonly database: Database;
  readonly opened: Map<CollectionSpec<Row>, Collection<Row>>;
  /** Tables whose rows are no longer those that it was filled with. */
  readonly written: Set<string>;
  handTo(log: Log): void;
  /** Makes its rows those of another file, or none. */
  fill(from: string | undefined): void;
  stop(): Promise<void>;
}

/** The free ones, and all of this file. */
const spare: Shared[] = [];
const all: Shared[] = [];
afterFile(async () => {
  spare.splice(0);
  for (const shared of all.splice(0)) await shared.stop();
});

/**
 * The real embedded store, empty or with the rows of another store's file. To open one takes a thread and a tenth of a
 * second, so the tests of a file hand one on to the next.
 */
export async function borrowDatabase(log: Log, rows?: string): Promise<Database> {
  const shared = spare.pop() ?? (await open());
  shared.handTo(log);
  shared.fill(rows);
  return lend(shared);
}

async function open(): Promise<Shared> {
  const nobody = createTestLog();
  let log: Log = nobody;
  const file = join(await tempDir(), 'store.db');
  const database = await openEmbedded(
    { file, timeoutMs: 5000 * PATIENCE, room: NO_FLOOR },
    {
      clock: systemClock,
      log: {
        debug: (...line) => log.debug(...line),
        info: (...line) => log.info(...line),
        warn: (...line) => log.warn(...line),
        error: (...line) => log.error(...line),
      },
    },
  );
  const beside = new DatabaseSync(file, { timeout: 5000 * PATIENCE });
  beside.exec('PRAGMA synchronous = OFF');
  let filledFrom: string | undefined;
  const shared: Shared = {
    database,
    opened: new Map(),
    written: new Set(),
    handTo(next) {
      log = next;
    },
    fill(from) {
      fill(beside, from, from === filledFrom ? shared.written : undefined);
      filledFrom = from;
      shared.written.clear();
    },
    async stop() {
      log = nobody;
      beside.close();
      await database.close();
    },
  };
  all.push(shared);
  return shared;
}

const TABLES = `SELECT "name" FROM main.sqlite_schema WHERE "type" = 'table' AND "name" NOT LIKE 'sqlite_%'`;

/** Of the tables of `only`, or of all. */
function fill(database: DatabaseSync, from: string | undefined, only: ReadonlySet<string> | undefined): void {
  if (only?.size === 0) return;
  const wanted = ({ name }: Record<string, unknown>) => only === undefined || only.has(String(name));
  const tables = database.prepare(TABLES).all().filter(wanted);
  if (from !== undefined) database.prepare('ATTACH ? AS "other"').run(from);
  database.exec('BEGIN IMMEDIATE');
  for (const { name } of tables) database.exec(`DELETE FROM main."${name}"`);
  if (from !== undefined)
    for (const { name, sql } of database
      .prepare(TABLES.replace('main.', 'other.').replace('"name"', '"name", "sql"'))
      .all()
      .filter(wanted)) {
      if (!tables.some((table) => table['name'] === name)) database.exec(String(sql));
      database.exec(`INSERT INTO main."${name}" ("id", "row") SELECT "id", "row" FROM other."${name}"`);
    }
  database.exec('COMMIT');
  if (from !== undefined) database.exec('DETACH "other"');
}

function lend(shared: Shared): Database {
  const watch = createWatch();
  let closing: Promise<void> | undefined;
  const giveBack = async () => {
    await watch.quiet();
    spare.push(shared);
  };
  /** What was closed cannot be used, although another test goes on with it. */
  const whileOpen = <Part extends object>(part: Part): Part =>
    Object.fromEntries(
      Object.entries(part).map(([name, call]) => [
        name,
        async (...args: unknown[]) => {
          if (closing) throw new StoreAway('the store is closed');
          return call(...args);
        },
      ]),
    ) as Part;
  const open = async <R extends Row>(spec: CollectionSpec<R>): Promise<Collection<R>> => {
    const known = shared.opened.get(spec as unknown as CollectionSpec<Row>);
    const collection = (known as unknown as Collection<R>) ?? (await shared.database.collection(spec));
    shared.opened.set(spec as unknown as CollectionSpec<Row>, collection as unknown as Collection<Row>);
    const { one, many, ...writes } = collection;
    const noted = Object.entries(writes).map(([name, write]) => [
      name,
      (...args: unknown[]) => {
        shared.written.add(spec.name);
        return (write as (...args: unknown[]) => unknown)(...args);
      },
    ]);
    return whileOpen(watch.over({ one, many, ...Object.fromEntries(noted) } as Collection<R>));
  };
  return {
    ...whileOpen(watch.over({ collection: open, ping: shared.database.ping })),
    left: shared.database.left,
    close: () => (closing ??= giveBack()),
  };
}
