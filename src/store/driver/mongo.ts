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
  filterTerms,
  type PageOptions,
  pings,
  type Row,
  type Slice,
  StoreAway,
  type Term,
  toSlice,
  within,
} from './port.ts';
import { checkId, fresh, type Shape, shapeOf, toAmounts, toFields, toPatch, toRow } from './values.ts';

interface MongoSettings {
  /** `mongodb://…/name` or `mongodb+srv://…/name`; the default database is `postern`. */
  readonly url: string;
  /** How long an operation may take before the store counts as unavailable. Milliseconds. */
  readonly timeoutMs: number;
  /** The most connections to a server; the URL's own `maxPoolSize` takes precedence. */
  readonly maxConnections?: number;
  /** How long an unused connection stays open; the URL's own `maxIdleTimeMS` takes precedence. Milliseconds. */
  readonly idleMs?: number;
}

interface MongoDeps {
  readonly log: Log;
  readonly clock: Clock;
  /** Receives every command sent to the server, for tests. */
  readonly onCommand?: (name: string, command: Readonly<Record<string, unknown>>) => void;
}

/** The driver types updates by a document's fields; `Document` means that they are unknown here. */
interface Doc extends Document {
  _id: string;
}

/** Runs work on a connected server, with the database's deadline and logging. */
type Run = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Writes are acknowledged when a majority has journaled them. Set for every collection, so that no URL can weaken it.
 */
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
    // A majority that only answers could still be unable to write: only a write proves that writes are durable.
    left: () => Infinity,
    async ping() {
      await alive.add('ping', { count: 1 }, { count: 0 });
    },
    async close() {
      closed = true;
      await within(clock, CLOSE_MS, client.close()).catch(() => forceClose(client));
    },
  });
}

function createClient(
  { url, timeoutMs, maxConnections, idleMs }: MongoSettings,
  onCommand: MongoDeps['onCommand'],
): MongoClient {
  const named = (option: string) => new RegExp(`[?&]${option}=`, 'i').test(url);
  const client = new MongoClient(url, {
    appName: 'postern',
    monitorCommands: onCommand !== undefined,
    serverSelectionTimeoutMS: timeoutMs,
    connectTimeoutMS: timeoutMs,
    socketTimeoutMS: timeoutMs,
    waitQueueTimeoutMS: timeoutMs,
    ...(maxConnections !== undefined && !named('maxPoolSize') && { maxPoolSize: maxConnections }),
    ...(idleMs !== undefined && !named('maxIdleTimeMS') && { maxIdleTimeMS: idleMs }),
  });
  if (onCommand) client.on('commandStarted', ({ commandName, command }) => onCommand(commandName, command));
  return client;
}

const CLOSE_MS = 1000;

/**
 * Closing sends a final command to the server, and if a connection ends at that moment the driver waits forever (seen
 * with mongodb 7.9). Its topology, which is not in its types, holds the sockets and timers.
 */
function forceClose(client: MongoClient): void {
  const topology: unknown = Reflect.get(client, 'topology');
  if (typeof topology === 'object' && topology !== null && 'close' in topology && typeof topology.close === 'function')
    topology.close();
}

/** The driver's own default is a database named `test`. */
function databaseName({ url }: MongoSettings): string | undefined {
  return /^mongodb(\+srv)?:\/\/[^/?]*\/[^?]/.test(url) ? undefined : 'postern';
}

/**
 * Creates the indexes once; after a failure the next operation tries again. One index per command: FerretDB 1.24 panics
 * if several in one command exist already, as at every start but the first.
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
  const where = (filter: Filter<R>) => toMongoFilter(filterTerms(shape, filter));
  const many = async (filter: Filter<R>, page: PageOptions<R> = {}) => {
    const slice = toSlice(shape, page);
    const terms = filterTerms(shape, filter);
    const query = toMongoFilter(terms);
    if (slice.limit === 0) return []; // in MongoDB 0 means no limit
    const docs = await act(() =>
      documents.find(query, { limit: slice.limit ?? 0, sort: toMongoSort(slice, terms, spec.unique) }).toArray(),
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
  for (let round = 0; round < MOST_ROUNDS; round++) {
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
 * Ties are broken by the id, in the direction of the sort, so that one index serves both. A unique index does not end with
 * the id, and serves a sort only if the id is left out, which it may be because there are no ties: otherwise the server
 * sorts all rows of the account for each page.
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

/**
 * Transient server errors: stepping down, shutting down, time limits, no majority
 * (mongodb.com/docs/manual/reference/error-codes). And 1, InternalError: a server with another database behind it says
 * so while that is away.
 */
const PASSING = new Set([
  1, 6, 7, 50, 64, 79, 89, 91, 100, 133, 189, 202, 262, 9001, 10107, 11600, 11602, 13435, 13436, 14031,
]);
const PASSING_LABELS = ['RetryableWriteError', 'HandshakeError'];
const DUPLICATE_KEY = 11000;

/** Errors for commands that the driver refuses to send: faults of ours. */
const UNSENDABLE = new Set([
  'MongoInvalidArgumentError',
  'MongoAPIError',
  'MongoParseError',
  'MongoCompatibilityError',
]);

/** Why the store is unavailable, or null if the error is a fault of ours. */
function awayReason(error: unknown): string | null {
  if (!(error instanceof Error)) return null;
  return error instanceof StoreAway || isPassing(error) ? error.message : null;
}

function isPassing(error: Error): boolean {
  if (error.name === 'MongoWriteConcernError') return true; // written, but possibly not durable
  if (error.name === 'MongoServerError')
    return PASSING.has(Number(codeOf(error))) || PASSING_LABELS.some((label) => labelsOf(error).includes(label));
  // Driver errors without a server response: no connection, no server to select, no free socket, closed.
  if (error.name.startsWith('Mongo')) return !UNSENDABLE.has(error.name);
  // A socket that closes at the wrong moment gives a Node error that the driver passes on (EPIPE, seen with mongodb
  // 7.9).
  return /^(E[A-Z]+|ERR_(SOCKET|STREAM|TLS|SSL)_\w+)$/.test(String(codeOf(error)));
}

/** Whether a unique index, or the id, was violated. */
function isDuplicate(error: unknown): boolean {
  return error instanceof Error && error.name === 'MongoServerError' && codeOf(error) === DUPLICATE_KEY;
}

function codeOf(error: Error): unknown {
  return 'code' in error ? error.code : undefined;
}

function labelsOf(error: Error): readonly unknown[] {
  return 'errorLabels' in error && Array.isArray(error.errorLabels) ? error.errorLabels : [];
}
