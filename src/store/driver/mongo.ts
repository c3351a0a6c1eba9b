import {
  BSON,
  type Db,
  type Document,
  type FindCursor,
  MongoBulkWriteError,
  type Collection as MongoCollection,
} from 'mongodb';
import { frozen } from '../../base/frozen.ts';
import {
  DUPLICATE_KEY,
  isDuplicate,
  type MongoDeps,
  type MongoSettings,
  openClient,
  PASSING,
  type Run,
} from './mongo-client.ts';
import {
  type Collection,
  type CollectionSpec,
  type Database,
  DuplicateRow,
  type Filter,
  filterTerms,
  type InsertOutcome,
  type PageOptions,
  pings,
  type Row,
  type Slice,
  StoreAway,
  type Term,
  toSlice,
} from './port.ts';
import { checkId, fresh, type Shape, shapeOf, toAmounts, toFields, toPatch, toRow } from './values.ts';

/** The driver types updates by a document's fields; `Document` means that they are unknown here. */
interface Doc extends Document {
  _id: string;
}

/** A majority must have journaled a write. Set for every collection, so that no URL can weaken it. */
const DURABLE = { writeConcern: { w: 'majority', j: true }, readPreference: 'primary' } as const;

/**
 * Opens the store on MongoDB, or a compatible server: one document per row, one command per step, nothing that needs a
 * replica set. Opening does not need the server: connecting and creating indexes happen before the first operation.
 *
 * If a response is lost (connection cut, server killed, timeout), the operation throws `StoreAway`, and a write was
 * done once or not at all, never twice: neither this adapter repeats it, nor the driver on a standalone server. On a
 * replica set the driver retries it once under a transaction number, by which the server recognizes the retry and
 * returns the first response. A write that timed out while it waited for the server may still be done for another
 * `timeoutMs`. So callers may always repeat an `insert` (`duplicate` may then mean that the first one succeeded) and a
 * `change` whose patch leaves the filter matching; before repeating an `add` or any other `change`, they must read.
 * Nothing is reported as done before it is durable.
 */
export async function openMongo(settings: MongoSettings, deps: MongoDeps): Promise<Database> {
  const { run, close } = openClient(settings, deps);
  const collection = async <R extends Row>(spec: CollectionSpec<R>) => openCollection<R>(spec, run);
  const alive = await collection(pings);
  return frozen({
    collection,
    // A majority that answers may still be unable to write: only a write proves that writes are durable.
    left: () => Infinity,
    async ping() {
      await alive.add('ping', { count: 1 }, { count: 0 });
    },
    close,
  });
}

/**
 * Creates the indexes once; after a failure the next operation tries again. One index per command: FerretDB 1.24 panics
 * if several in one command exist already, as at every start but the first.
 */
function createIndexer<R extends Row>(
  spec: CollectionSpec<R>,
): (db: Db, documents: MongoCollection<Doc>) => Promise<unknown> {
  const indexes = toMongoIndexes(spec.indexes, spec.unique ?? []);
  /** Per client, because one that was replaced may never answer. */
  const makings = new WeakMap<Db, Promise<void>>();
  let isMade = indexes.length === 0;
  const makeAll = async (documents: MongoCollection<Doc>) => {
    for (const index of indexes) await documents.createIndexes([index]);
    isMade = true;
  };
  return async (db, documents) => {
    if (isMade) return;
    const making = makings.get(db) ?? makeAll(documents);
    makings.set(db, making);
    await making.catch((error: unknown) => {
      makings.delete(db);
      throw error;
    });
  };
}

