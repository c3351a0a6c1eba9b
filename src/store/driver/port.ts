import { type Clock, withTimeout } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Fields, Log } from '../../base/log.ts';
import { checkDate, checkField, checkNumber, type Shape } from './values.ts';

/**
 * The port between Postern and its database: both drivers (embedded.ts, mongo.ts) implement exactly this, and one test
 * suite covers both. Nothing else may be used, so that we rely only on guarantees of MongoDB.
 */

/** The type of a field. A row is a plain object of these; Dates are read back as Dates. */
export type Value = string | number | boolean | null | Date | readonly Value[] | { readonly [name: string]: Value };

/** A row is identified by `id`, unique in its collection. */
export interface Row {
  readonly id: string;
}

type Scalar = string | number | boolean | Date | null;

/** The four conditions besides equality. A fifth needs both drivers and a case in the suite. */
type Condition =
  | { readonly in: readonly Scalar[] }
  | { readonly range: { readonly gt?: Scalar; readonly gte?: Scalar; readonly lt?: Scalar; readonly lte?: Scalar } }
  /** For string fields, not date fields; case-sensitive. */
  | { readonly startsWith: string }
  /** Null counts as absent. */
  | { readonly exists: boolean };

/**
 * All named fields must match; only top-level scalar fields. Equality with null, alone or in a list, matches null and
 * absent. Types matter: 1 is neither true nor "1", and a range matches only values of its bounds' type. Text is ordered
 * by code points. An invalid filter, or an undefined value, throws a TypeError.
 */
export type Filter<R> = { readonly [F in keyof R]?: Scalar | Condition };

/** A filter of fields that every such row has: TypeScript cannot see that they belong to a generic row. */
export function filterOf<B extends Row, R extends B>(filter: Filter<B>): Filter<R> {
  // biome-ignore lint/plugin: see above
  return filter as Filter<R>;
}

/** A filter of one field: TypeScript loses which one a computed name is. */
export function fieldIs<R>(field: keyof R & string, is: Scalar | Condition): Filter<R> {
  // biome-ignore lint/plugin: see above
  return { [field]: is } as Filter<R>;
}

/** `null` clears a field; a field that is missing or undefined is unchanged. */
export type Patch<R> = { readonly [F in Exclude<keyof R, 'id'>]?: R[F] | undefined };

export interface PageOptions<R> {
  /** Ascending (null first), or descending with a leading '-'; ties by `id`. Only indexed fields and `id`. */
  readonly sort?: (keyof R & string) | `-${keyof R & string}`;
  readonly limit?: number;
  /**
   * For rows that may be large: stops once the rows have about this many bytes, after at least one row. Then only an
   * empty result means the end. MongoDB reads up to 16 rows or 16 MB at a time.
   */
  readonly bytes?: number;
}

export interface Collection<R extends Row> {
  one(filter: Filter<R>): Promise<R | undefined>;
  many(filter: Filter<R>, page?: PageOptions<R>): Promise<R[]>;
  /** `duplicate` if a row has the same id or the same values in a unique index; nothing is written then. */
  insert(row: R): Promise<'inserted' | 'duplicate'>;
  /**
   * Inserts rows with one command, and returns the outcome of each; a failed row does not affect the others. `refused`:
   * the database does not accept this row. Throws `StoreAway` if any result is unknown: each row may then have been
   * written or not, and the call may be repeated.
   */
  insertAll(rows: readonly R[]): Promise<readonly InsertOutcome[]>;
  /**
   * Patches one matching row and returns the result, in one atomic step; undefined if none matched. If several match,
   * any one of them. A patch that violates a unique index throws `DuplicateRow`.
   */
  change(filter: Filter<R>, patch: Patch<R>): Promise<R | undefined>;
  /**
   * Adds to numeric fields of the row with this id, in one atomic step, creating it from `fresh` first if needed
   * (an absent field counts as 0; null or text throws). Returns the updated row.
   */
  add(id: string, amounts: { readonly [F in keyof R]?: number }, fresh: Omit<R, 'id'>): Promise<R>;
  /** Removes one row and returns it; undefined if none matched. */
  remove(filter: Filter<R>): Promise<R | undefined>;
  /** Removes all matching rows with one command, and returns the number. The usage of accounts is not updated. */
  removeAll(filter: Filter<R>): Promise<number>;
}

/** The outcome of inserting one of several rows. */
export type InsertOutcome = 'inserted' | 'duplicate' | 'refused';

/** The declaration of a collection: made once in its own file under store/, used by both drivers. */
export interface CollectionSpec<R extends Row> {
  /** Also the name of the table or MongoDB collection. */
  readonly name: string;
  /** The fields of each index, in order; they hold scalars. Every filter in use is served by one of them or by `id`. */
  readonly indexes: readonly (readonly (keyof R & string)[])[];
  /** Null and absent are one value: two rows without the field are duplicates. */
  readonly unique?: readonly (readonly (keyof R & string)[])[];
  /** The fields that hold Dates (or null); other top-level fields cannot. */
  readonly dates: readonly (keyof R & string)[];
  /** Rows needed for deleting and cleaning up, few and small: written even when the disk has no room for new data. */
  readonly upkeep?: true;
}

