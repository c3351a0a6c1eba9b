import { checkDate, checkField, checkNumber, type Shape } from './values.ts';

/** What a field is compared with. Null has conditions of its own. */
export type Operand = string | number | boolean | Date;

/** One end of a range. */
export interface Bound {
  readonly op: 'gt' | 'gte' | 'lt' | 'lte';
  readonly value: Operand;
}

/** One checked condition on one field: all that a driver has to translate. `startsWith` has become a range. */
export type Term =
  | { readonly kind: 'equal'; readonly field: string; readonly value: Operand }
  /** `there` false: null or absent. */
  | { readonly kind: 'exists'; readonly field: string; readonly there: boolean }
  /** `orNull`: null and absent match too. */
  | { readonly kind: 'in'; readonly field: string; readonly values: readonly Operand[]; readonly orNull: boolean }
  /** Bounds are of one type, and only values of that type are in the range (MongoDB's type bracketing). */
  | { readonly kind: 'range'; readonly field: string; readonly bounds: readonly Bound[] };

/** Sort order and number of rows, checked. */
export interface Slice {
  readonly sort: { readonly field: string; readonly descending: boolean } | null;
  readonly limit: number | null;
}

const BOUNDS = ['gt', 'gte', 'lt', 'lte'] as const;
const NOTHING: readonly Operand[] = [];

/**
 * Reads a filter. Whatever is not exactly of the port's language is refused by a TypeError, at run time too:
 * an object that came in as JSON must never become an operator, and a field that is undefined must never match every row.
 */
export function toTerms(shape: Shape, filter: object): Term[] {
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
  if (!entry || more.length > 0) throw new TypeError(`${shape.name}.${field}: one condition is needed`);
  const value: unknown = entry[1];
  if (entry[0] === 'in' && Array.isArray(value)) return toIn(shape, field, value);
  if (entry[0] === 'range' && typeof value === 'object' && value !== null) return toRange(shape, field, value);
  if (entry[0] === 'startsWith' && typeof value === 'string' && !shape.dates.has(field))
    return toPrefix(field, value.toWellFormed());
  if (entry[0] === 'exists' && typeof value === 'boolean') return { kind: 'exists', field, there: value };
  throw new TypeError(`${shape.name}.${field}: unknown condition`);
}

function toOperand(shape: Shape, field: string, value: unknown): Operand {
  const place = `${shape.name}.${field}`;
  if (shape.dates.has(field) !== value instanceof Date)
    throw new TypeError(`${place}: dates are compared with Dates, and nothing else is`);
  if (field === 'id' && typeof value !== 'string') throw new TypeError(`${place}: not a string`);
  if (value instanceof Date) return checkDate(place, value);
  if (typeof value === 'string') return value.toWellFormed();
  if (typeof value === 'number') return checkNumber(place, value);
  if (typeof value === 'boolean') return value;
  throw new TypeError(`${place}: not a value to compare with`);
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
  if (bounds.length === 0) throw new TypeError(`${shape.name}.${field}: a range has a bound`);
  const types = new Set(bounds.map(({ value }) => typeof value));
  return types.size > 1 ? { kind: 'in', field, values: NOTHING, orNull: false } : { kind: 'range', field, bounds };
}

/**
 * A prefix is a range: from the prefix itself up to the next text that does not begin with it. Both databases compare text by its
 * UTF-8 bytes, which is the order of code points, so this is right for all of Unicode and served by an ordinary index.
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
    if (point === 0xd7ff) return rest + '\ue000'; // surrogates are no code points of a text
    if (point < 0x10ffff) return rest + String.fromCodePoint(point + 1);
  }
  return null;
}

/** Reads sort order and limit. Only what an index can serve may be sorted by. */
export function toSlice(shape: Shape, page: { readonly sort?: string; readonly limit?: number }): Slice {
  const { sort, limit } = page;
  if (limit !== undefined && !(Number.isSafeInteger(limit) && limit >= 0))
    throw new TypeError(`${shape.name}: not a limit: ${limit}`);
  if (sort === undefined) return { sort: null, limit: limit ?? null };
  const descending = sort.startsWith('-');
  const field = descending ? sort.slice(1) : sort;
  if (field !== 'id' && !shape.indexed.has(field))
    throw new TypeError(`${shape.name}: no index to sort by ${JSON.stringify(field)}`);
  return { sort: { field, descending }, limit: limit ?? null };
}