function openCollection<R extends Row>(spec: CollectionSpec<R>, run: Run): Collection<R> {
  const shape = shapeOf(spec);
  const makeIndexes = createIndexer(spec);
  const act = <T>(work: (documents: MongoCollection<Doc>) => Promise<T>) =>
    run(async (db) => {
      const documents = db.collection<Doc>(spec.name, DURABLE);
      await makeIndexes(db, documents);
      return work(documents);
    });
  const read = (doc: Doc | null) => (doc ? fromDoc<R>(shape, doc) : undefined);
  const where = (filter: Filter<R>) => toMongoFilter(filterTerms(shape, filter));
  const many = async (filter: Filter<R>, page: PageOptions<R> = {}) => {
    const slice = toSlice(shape, page);
    const terms = filterTerms(shape, filter);
    const query = toMongoFilter(terms);
    if (slice.limit === 0) return []; // in MongoDB 0 means no limit
    const options = { limit: slice.limit ?? 0, sort: toMongoSort(slice, terms, spec.unique) };
    const { bytes } = slice;
    const docs = await act((documents) =>
      bytes === null
        ? documents.find(query, options).toArray()
        : readSome(documents.find(query, { ...options, batchSize: BATCH_ROWS }), bytes),
    );
    return docs.map((doc) => fromDoc<R>(shape, doc));
  };
  const one = async (filter: Filter<R>) => (await many(filter, { limit: 1 }))[0];
  return frozen({
    one,
    many,
    async insert(row) {
      const doc = { _id: checkId(shape, row.id), ...toFields(shape, row, asIs) };
      return (await act((documents) => insertDoc(documents, doc))) ? 'inserted' : 'duplicate';
    },
    async insertAll(all) {
      const docs = all.map((row) => ({ _id: checkId(shape, row.id), ...toFields(shape, row, asIs) }));
      return docs.length === 0 ? [] : act((documents) => insertDocs(documents, docs));
    },
    async change(filter, patch) {
      const fields = toPatch(shape, patch, asIs);
      const query = where(filter);
      if (Object.keys(fields).length === 0) return one(filter);
      return read(await act((documents) => changeDoc(documents, query, fields)));
    },
    async add(id, amounts, row) {
      const sums = toAmounts(shape, amounts);
      const doc = { _id: checkId(shape, id), ...fresh(shape, row, sums, asIs) };
      return fromDoc<R>(shape, await act((documents) => addToDoc(documents, doc, sums)));
    },
    async remove(filter) {
      const query = where(filter);
      return read(await act((documents) => documents.findOneAndDelete(query)));
    },
    async removeAll(filter) {
      const query = where(filter);
      return (await act((documents) => documents.deleteMany(query))).deletedCount;
    },
  });
}

/** Rows of a batch where they may be large: each batch is in memory as a whole, and a server ends it at 16 MB. */
const BATCH_ROWS = 16;

/** Reads batches until the documents have this many bytes. */
async function readSome(cursor: FindCursor<Doc>, bytes: number): Promise<Doc[]> {
  const docs: Doc[] = [];
  let size = 0;
  for await (const doc of cursor) {
    docs.push(doc);
    size += BSON.calculateObjectSize(doc);
    // Rows already here are used: they would have to be read again.
    if (size >= bytes && cursor.bufferedCount() === 0) break;
  }
  return docs;
}

/** BSON has its own Date type. */
const asIs = (date: Date) => date;

function fromDoc<R extends Row>(shape: Shape, { _id, ...fields }: Doc): R {
  return toRow<R>(shape, _id, fields);
}

async function insertDoc(documents: MongoCollection<Doc>, doc: Doc): Promise<boolean> {
  try {
    await documents.insertOne(doc);
    return true;
  } catch (error) {
    if (isDuplicate(error)) return false;
    throw error;
  }
}

/**
 * Each document has its own result. If an error says that the server is going away, or the write concern was not met,
 * all results are unknown, because writes may not be durable.
 */
async function insertDocs(documents: MongoCollection<Doc>, docs: readonly Doc[]): Promise<readonly InsertOutcome[]> {
  const outcomes = docs.map((): InsertOutcome => 'inserted');
  try {
    await documents.insertMany([...docs], { ordered: false });
  } catch (error) {
    const faults = bulkFaultsOf(error);
    if (!faults) throw error;
    for (const { index, code, text } of faults) {
      if (PASSING.has(code)) throw new StoreAway(text);
      outcomes[index] = code === DUPLICATE_KEY ? 'duplicate' : 'refused';
    }
  }
  return outcomes;
}

