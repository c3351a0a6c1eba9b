import { type Db, type Document, MongoClient, type Collection as MongoCollection } from 'mongodb';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Log } from '../../base/log.ts';
import {
  type Collection,
  type CollectionSpec,
  createPresence,
  type Database,
  DuplicateRow,
  type Filter,
  type Page,
  pings,
  type Row,
  type Slice,
  StoreAway,
  type Term,
  toSlice,
  toTerms,
  within,
} from './port.ts';
import { checkId, fresh, type Shape, shapeOf, toAmounts, toFields, toPatch, toRow } from './values.ts';

interface MongoSettings {
  /** `mongodb://…/name` or `mongodb+srv://…/name`; without a name the database is `postern`. */
  readonly url: string;
  /** Milliseconds an operation may take before the store counts as away. */
  readonly timeoutMs: number;
}

interface MongoDeps {
  readonly log: Log;
  readonly clock: Clock;
  /** Is shown every command that goes to the server, for a test to look at. */
  readonly onCommand?: (name: string, command: Readonly<Record<string, unknown>>) => void;
}

/** The driver types updates by the fields of a document; `Document` says that they are not known here. */
interface Doc extends Document {
  _id: string;
}

/** Runs work against a server that is connected, with the deadline and the log of the database. */
type Run = <T>(work: () => Promise<T>) => Promise<T>;

/** Written means: on the journals of a majority. Said for every collection, so that no URL can weaken it. */
const DURABLE = { writeConcern: { w: 'majority', j: true }, readPreference: 'primary' } as const;

/**
 * The store on MongoDB, or on a server that speaks its protocol: one document per row, one command per step, nothing
 * that needs a replica set. Opening does not need the server: it is found, and indexes are made, before the first
 * operation.
 *
 * What holds when an answer is lost (connection cut, server killed, too slow): the operation throws `StoreAway`, and a
 * write was done once or not at all, never twice, because nobody repeats it: neither this adapter, nor the driver on a
 * standalone server. On a replica set the driver repeats it once under a number by which the server knows a repeat and
 * gives the first answer again. A write that timed out while it waited for the server may still be done for another
 * `timeoutMs`. So the caller may always repeat an `insert` (`duplicate` then also means: the first one was done) and a
 * `change` whose filter the patch leaves matching; to repeat an `add` or any other `change`, look first. Nothing is
 * reported as done that is not durable.
 */
export async function openMongo(settings: MongoSettings, { log, clock, onCommand }: MongoDeps): Promise<Database> {
  const client = createClient(settings, onCommand);
  const db = client.db(databaseName(settings));
  const presence = createPresence(log, 'mongo');
  let connected: Promise<unknown> | null = null;
  const connect = () =>
    (connected ??= client.connect().catch((error: unknown) => {
      connected = null; // the next operation tries again
      throw error;
    }));
  let closed = false;
  const run: Run = async (work) => {
    if (closed) throw new StoreAway('the store is closed');
    try {
      const answer = await within(clock, settings.timeoutMs, connect().then(work));
      presence.here();
      return answer;
    } catch (error) {
      const reason = awayReason(error);
      if (reason === null) throw error;
      presence.away(reason);
      throw new StoreAway(reason);
    }
  };
  const collection = async <R extends Row>(spec: CollectionSpec<R>) => openCollection<R>(db, spec, run);
  const alive = await collection(pings);
  return frozen({
    collection,
    // A majority that only says hello could still be without a disk: what proves that a write is durable is a write.
    async ping() {
      await alive.add('ping', { count: 1 }, { count: 0 });
    },
    async close() {
      closed = true;
      await within(clock, CLOSE_MS, client.close()).catch(() => forceClose(client));
    },
  });
}

function createClient({ url, timeoutMs }: MongoSettings, onCommand: MongoDeps['onCommand']): MongoClient {
  const client = new MongoClient(url, {
    appName: 'postern',
    monitorCommands: onCommand !== undefined,
    serverSelectionTimeoutMS: timeoutMs,
    connectTimeoutMS: timeoutMs,
    socketTimeoutMS: timeoutMs,
    waitQueueTimeoutMS: timeoutMs,
  });
  if (onCommand) client.on('commandStarted', ({ commandName, command }) => onCommand(commandName, command));
  return client;
}

