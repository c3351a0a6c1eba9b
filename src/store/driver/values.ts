import type { CollectionSpec, Row } from './port.ts';

/**
 * Rules for values that both drivers enforce, so that a row reads back the same from either:
 * - a lone surrogate becomes U+FFFD, because neither UTF-8 nor BSON can represent it;
 * - what JSON cannot represent (NaN, infinities, years outside 0 to 9999) is refused, and -0 becomes 0;
 * - Dates are allowed in declared date fields, or deeper inside a value;
 * - indexed fields hold scalars (MongoDB would index each element of a list by itself);
 * - an absent unique field is stored as null, and null equals null: two such rows are duplicates, as in MongoDB;
 * - names inside a value may be anything: `$`, `.`, NUL and the empty name are escaped, so that no server interprets
 *    them.
 */
export type Shape = ReturnType<typeof shapeOf>;

/** The checked top-level fields of a row, without its id: safe names, and values that both drivers store alike. */
export type StoredFields = Record<string, unknown>;

/** How a driver writes a Date inside a value: MongoDB as it is, JSON with a marker. */
type NestedDate = (date: Date) => unknown;

const FIELD = /^[A-Za-z][A-Za-z0-9_]*$/;
const COLLECTION = /^[a-z][a-z0-9_]*$/;
const DEEPEST = 90; // MongoDB refuses documents nested deeper than 100
const LAST_DAY = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
const FIRST_DAY = Date.parse('0000-01-01T00:00:00.000Z');

/** Validates a declaration; refuses names that could have a meaning to a database. */
export function shapeOf<R extends Row>(spec: CollectionSpec<R>) {
  const unique = (spec.unique ?? []).flat();
  const indexed = [...spec.indexes.flat(), ...unique];
  if (!COLLECTION.test(spec.name) || spec.name.startsWith('sqlite_'))
    throw new TypeError(`not a name for a collection: ${spec.name}`);
  for (const field of [...indexed, ...spec.dates]) checkField(spec.name, field);
  return Object.freeze({
    name: spec.name,
    indexed: new Set<string>(indexed),
    unique: new Set<string>(unique),
    dates: new Set<string>(spec.dates),
    upkeep: spec.upkeep ?? false,
  });
}

/** Checks a field name: letters, digits and underscores, never an operator or a path. Throws a TypeError. */
export function checkField(collection: string, field: string): void {
  if (!FIELD.test(field)) throw new TypeError(`${collection}: not a name for a field: ${JSON.stringify(field)}`);
}

/** Checks a row before it is written. */
export function toFields(shape: Shape, row: object, nestedDate: NestedDate): StoredFields {
  const { id: _, ...rest }: Record<string, unknown> = { ...row };
  const fields = toPatch(shape, rest, nestedDate);
  for (const field of shape.unique) fields[field] ??= null;
  return fields;
}

/** Checks the fields of a patch; undefined ones are omitted. An id never changes. */
export function toPatch(shape: Shape, source: object, nestedDate: NestedDate): StoredFields {
  const fields: StoredFields = {};
  const entries: [string, unknown][] = Object.entries(source);
  for (const [field, value] of entries) {
    if (value === undefined) continue;
    if (field === 'id') throw new TypeError(`${shape.name}: the id of a row does not change`);
    checkField(shape.name, field);
    fields[field] = toField(shape, field, value, nestedDate);
  }
  return fields;
}

function toField(shape: Shape, field: string, value: unknown, nestedDate: NestedDate): unknown {
  const path = `${shape.name}.${field}`;
  if (value === null) return null;
  if (shape.dates.has(field) !== value instanceof Date)
    throw new TypeError(`${path}: only the declared date fields hold Dates`);
  if (value instanceof Date) return checkDate(path, value);
  if (typeof value === 'object' && shape.indexed.has(field))
    throw new TypeError(`${path}: an indexed field holds a scalar`);
  return tidy(path, value, nestedDate, 0);
}