/** The errors of single documents; undefined if the command failed as a whole. Throws `StoreAway`. */
function bulkFaultsOf(error: unknown) {
  if (!(error instanceof MongoBulkWriteError)) return undefined;
  const concern = error.result.getWriteConcernError();
  if (concern) throw new StoreAway(concern.errmsg ?? 'the write concern was not met');
  const faults = Array.isArray(error.writeErrors) ? error.writeErrors : [error.writeErrors];
  if (faults.length === 0) return undefined;
  return faults.map(({ index, code, errmsg }) => ({ index, code, text: errmsg ?? 'the write failed' }));
}

async function changeDoc(
  documents: MongoCollection<Doc>,
  query: MongoFilter,
  fields: Record<string, unknown>,
): Promise<Doc | null> {
  try {
    return await documents.findOneAndUpdate(query, { $set: fields }, { returnDocument: 'after' });
  } catch (error) {
    throw isDuplicate(error) ? new DuplicateRow('a unique index has these values already') : error;
  }
}

const MAX_ROUNDS = 5;

/**
 * Adds to the document, or inserts `made` if there is none. Two atomic steps, so that readers only see complete rows; a
 * caller that loses the race to insert adds to the winner's row. (An upsert cannot add to an initial value other than
 * 0, and may still fail with a duplicate key in a race.)
 */
async function addToDoc(
  documents: MongoCollection<Doc>,
  made: Doc,
  sums: Readonly<Record<string, number>>,
): Promise<Doc> {
  const { _id } = made;
  for (let round = 0; round < MAX_ROUNDS; round++) {
    const doc =
      Object.keys(sums).length > 0
        ? await documents.findOneAndUpdate({ _id: { $eq: _id } }, { $inc: sums }, { returnDocument: 'after' })
        : await documents.findOne({ _id: { $eq: _id } });
    if (doc) return doc;
    if (await insertDoc(documents, made)) return made;
  }
  // Neither found nor insertable: another row has its unique values.
  throw new DuplicateRow('a unique index has these values already');
}

/** A MongoDB filter. Operators are only ours, and values appear only where MongoDB expects a value. */
type MongoFilter = Record<string, Record<string, unknown>>;

/** The port's `id` is MongoDB's `_id`. */
function nameOf(field: string): string {
  return field === 'id' ? '_id' : field;
}

function condition(term: Term): Record<string, unknown> {
  switch (term.kind) {
    case 'equal':
      return { $eq: term.value };
    // In MongoDB, equality with null matches null and absent; its negation matches neither.
    case 'exists':
      return term.there ? { $ne: null } : { $eq: null };
    case 'in':
      return { $in: term.orNull ? [...term.values, null] : term.values };
    case 'range':
      return Object.fromEntries(term.bounds.map(({ op, value }) => [`$${op}`, value]));
  }
}

export function toMongoFilter(terms: readonly Term[]): MongoFilter {
  return Object.fromEntries(terms.map((term) => [nameOf(term.field), condition(term)]));
}

/**
 * Ties are broken by the id, in the direction of the sort, so that one index serves both. A unique index does not end
 * with the id, and serves a sort only if the id is left out, which it may be because there are no ties: otherwise the
 * server sorts all rows of the account for each page.
 */
export function toMongoSort(
  { sort }: Slice,
  terms: readonly Term[] = [],
  unique: readonly (readonly string[])[] = [],
): [string, 1 | -1][] {
  if (!sort) return [];
  const direction = sort.descending ? -1 : 1;
  const fixed = new Set(terms.filter(({ kind }) => kind === 'equal').map(({ field }) => field));
  const hasNoTies = unique.some(
    (fields) => fields.at(-1) === sort.field && fields.slice(0, -1).every((field) => fixed.has(field)),
  );
  return sort.field === 'id' || hasNoTies
    ? [[nameOf(sort.field), direction]]
    : [
        [sort.field, direction],
        ['_id', direction],
      ];
}

/** The indexes of a declaration; non-unique ones end with the id, for sorting. */
export function toMongoIndexes(indexes: readonly (readonly string[])[], unique: readonly (readonly string[])[]) {
  const keys = (fields: readonly string[]) => Object.fromEntries(fields.map((field): [string, 1] => [field, 1]));
  return [
    ...indexes.map((fields) => ({ key: keys([...fields, '_id']) })),
    ...unique.map((fields) => ({ key: keys(fields), unique: true })),
  ];
}
