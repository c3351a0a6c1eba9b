import { mkdir, open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemClock, type Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { DuplicateRow, type Collection, type CollectionSpec, type Database, type Filter, type Page, type Patch, type Row } from './collection.ts';
import { createLink, type Link, type LinkSettings, type Rows } from './embedded-link.ts';
import { toSlice, toTerms } from './filter.ts';
import { pings } from './pings.ts';
import { createPresence } from './presence.ts';
import { addSql, changeSql, insertSql, removeSql, selectSql, toPlan } from './sql.ts';
import { checkId, fresh, markDate, shapeOf, toAmounts, toFields, toPatch, toRow, type Fields, type Shape } from './values.ts';

/** `file` is made where it is missing; `timeoutMs` is how long an operation may take before the store counts as away. */
export type EmbeddedSettings = LinkSettings;

/**
 * The embedded store: one SQLite file (WAL, synchronous=FULL), a table a collection, a row as JSON, a generated column and an
 * index for each declared one. It lives in a thread, so that a sync of the disk never stops the event loop. Another process,
 * such as the command line, may use the file at the same time.
 *
 * What holds when an answer is lost (the thread died, or was too slow) is what holds for MongoDB, see mongo.ts.
 */
export async function openEmbedded(settings: EmbeddedSettings, deps: { readonly log: Log; readonly clock?: Clock }): Promise<Database> {
  await makeFile(settings.file);
  const presence = createPresence(deps.log, 'embedded');
  const link = createLink({ clock: deps.clock ?? systemClock, presence }, settings);
  await link.open();
  const collection = async <R extends Row>(spec: CollectionSpec<R>) => {
    const shape = shapeOf(spec);
    await link.plan(toPlan(shape, spec.indexes, spec.unique ?? []));
    return createCollection<R>(link, shape);
  };
  const alive = await collection(pings);
  return Object.freeze({
    collection,
    async ping() { await alive.add('ping', { count: 1 }, { count: 0 }); },
    close: () => link.close(),
  });
}

/** SQLite gives its log the rights of the file; nobody else may read the keys that are in it. */
async function makeFile(file: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true });
  await (await open(file, 'a', 0o600)).close();
}

function createCollection<R extends Row>(link: Link, shape: Shape): Collection<R> {
  const rows = (answer: Rows) => answer.map(([id, text]) => toRow<R>(shape, id, readFields(text)));
  const first = (answer: Rows) => rows(answer)[0];
  const many = async (filter: Filter<R>, page: Page<R> = {}) => {
    const slice = toSlice(shape, page);
    return rows(await link.read(selectSql(shape, toTerms(shape, filter), slice)));
  };
  const one = async (filter: Filter<R>) => (await many(filter, { limit: 1 }))[0];
  return Object.freeze({
    one,
    many,
    async insert(row: R) {
      const statement = insertSql(shape, checkId(shape, row.id), toFields(shape, row, markDate));
      try {
        await link.write(statement);
        return 'inserted';
      } catch (error) {
        if (error instanceof DuplicateRow) return 'duplicate';
        throw error;
      }
    },
    async change(filter: Filter<R>, patch: Patch<R>) {
      const fields = toPatch(shape, patch, markDate);
      const terms = toTerms(shape, filter);
      return Object.keys(fields).length > 0 ? first(await link.write(changeSql(shape, terms, fields))) : one(filter);
    },
    async add(id: string, amounts: { readonly [F in keyof R]?: number }, row: Omit<R, 'id'>) {
      const sums = toAmounts(shape, amounts);
      const answer = await link.write(addSql(shape, checkId(shape, id), sums, fresh(shape, row, sums, markDate)));
      const made = first(answer);
      if (!made) throw new Error(`${shape.name}: no row after an addition`);
      return made;
    },
    async remove(filter: Filter<R>) { return first(await link.write(removeSql(shape, toTerms(shape, filter)))); },
  });
}

/** A row's JSON is our own, written by sql.ts. */
function readFields(text: string): Fields {
  const fields: Fields = JSON.parse(text);
  return fields;
}
