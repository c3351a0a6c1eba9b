import { hash } from 'node:crypto';
import { mapConcurrently } from '../base/concurrency.ts';
import { type Collection, type CollectionSpec, type Database, type Row, StoreAway, wrapped } from './driver/port.ts';
import { COPYING } from './rows/hosts.ts';
import { COLLECTIONS } from './store.ts';
import { usage } from './usage.ts';

/** A row of any collection. All fields are copied, even those that this version does not know. */
type AnyRow = Row & Readonly<Record<string, unknown>>;

/** Every collection with rows that matter; `pings` has none. */
export const STORED = [...Object.values(COLLECTIONS), usage].map((spec): CollectionSpec<AnyRow> => ({ ...spec }));

/** Rows that are read together. */
const PAGE = { limit: 100, bytes: 8 * 1024 ** 2 };

/** The progress of a copy, for people. */
export interface Progress {
  readonly collection: string;
  readonly doing: 'copying' | 'checking';
  readonly rows: number;
}

/** The rows copied of a collection, and their digest, which is the same on both sides. */
export type Copied = Readonly<Awaited<ReturnType<typeof copyRows>>>;

/** A copy that ended because the operator must decide how to continue. */
export class CopyRefused extends Error {
  override readonly name = 'CopyRefused';
}

/**
 * Copies every row of `from` to `to`, then reads both again and compares them. It may be interrupted at any point, and
 * continues with `resume`: rows that are already in `to` must equal those of `from`; nothing there is ever changed.
 * Until both sides are found to be equal, a row in `to` keeps daemons and commands out (`checkFormat`). Throws
 * `CopyRefused` if `to` has other rows, or if `from` changed meanwhile, and `StoreAway`, which names the side.
 */
export async function copyStore(
  { from, to }: { readonly from: Database; readonly to: Database },
  { resume, onProgress }: { readonly resume: boolean; readonly onProgress: (progress: Progress) => void },
): Promise<readonly Copied[]> {
  const [source, target] = [named('FROM', from), named('TO', to)];
  const pairs: Pair[] = [];
  for (const spec of STORED)
    pairs.push({ spec, from: await source.collection(spec), to: await target.collection(spec) });
  const [marks, marksOfFrom] = [await target.collection(MARKS), await source.collection(MARKS)];
  if (await marksOfFrom.one(MARK))
    throw new CopyRefused('FROM is not complete: a copy into it was interrupted. Finish that copy first (--continue)');
  if (!resume) await mustBeEmpty(pairs);
  await marks.insert({ ...MARK, count: 1 });
  const copied: Copied[] = [];
  for (const pair of pairs) copied.push(await copyRows(pair, onProgress));
  for (const [at, pair] of pairs.entries()) await compare(pair, copied[at], onProgress);
  await marks.remove(MARK);
  return copied;
}

const MARKS = COLLECTIONS.revisions;
const MARK = { id: COPYING };

interface Pair {
  readonly spec: CollectionSpec<AnyRow>;
  readonly from: Collection<AnyRow>;
  readonly to: Collection<AnyRow>;
}

/** Wraps a database so that its `StoreAway` names the side. */
function named(side: 'FROM' | 'TO', database: Database): Pick<Database, 'collection'> {
  const run = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      if (error instanceof StoreAway) throw new StoreAway(`${side} is unavailable: ${error.message}`, { cause: error });
      throw error;
    }
  };
  const { collection } = wrapped(database, (_, work) => run(work));
  return { collection: (spec) => run(() => collection(spec)) };
}

async function mustBeEmpty(pairs: readonly Pair[]): Promise<void> {
  const filled: string[] = [];
  for (const { spec, to } of pairs) if (await to.one({})) filled.push(spec.name);
  if (filled.length > 0)
    throw new CopyRefused(
      `TO is not empty (${filled.join(', ')}). If an earlier copy of the same store was interrupted, add --continue`,
    );
}

async function copyRows({ spec, from, to }: Pair, onProgress: (progress: Progress) => void) {
  const sum = createSum(spec);
  let there = 0;
  for await (const rows of pagesOf(spec, from)) {
    // One query for the whole page: after an interruption most of a collection may be there.
    const ids = rows.map(({ id }) => id);
    const before = new Map((await to.many({ id: { in: ids } })).map((row) => [row.id, row]));
    await mapConcurrently(rows, async (row) => {
      const found = before.get(row.id) ?? (await insert(spec, to, row));
      if (found && digestOf(spec, found) !== digestOf(spec, row)) throw different(spec, row);
      sum.add(row);
    });
    there += before.size;
    onProgress({ collection: spec.name, doing: 'copying', rows: sum.rows() });
  }
  // `there`: the number of rows that were in TO before.
  return { collection: spec.name, rows: sum.rows(), there, digest: sum.text() };
}