const CLOSE_MS = 1000;

/**
 * Closing sends a last courtesy to the server, and with a connection that ends at that moment the driver waits for it
 * without end (seen with mongodb 7.9). What holds sockets and timers is its topology, which its types do not show.
 */
function forceClose(client: MongoClient): void {
  const topology: unknown = Reflect.get(client, 'topology');
  if (typeof topology === 'object' && topology !== null && 'close' in topology && typeof topology.close === 'function')
    topology.close();
}

/** The driver's own default is a database called `test`. */
function databaseName({ url }: MongoSettings): string | undefined {
  return /^mongodb(\+srv)?:\/\/[^/?]*\/[^?]/.test(url) ? undefined : 'postern';
}

/**
 * Makes the indexes once; an attempt that failed is repeated by the next operation. One a command, although one command
 * takes several: FerretDB 1.24 panics when several of them are there already, as they are at every start but the first.
 */
function createIndexer<R extends Row>(
  documents: MongoCollection<Doc>,
  spec: CollectionSpec<R>,
): () => Promise<unknown> {
  const indexes = toMongoIndexes(spec.indexes, spec.unique ?? []);
  let made: Promise<void> | null = indexes.length > 0 ? null : Promise.resolve();
  const makeAll = async () => {
    for (const index of indexes) await documents.createIndexes([index]);
  };
  return () =>
    (made ??= makeAll().catch((error: unknown) => {
      made = null;
      throw error;
    }));
}

function openCollection<R extends Row>(db: Db, spec: CollectionSpec<R>, run: Run): Collection<R> {
  const shape = shapeOf(spec);
  const documents = db.collection<Doc>(spec.name, DURABLE);
  const makeIndexes = createIndexer(documents, spec);
  const act: Run = (work) =>
    run(async () => {
      await makeIndexes();
      return work();
    });
  const read = (doc: Doc | null) => (doc ? fromDoc<R>(shape, doc) : undefined);
  const where = (filter: Filter<R>) => toMongoFilter(toTerms(shape, filter));
  const many = async (filter: Filter<R>, page: Page<R> = {}) => {
    const slice = toSlice(shape, page);
    const query = where(filter);
    if (slice.limit === 0) return []; // for MongoDB 0 is no limit
    const docs = await act(() =>
      documents.find(query, { limit: slice.limit ?? 0, sort: toMongoSort(slice) }).toArray(),
    );
    return docs.map((doc) => fromDoc<R>(shape, doc));
  };
  const one = async (filter: Filter<R>) => (await many(filter, { limit: 1 }))[0];
  return frozen({
    one,
    many,
    async insert(row) {
      const doc = { _id: checkId(shape, row.id), ...toFields(shape, row, asIs) };
      return (await act(() => insertDoc(documents, doc))) ? 'inserted' : 'duplicate';
    },
    async change(filter, patch) {
      const fields = toPatch(shape, patch, asIs);
      const query = where(filter);
      if (Object.keys(fields).length === 0) return one(filter);
      return read(await act(() => changeDoc(documents, query, fields)));
    },
    async add(id, amounts, row) {
      const sums = toAmounts(shape, amounts);
      const doc = { _id: checkId(shape, id), ...fresh(shape, row, sums, asIs) };
      return fromDoc<R>(shape, await act(() => addToDoc(documents, doc, sums)));
    },
    async remove(filter) {
      const query = where(filter);
      return read(await act(() => documents.findOneAndDelete(query)));
    },
  });
}

/** BSON has Dates of its own. */
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

const MOST_ROUNDS = 5;

/**
 * Adds to the document, or inserts `made` when there is none. Two steps, each atomic, so that no reader sees anything
 * but a whole row; who loses the race to insert adds to the winner's row. (An upsert would do for amounts, but cannot
 * add to a start that is not 0, and may fail with a duplicate key under a race all the same.)
 */
