/**
 * The port between Postern and its database: two drivers (embedded.ts, mongo.ts) do exactly this and no more,
 * and one suite runs over both. What is not here is not used, so that what MongoDB promises is what we use.
 */

/** What a field may hold. A row is a plain object of these; Dates come back as Dates. */
export type Value = string | number | boolean | null | Date | readonly Value[] | { readonly [name: string]: Value };

/** A row is named by `id`, unique in its collection. */
export interface Row {
  readonly id: string;
}

export type Scalar = string | number | boolean | Date | null;

/** The four conditions beside equality. A fifth needs both drivers and a case in the suite. */
export type Condition =
  | { readonly in: readonly Scalar[] }
  | { readonly range: { readonly gt?: Scalar; readonly gte?: Scalar; readonly lt?: Scalar; readonly lte?: Scalar } }
  /** Of a string field, not of one that holds Dates; letters count as they are. */
  | { readonly startsWith: string }
  /** A field that is null counts as not there. */
  | { readonly exists: boolean };

/**
 * All named fields must match. Only top-level fields that hold scalars. Equality with null, alone or in a list, matches null and
 * absent. Types count: 1 is neither true nor "1", and a range holds values of the type of its bounds only. Text is ordered by
 * code points. A filter that is not of this language, or names an undefined value, throws a TypeError.
 */
export type Filter<R> = { readonly [F in keyof R]?: Scalar | Condition };

/** `null` empties a field; a field that is not named, or undefined, stays. */
export type Patch<R> = { readonly [F in Exclude<keyof R, 'id'>]?: R[F] | undefined };

export interface Page<R> {
  /** Ascending (null and absent first), or descending with a leading '-'. Ties are broken by `id`, in the same direction. Only indexed fields and `id`. */
  readonly sort?: (keyof R & string) | `-${keyof R & string}`;
  readonly limit?: number;
}

export interface Collection<R extends Row> {
  one(filter: Filter<R>): Promise<R | undefined>;
  many(filter: Filter<R>, page?: Page<R>): Promise<R[]>;
  /** `duplicate` when a row has the same id or the same values in a unique index; then nothing was written. */
  insert(row: R): Promise<'inserted' | 'duplicate'>;
  /**
   * Finds one row, patches it and answers it as it is afterwards, in one atomic step; undefined when none matched.
   * Several matching: one of them. A patch that breaks a unique index throws `DuplicateRow`.
   */
  change(filter: Filter<R>, patch: Patch<R>): Promise<R | undefined>;
  /**
   * Adds to number fields of the row with this id, in one atomic step; makes the row from `fresh` first when there is none
   * (a field that is absent counts as 0, one that is null or text throws). Answers the row afterwards.
   */
  add(id: string, amounts: { readonly [F in keyof R]?: number }, fresh: Omit<R, 'id'>): Promise<R>;
  /** Removes one row and answers it as it was; undefined when none matched. */
  remove(filter: Filter<R>): Promise<R | undefined>;
}

/** What a collection is: declared once in its own file under store/, read by both drivers. */
export interface CollectionSpec<R extends Row> {
  /** Also the name of the table or of the MongoDB collection. */
  readonly name: string;
  /** Fields per index, in order; they hold scalars. Every filter that the application uses is served by one of them or by `id`. */
  readonly indexes: readonly (readonly (keyof R & string)[])[];
  /** Null and absent are one value here: two rows without it are duplicates. */
  readonly unique?: readonly (readonly (keyof R & string)[])[];
  /** Fields that hold Dates (or null), and are the only ones that do at the top of a row. */
  readonly dates: readonly (keyof R & string)[];
  /** Rows that deleting and tidying need, few and small: written also where the disk has no room for what is new. */
  readonly upkeep?: true;
}

/** A driver: opens collections on one database. */
export interface Database {
  /** Makes table and indexes where they are missing. */
  collection<R extends Row>(spec: CollectionSpec<R>): Promise<Collection<R>>;
  /** Resolves when a write would be durable now; throws `StoreAway` otherwise. */
  ping(): Promise<void>;
  close(): Promise<void>;
}

/** The database cannot be reached, or did not answer in time: temporary by nature. */
export class StoreAway extends Error {
  override readonly name = 'StoreAway';
}

/**
 * The disk has no room for what is new: rows are neither added nor made much larger. Reading, removing and small changes go on, so
 * that whoever has too much can delete it.
 */
export class StoreFull extends StoreAway {
  constructor() {
    super('the disk of the store is nearly full: nothing is added, deleting works');
  }
}

/** A change would have given two rows the same values in a unique index. */
export class DuplicateRow extends Error {
  override readonly name = 'DuplicateRow';
}