/** Inserts a row. Returns the existing one instead, for instance if the answer to an earlier insert was lost. */
async function insert(spec: CollectionSpec<AnyRow>, to: Collection<AnyRow>, row: AnyRow): Promise<AnyRow | undefined> {
  try {
    if ((await to.insert(row)) === 'inserted') return undefined;
  } catch (error) {
    if (error instanceof TypeError) throw new CopyRefused(`${spec.name}, row ${row.id}: ${error.message}`);
    throw error;
  }
  const found = await to.one({ id: row.id });
  if (found) return found;
  throw new CopyRefused(`${spec.name}: TO has another row with the unique values of ${row.id}; copy to an empty store`);
}

const different = (spec: CollectionSpec<AnyRow>, { id }: Row) =>
  new CopyRefused(
    `${spec.name}: row ${id} is in TO, and is not that of FROM: TO is another store, or one of them changed since; ` +
      'copy to an empty store',
  );

/** Reads both sides again, in parallel. Rows written meanwhile show as differences. */
async function compare(
  { spec, from, to }: Pair,
  copied: Copied | undefined,
  onProgress: (progress: Progress) => void,
): Promise<void> {
  const [source, target] = await Promise.all([sumOf(spec, from, onProgress), sumOf(spec, to)]);
  if (source.text() !== copied?.digest)
    throw new CopyRefused(
      `${spec.name}: FROM changed during the copy; stop every daemon that uses it, and copy to an empty store`,
    );
  if (target.text() !== source.text())
    throw new CopyRefused(
      `${spec.name}: FROM has ${source.rows()} rows, and TO has ${target.rows()}, or their contents differ; ` +
        'copy to an empty store',
    );
}

async function sumOf(
  spec: CollectionSpec<AnyRow>,
  collection: Collection<AnyRow>,
  onProgress?: (progress: Progress) => void,
): Promise<Sum> {
  const sum = createSum(spec);
  for await (const rows of pagesOf(spec, collection)) {
    for (const row of rows) sum.add(row);
    onProgress?.({ collection: spec.name, doing: 'checking', rows: sum.rows() });
  }
  return sum;
}

/** Rows that another program wrote may have values that a copy would change. */
async function readable<T>(name: string, work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw error instanceof TypeError ? new CopyRefused(`${name}: ${error.message}`) : error;
  }
}

/** All rows by id, in pages. */
async function* pagesOf(
  { name }: CollectionSpec<AnyRow>,
  collection: Collection<AnyRow>,
): AsyncGenerator<readonly AnyRow[]> {
  for (let last = ''; ; ) {
    // The empty id, the lowest, is possible too.
    const range = last === '' ? { gte: last } : { gt: last };
    const rows = await readable(name, collection.many({ id: { range } }, { sort: 'id', ...PAGE }));
    const end = rows.at(-1);
    if (!end) return;
    // The mark of this copy does not count as a row of either store.
    yield name === MARKS.name ? rows.filter(({ id }) => id !== MARK.id) : rows;
    last = end.id;
  }
}

type Sum = ReturnType<typeof createSum>;

/** The number of rows, and the sum of their digests, which does not depend on their order. */
function createSum(spec: CollectionSpec<AnyRow>) {
  let total = 0n;
  let count = 0;
  return {
    add(row: AnyRow) {
      total = BigInt.asUintN(256, total + BigInt(`0x${digestOf(spec, row)}`));
      count++;
    },
    rows: () => count,
    text: () => `${count}:${total.toString(16).padStart(64, '0')}`,
  };
}

/** An absent unique field is stored as null, also in a row that is older than the index: the two are one value. */
function digestOf({ unique = [] }: CollectionSpec<AnyRow>, row: AnyRow): string {
  const absent = new Set(unique.flat().filter((field) => row[field] === null));
  return hash('sha256', canonical(Object.fromEntries(Object.entries(row).filter(([field]) => !absent.has(field)))));
}

/** A canonical text of a value, independent of the order of names. A Date differs from its text. */
function canonical(value: unknown): string {
  if (value instanceof Date) return `d${value.getTime()}`;
  if (Array.isArray(value)) return `[${value.map(canonical).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value ?? null);
  const entries: [string, unknown][] = Object.entries(value);
  const named = entries.filter(([, item]) => item !== undefined).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${named.map(([name, item]) => `${JSON.stringify(name)}:${canonical(item)}`).join(',')}}`;
}