/** A driver: opens collections in one database. */
export interface Database {
  /** Creates a missing table and indexes. */
  collection<R extends Row>(spec: CollectionSpec<R>): Promise<Collection<R>>;
  /** Bytes by which rows may grow on the disk of this host; Infinity if they are elsewhere. */
  left(): number;
  /** Resolves if a write would be durable now; otherwise throws `StoreAway`. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** An operation of a database. */
type Operation = keyof Collection<Row> | 'ping';

/** Runs an operation, and passes on its result or error. */
export type Around = <T>(operation: Operation, work: () => Promise<T>) => Promise<T>;

/** The same database, with `around` each of its operations. */
export function wrapped(database: Database, around: Around): Database {
  const wrap = <R extends Row>(rows: Collection<R>) =>
    frozen<Collection<R>>({
      one: (filter) => around('one', () => rows.one(filter)),
      many: (filter, page) => around('many', () => rows.many(filter, page)),
      insert: (row) => around('insert', () => rows.insert(row)),
      insertAll: (all) => around('insertAll', () => rows.insertAll(all)),
      change: (filter, patch) => around('change', () => rows.change(filter, patch)),
      add: (id, amounts, fresh) => around('add', () => rows.add(id, amounts, fresh)),
      remove: (filter) => around('remove', () => rows.remove(filter)),
      removeAll: (filter) => around('removeAll', () => rows.removeAll(filter)),
    });
  return frozen({
    collection: async <R extends Row>(spec: CollectionSpec<R>) => wrap(await database.collection(spec)),
    left: () => database.left(),
    ping: () => around('ping', () => database.ping()),
    close: () => database.close(),
  });
}

/** The database cannot be reached, or did not answer in time: a temporary error. */
export class StoreAway extends Error {
  override readonly name = 'StoreAway';
}

/** The disk has no room for new data: rows cannot grow. Reading, removing and small changes still work. */
export class StoreFull extends StoreAway {
  constructor() {
    super('the disk of the store is nearly full: rows can be deleted but not added');
  }
}

/** A change would have violated a unique index. */
export class DuplicateRow extends Error {
  override readonly name = 'DuplicateRow';
}

/** A value to compare a field with. Null has conditions of its own. */
export type Operand = string | number | boolean | Date;

/** A bound of a range. */
export interface Bound {
  readonly op: 'gt' | 'gte' | 'lt' | 'lte';
  readonly value: Operand;
}

/** A checked condition on one field: all that a driver has to translate. `startsWith` has become a range. */
export type Term =
  | { readonly kind: 'equal'; readonly field: string; readonly value: Operand }
  /** `there` false: null or absent. */
  | { readonly kind: 'exists'; readonly field: string; readonly there: boolean }
  /** `orNull`: null and absent match too. */
  | { readonly kind: 'in'; readonly field: string; readonly values: readonly Operand[]; readonly orNull: boolean }
  /** Bounds are of one type, and only values of that type match (MongoDB's type bracketing). */
  | { readonly kind: 'range'; readonly field: string; readonly bounds: readonly Bound[] };

/** Checked sort order and limit. */
export interface Slice {
  readonly sort: { readonly field: string; readonly descending: boolean } | null;
  readonly limit: number | null;
  readonly bytes: number | null;
}

const BOUNDS = ['gt', 'gte', 'lt', 'lte'] as const;
const NOTHING: readonly Operand[] = [];

/**
 * Parses a filter. Anything outside the port's language is refused with a TypeError, also at run time: an object from
 * JSON input must never become an operator, and an undefined field must never match every row.
 */
export function filterTerms(shape: Shape, filter: object): Term[] {
  const entries: [string, unknown][] = Object.entries(filter);
  return entries.map(([field, condition]) => {
    if (field !== 'id') checkField(shape.name, field);
    return toTerm(shape, field, condition);
  });
}

function toTerm(shape: Shape, field: string, condition: unknown): Term {
  if (condition === null) return { kind: 'exists', field, there: false };
  if (typeof condition !== 'object' || condition instanceof Date)
    return { kind: 'equal', field, value: toOperand(shape, field, condition) };
  const [entry, ...more] = Object.entries(condition);
  if (!entry || more.length > 0) throw new TypeError(`${shape.name}.${field}: exactly one condition is required`);
  const value: unknown = entry[1];
  if (entry[0] === 'in' && Array.isArray(value)) return toIn(shape, field, value);
  if (entry[0] === 'range' && typeof value === 'object' && value !== null) return toRange(shape, field, value);
  if (entry[0] === 'startsWith' && typeof value === 'string' && !shape.dates.has(field))
    return toPrefix(field, value.toWellFormed());
  if (entry[0] === 'exists' && typeof value === 'boolean') return { kind: 'exists', field, there: value };
  throw new TypeError(`${shape.name}.${field}: unknown condition`);
}

function toOperand(shape: Shape, field: string, value: unknown): Operand {
  const path = `${shape.name}.${field}`;
  if (shape.dates.has(field) !== value instanceof Date)
    throw new TypeError(`${path}: only date fields are compared with Dates`);
  if (field === 'id' && typeof value !== 'string') throw new TypeError(`${path}: not a string`);
  if (value instanceof Date) return checkDate(path, value);
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value === 'number') return checkNumber(path, value);
  if (typeof value === 'boolean') return value;
  throw new TypeError(`${path}: not a value to compare with`);
}