async function addToDoc(
  documents: MongoCollection<Doc>,
  made: Doc,
  sums: Readonly<Record<string, number>>,
): Promise<Doc> {
  const { _id } = made;
  for (let round = 0; round < MOST_ROUNDS; round++) {
    const doc =
      Object.keys(sums).length > 0
        ? await documents.findOneAndUpdate({ _id: { $eq: _id } }, { $inc: sums }, { returnDocument: 'after' })
        : await documents.findOne({ _id: { $eq: _id } });
    if (doc) return doc;
    if (await insertDoc(documents, made)) return made;
  }
  // Never there, yet never to be inserted: another row has its unique values.
  throw new DuplicateRow('a unique index has these values already');
}

/** A filter for MongoDB: every condition is an operator of ours, every value stands where only a value can stand. */
type MongoFilter = Record<string, Record<string, unknown>>;

/** The port's `id` is MongoDB's `_id`. */
function nameOf(field: string): string {
  return field === 'id' ? '_id' : field;
}

function condition(term: Term): Record<string, unknown> {
  switch (term.kind) {
    case 'equal':
      return { $eq: term.value };
    // For MongoDB equality with null matches null and absent, and its negation neither.
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

/** Ties are broken by the id, in the direction of the sort, so that one index serves both. */
export function toMongoSort({ sort }: Slice): [string, 1 | -1][] {
  if (!sort) return [];
  const direction = sort.descending ? -1 : 1;
  return sort.field === 'id'
    ? [['_id', direction]]
    : [
        [sort.field, direction],
        ['_id', direction],
      ];
}

/** The indexes of a declaration; those that are not unique end with the id, for sorting. */
export function toMongoIndexes(indexes: readonly (readonly string[])[], unique: readonly (readonly string[])[]) {
  const keys = (fields: readonly string[]) => Object.fromEntries(fields.map((field): [string, 1] => [field, 1]));
  return [
    ...indexes.map((fields) => ({ key: keys([...fields, '_id']) })),
    ...unique.map((fields) => ({ key: keys(fields), unique: true })),
  ];
}

/**
 * Server errors that come and go: stepping down, shutting down, out of time, no majority
 * (mongodb.com/docs/manual/reference/error-codes).
 */
const PASSING = new Set([
  6, 7, 50, 64, 79, 89, 91, 100, 133, 189, 202, 262, 9001, 10107, 11600, 11602, 13435, 13436, 14031,
]);
const PASSING_LABELS = ['RetryableWriteError', 'HandshakeError'];
const DUPLICATE_KEY = 11000;

/** What the driver refuses to send is a fault of ours. */
const UNSENDABLE = new Set([
  'MongoInvalidArgumentError',
  'MongoAPIError',
  'MongoParseError',
  'MongoCompatibilityError',
]);

/** Why the store is away, or null when the error is not of that kind but a fault of ours. */
function awayReason(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  return error instanceof StoreAway || isPassing(error) ? error.message : null;
}

function isPassing(error: Error): boolean {
  if (error.name === 'MongoWriteConcernError') return true; // written, but not known to be durable
  if (error.name === 'MongoServerError')
    return PASSING.has(Number(codeOf(error))) || PASSING_LABELS.some((label) => labelsOf(error).includes(label));
  // What the driver throws without an answer of the server: no connection, no server to choose, no free socket, closed.
  if (error.name.startsWith('Mongo')) return !UNSENDABLE.has(error.name);
  // A socket that ends at the wrong moment gives an error of Node that the driver lets through (EPIPE, seen with
  // mongodb 7.9).
  return /^(E[A-Z]+|ERR_(SOCKET|STREAM|TLS|SSL)_\w+)$/.test(String(codeOf(error)));
}

/** Whether a unique index, or the id, said no. */
function isDuplicate(error: unknown): boolean {
  return error instanceof Error && error.name === 'MongoServerError' && codeOf(error) === DUPLICATE_KEY;
}

function codeOf(error: Error): unknown {
  return 'code' in error ? error.code : undefined;
}

function labelsOf(error: Error): readonly unknown[] {
  return 'errorLabels' in error && Array.isArray(error.errorLabels) ? error.errorLabels : [];
}
