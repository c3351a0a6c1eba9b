import type { Bound, Operand, Slice, Term } from './port.ts';
import type { Shape, StoredFields } from './values.ts';

/** SQLite parameter types in use. */
type Param = string | number | bigint | Uint8Array | null;

/** A statement for the thread. Equal texts share a prepared statement, so values are always parameters. */
export interface Statement {
  readonly sql: string;
  readonly params: readonly Param[];
  /** No more rows are read once they have this many bytes. */
  readonly bytes?: number;
}

/** A table with its columns and indexes; `create` makes it with all columns, `add` adds missing ones. */
export type TablePlan = ReturnType<typeof toPlan>;

const TRUE = Uint8Array.of(1);
const FALSE = Uint8Array.of(0);

/**
 * The value of a field as SQLite compares it. SQLite orders null, numbers, text, blobs; with booleans as blobs this is
 * MongoDB's order too, and true is not 1. Lists and objects become blobs that equal nothing.
 */
function expression(field: string): string {
  const path = `'$.${field}'`;
  const marks = `WHEN 'true' THEN x'01' WHEN 'false' THEN x'00' WHEN 'object' THEN x'02' WHEN 'array' THEN x'03'`;
  return `CASE json_type("row", ${path}) ${marks} ELSE "row" ->> ${path} END`;
}

function column(shape: Shape, field: string): string {
  if (field === 'id') return '"id"';
  return shape.indexed.has(field) ? `"f_${field}"` : expression(field);
}

/** The plan of a table; `indexes` and `unique` are those of the declaration. */
export function toPlan(shape: Shape, indexes: readonly (readonly string[])[], unique: readonly (readonly string[])[]) {
  const table = shape.name;
  const columns = [...shape.indexed].map((field) => {
    const definition = `"f_${field}" GENERATED ALWAYS AS (${expression(field)}) VIRTUAL`;
    return { name: `f_${field}`, definition, add: `ALTER TABLE "${table}" ADD COLUMN ${definition}` };
  });
  const index = (fields: readonly string[]) => {
    const name = `${table}_by_${fields.join('_')}`;
    const parts = [...fields.map((f) => `"f_${f}"`), '"id"'];
    return { name, add: `CREATE INDEX IF NOT EXISTS "${name}" ON "${table}" (${parts.join(', ')})` };
  };
  // In a unique index of SQLite nulls are distinct; in MongoDB they are equal, and so they are here.
  const uniqueIndex = (fields: readonly string[]) => {
    const name = `${table}_one_${fields.join('_')}`;
    const parts = fields.map((f) => `ifnull("f_${f}", x'')`);
    return { name, add: `CREATE UNIQUE INDEX IF NOT EXISTS "${name}" ON "${table}" (${parts.join(', ')})` };
  };
  return {
    table,
    create: `CREATE TABLE IF NOT EXISTS "${table}" (${[
      '"id" TEXT PRIMARY KEY NOT NULL',
      '"row" TEXT NOT NULL',
      ...columns.map(({ definition }) => definition),
    ].join(', ')})`,
    columns,
    indexes: [...indexes.map(index), ...unique.map(index), ...unique.map(uniqueIndex)],
  };
}

function param(value: Operand): Param {
  if (typeof value === 'boolean') return value ? TRUE : FALSE;
  return value instanceof Date ? value.toISOString() : value;
}

const OPERATORS = { gt: '>', gte: '>=', lt: '<', lte: '<=' } as const;

/** The ends of each type, for half-open ranges: only values of the bound's type match. */
const ENDS = {
  number: { floor: null, ceiling: `< ''` }, // only null sorts below numbers, and no comparison matches it
  text: { floor: `>= ''`, ceiling: `< x''` },
  boolean: { floor: `>= x'00'`, ceiling: `<= x'01'` },
} as const;

function rangeSql(name: string, bounds: readonly Bound[]): Statement {
  const [first] = bounds;
  const type = typeof first?.value;
  const ends = type === 'number' ? ENDS.number : type === 'boolean' ? ENDS.boolean : ENDS.text;
  const parts = bounds.map(({ op }) => `${name} ${OPERATORS[op]} ?`);
  if (ends.floor && !bounds.some(({ op }) => op.startsWith('gt'))) parts.push(`${name} ${ends.floor}`);
  if (!bounds.some(({ op }) => op.startsWith('lt'))) parts.push(`${name} ${ends.ceiling}`);
  return { sql: parts.join(' AND '), params: bounds.map(({ value }) => param(value)) };
}

/** One text for lists of any length; booleans in the JSON become blobs as in `expression`. */
const LISTED = `IN (
  SELECT CASE "type" WHEN 'true' THEN x'01' WHEN 'false' THEN x'00' ELSE "atom" END FROM json_each(?))`;

function termSql(name: string, term: Term): Statement {
  switch (term.kind) {
    case 'equal':
      return { sql: `${name} = ?`, params: [param(term.value)] };
    case 'exists':
      return { sql: existsSql(name, term), params: [] };
    case 'range':
      return rangeSql(name, term.bounds);
    case 'in': {
      const listed = `${name} ${LISTED}`;
      return { sql: term.orNull ? `(${listed} OR ${name} IS NULL)` : listed, params: [JSON.stringify(term.values)] };
    }
  }
}