function toIn(shape: Shape, field: string, list: readonly unknown[]): Term {
  const values = list.filter((value) => value !== null).map((value) => toOperand(shape, field, value));
  return { kind: 'in', field, values, orNull: values.length < list.length };
}

function toRange(shape: Shape, field: string, range: object): Term {
  const entries: [string, unknown][] = Object.entries(range);
  const bounds = entries
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => {
      const op = BOUNDS.find((known) => known === name);
      if (!op) throw new TypeError(`${shape.name}.${field}: unknown bound`);
      return { op, value: toOperand(shape, field, value) };
    });
  if (bounds.length === 0) throw new TypeError(`${shape.name}.${field}: a range needs a bound`);
  const types = new Set(bounds.map(({ value }) => typeof value));
  return types.size > 1 ? { kind: 'in', field, values: NOTHING, orNull: false } : { kind: 'range', field, bounds };
}

/**
 * A prefix becomes a range: from the prefix itself up to the next text that does not begin with it. Both databases
 * compare text by UTF-8 bytes, which is code point order, so this is correct for all of Unicode and served by an
 * ordinary index.
 */
function toPrefix(field: string, prefix: string): Term {
  const end = afterPrefix(prefix);
  const from: Bound = { op: 'gte', value: prefix };
  return { kind: 'range', field, bounds: end === null ? [from] : [from, { op: 'lt', value: end }] };
}

function afterPrefix(prefix: string): string | null {
  for (let rest = prefix; rest !== ''; ) {
    const last = rest.codePointAt(rest.length - 2) ?? 0;
    const point = last > 0xffff ? last : rest.charCodeAt(rest.length - 1);
    rest = rest.slice(0, point > 0xffff ? -2 : -1);
    if (point === 0xd7ff) return rest + '\ue000'; // surrogates are not code points of a text
    if (point < 0x10ffff) return rest + String.fromCodePoint(point + 1);
  }
  return null;
}

/** Parses sort order and limit. Only indexed fields can be sorted by. */
export function toSlice(
  shape: Shape,
  page: { readonly sort?: string; readonly limit?: number; readonly bytes?: number },
): Slice {
  const { sort, limit = null, bytes = null } = page;
  for (const most of [limit, bytes])
    if (most !== null && !(Number.isSafeInteger(most) && most >= 0))
      throw new TypeError(`${shape.name}: not a limit: ${most}`);
  if (sort === undefined) return { sort: null, limit, bytes };
  const descending = sort.startsWith('-');
  const field = descending ? sort.slice(1) : sort;
  if (field !== 'id' && !shape.indexed.has(field))
    throw new TypeError(`${shape.name}: no index to sort by ${JSON.stringify(field)}`);
  return { sort: { field, descending }, limit, bytes };
}

/** Resolves with the result of `work`, or calls `late` and rejects with `StoreAway` after `ms` milliseconds. */
export const within = <T>(clock: Clock, ms: number, work: Promise<T>, late?: () => void): Promise<T> =>
  withTimeout(clock, ms, work, () => {
    late?.();
    throw new StoreAway(`no answer within ${ms} ms`);
  });

/** Tracks whether the database answers, and logs each change once. */
export type Presence = ReturnType<typeof createPresence>;

export function createPresence(log: Log, driver: 'embedded' | 'mongo') {
  let state: 'unknown' | 'here' | 'away' = 'unknown';
  return frozen({
    here(details: Fields = {}) {
      if (state === 'here') return;
      log.info(state === 'away' ? 'store.back' : 'store.connected', { driver, ...details });
      state = 'here';
    },
    away(reason: string) {
      if (state === 'away') return;
      state = 'away';
      log.warn('store.away', { driver, reason });
    },
  });
}

/** A row that is written only to prove that writes are durable (`Database.ping`). */
interface PingRow extends Row {
  readonly count: number;
}

export const pings: CollectionSpec<PingRow> = { name: 'pings', indexes: [], dates: [], upkeep: true };