function tidy(path: string, value: unknown, nestedDate: NestedDate, depth: number): unknown {
  if (depth > DEEPEST) throw new TypeError(`${path}: nested too deep`);
  if (value === null || value === undefined || typeof value === 'boolean') return value ?? null;
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value === 'number') return checkNumber(path, value);
  if (value instanceof Date) return nestedDate(checkDate(path, value));
  if (Array.isArray(value)) return value.map((item: unknown) => tidy(path, item, nestedDate, depth + 1));
  if (!isPlain(value)) throw new TypeError(`${path}: not a value that can be stored`);
  const entries: [string, unknown][] = Object.entries(value);
  // fromEntries defines properties, so that `__proto__` is an ordinary name.
  return Object.fromEntries(
    entries
      .filter(([, item]) => item !== undefined)
      .map(([name, item]) => [escapeName(name), tidy(path, item, nestedDate, depth + 1)]),
  );
}

function isPlain(value: unknown): value is object {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Accepts numbers that both drivers store exactly. */
export function checkNumber(path: string, value: number): number {
  if (!Number.isFinite(value)) throw new TypeError(`${path}: not a finite number`);
  return value + 0; // -0 becomes 0
}

/** Accepts Dates whose ISO text sorts chronologically. */
export function checkDate(path: string, value: Date): Date {
  const time = value.getTime();
  if (!(time >= FIRST_DAY && time <= LAST_DAY)) throw new TypeError(`${path}: not a date between the years 0 and 9999`);
  return value;
}

function escapeName(name: string): string {
  if (name === '') return '%';
  return name
    .toWellFormed()
    .replace(/[%$.\0]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
}

function plainName(name: string): string {
  if (name === '%') return '';
  return name.replace(/%([0-9A-F]{2})/g, (_, code: string) => String.fromCharCode(parseInt(code, 16)));
}

/** The marker of a Date inside JSON. No escaped name can be `$date`, so it is unambiguous. */
export const markDate: NestedDate = (date) => ({ $date: date.toISOString() });

function revive(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || value instanceof Date) return value;
  if (Array.isArray(value)) return value.map(revive);
  // Another program's: the bytes of a Binary, for instance, must not become the names of an object.
  if (!isPlain(value)) throw new TypeError('another program wrote a value that Postern does not store');
  const entries: [string, unknown][] = Object.entries(value);
  const [first] = entries;
  if (first?.[0] === '$date' && typeof first[1] === 'string') return new Date(first[1]);
  return Object.fromEntries(entries.map(([name, item]) => [plainName(name), revive(item)]));
}

/** Converts a driver's fields to the application's row. */
export function toRow<R extends Row>(shape: Shape, id: string, fields: StoredFields): R {
  const row: Record<string, unknown> = { id };
  for (const [field, value] of Object.entries(fields)) {
    row[field] = typeof value === 'string' && shape.dates.has(field) ? new Date(value) : revive(value);
  }
  // biome-ignore lint/plugin: the compiler checked these fields when they were written; only this line trusts that
  return row as unknown as R;
}

/** The row that `add` inserts: the fresh one with the amounts added. */
export function fresh(
  shape: Shape,
  source: object,
  amounts: Readonly<Record<string, number>>,
  nestedDate: NestedDate,
): StoredFields {
  const fields = toFields(shape, source, nestedDate);
  for (const [field, amount] of Object.entries(amounts)) {
    const before = fields[field] ?? 0;
    if (typeof before !== 'number') throw new TypeError(`${shape.name}.${field}: not a number`);
    fields[field] = before + amount;
  }
  return fields;
}

/** Checks amounts: finite numbers, for fields that can hold them. */
export function toAmounts(shape: Shape, source: object): Record<string, number> {
  const amounts: Record<string, number> = {};
  const entries: [string, unknown][] = Object.entries(source);
  for (const [field, amount] of entries) {
    if (amount === undefined) continue;
    checkField(shape.name, field);
    if (field === 'id' || shape.dates.has(field) || typeof amount !== 'number')
      throw new TypeError(`${shape.name}.${field}: only numbers can be added`);
    amounts[field] = checkNumber(`${shape.name}.${field}`, amount);
  }
  return amounts;
}

/** Checks an id, which is a string. */
export function checkId(shape: Shape, id: unknown): string {
  if (typeof id !== 'string') throw new TypeError(`${shape.name}.id: not a string`);
  return id.toWellFormed();
}