/** SQLite uses no index for IS NOT NULL; everything but null is above minus infinity. */
function existsSql(name: string, term: Extract<Term, { kind: 'exists' }>): string {
  // Searching a text key for null would scan the table; it is never null.
  if (term.field === 'id') return term.there ? 'TRUE' : 'FALSE';
  return term.there ? `${name} >= -9e999` : `${name} IS NULL`;
}

/**
 * If the filter has ids, no other index is needed. SQLite would rather scan all rows of an account (0.2 s for a million
 * rows); a plus in front of a column disables its index.
 */
function whereSql(shape: Shape, terms: readonly Term[]): Statement {
  const named = terms.some(({ field, kind }) => field === 'id' && (kind === 'equal' || kind === 'in'));
  const parts = terms.map((term) =>
    termSql(`${named && term.field !== 'id' ? '+' : ''}${column(shape, term.field)}`, term),
  );
  return { sql: parts.map(({ sql }) => sql).join(' AND ') || 'TRUE', params: parts.flatMap(({ params }) => params) };
}

/** Every statement returns `id` and the row's JSON. */
const COLUMNS = '"id", "row"';

export function selectSql(shape: Shape, terms: readonly Term[], slice: Slice): Statement {
  const where = whereSql(shape, terms);
  const params = [...where.params];
  let sql = `SELECT ${COLUMNS} FROM "${shape.name}" WHERE ${where.sql}`;
  if (slice.sort) {
    const direction = slice.sort.descending ? 'DESC' : 'ASC';
    const names = slice.sort.field === 'id' ? ['"id"'] : [column(shape, slice.sort.field), '"id"'];
    sql += ` ORDER BY ${names.map((name) => `${name} ${direction}`).join(', ')}`;
  }
  if (slice.limit !== null) {
    sql += ' LIMIT ?';
    params.push(slice.limit);
  }
  return { sql, params, ...(slice.bytes !== null && { bytes: slice.bytes }) };
}

export function insertSql(shape: Shape, id: string, fields: StoredFields): Statement {
  return { sql: `INSERT INTO "${shape.name}" ("id", "row") VALUES (?, ?)`, params: [id, JSON.stringify(fields)] };
}

const picked = (shape: Shape, where: string) => `"id" = (SELECT "id" FROM "${shape.name}" WHERE ${where} LIMIT 1)`;

export function changeSql(shape: Shape, terms: readonly Term[], patch: StoredFields): Statement {
  const where = whereSql(shape, terms);
  const sets = Object.keys(patch)
    .map((field) => `'$.${field}', json(?)`)
    .join(', ');
  return {
    sql: `UPDATE "${shape.name}" SET "row" = json_set("row", ${sets}) WHERE ${picked(shape, where.sql)}
      RETURNING ${COLUMNS}`,
    params: [...Object.values(patch).map((value) => JSON.stringify(value)), ...where.params],
  };
}

/** `made` is the row to insert if there is none. A field that is not a number fails the statement, as in MongoDB. */
export function addSql(
  shape: Shape,
  id: string,
  amounts: Readonly<Record<string, number>>,
  made: StoredFields,
): Statement {
  const table = `"${shape.name}"`;
  const sums = Object.keys(amounts).map((field) => {
    const old = `json_type(${table}."row", '$.${field}')`;
    return `'$.${field}', CASE WHEN ${old} IS NULL THEN ?
      WHEN ${old} IN ('integer', 'real') THEN (${table}."row" ->> '$.${field}') + ? ELSE json('not a number') END`;
  });
  const row = sums.length > 0 ? `json_set(${table}."row", ${sums.join(', ')})` : `${table}."row"`;
  return {
    sql: `INSERT INTO ${table} ("id", "row") VALUES (?, ?)
      ON CONFLICT ("id") DO UPDATE SET "row" = ${row} RETURNING ${COLUMNS}`,
    params: [id, JSON.stringify(made), ...Object.values(amounts).flatMap((amount) => [exact(amount), exact(amount)])],
  };
}

/** Whole numbers are bound as integers, so that sums stay whole in the stored text. */
const exact = (amount: number) => (Number.isSafeInteger(amount) ? BigInt(amount) : amount);

/** Returns the ids only: the rows may be large, and many. */
export function removeAllSql(shape: Shape, terms: readonly Term[]): Statement {
  const where = whereSql(shape, terms);
  return { sql: `DELETE FROM "${shape.name}" WHERE ${where.sql} RETURNING "id", '{}' AS "row"`, params: where.params };
}

export function removeSql(shape: Shape, terms: readonly Term[]): Statement {
  const where = whereSql(shape, terms);
  return {
    sql: `DELETE FROM "${shape.name}" WHERE ${picked(shape, where.sql)} RETURNING ${COLUMNS}`,
    params: where.params,
  };
}
