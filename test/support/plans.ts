import { DatabaseSync } from 'node:sqlite';
import { selectSql } from '../../src/store/driver/sql.ts';
import type { Usage } from './usages.ts';

/** How SQLite would find the rows, line by line, on the tables and indexes of that file. */
export function planOf(file: string, { shape, terms, slice }: Usage): string[] {
  const { sql, params } = selectSql(shape, terms, slice);
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    return database
      .prepare(`EXPLAIN QUERY PLAN ${sql}`)
      .all(...params)
      .map(({ detail }) => String(detail));
  } finally {
    database.close();
  }
}

/**
 * What is wrong with a plan: rows looked for one by one, sorted after they were found, or found by less than an index
 * would allow (SQLite knows no numbers of rows here, and may take the index of the account alone where the id is
 * known).
 */
export function planFaults(usage: Usage, plan: readonly string[]): string[] {
  // The list of an `in` is a table of its own to SQLite; going through it is what it is for.
  const slow = plan.filter(
    (line) =>
      !/\bjson_each\b/.test(line) && (/^SCAN (?!.*USING (?:COVERING )?INDEX)/.test(line) || /TEMP B-TREE/.test(line)),
  );
  const used = plan.map((line) => /^SEARCH .*\((.*)\)$/.exec(line)?.[1]).find((list) => list !== undefined);
  if (used === undefined) return slow;
  const fields = new Set(used.split(' AND ').map((part) => /^(?:f_)?(\w+)/.exec(part)?.[1] ?? ''));
  const known = usage.terms.filter(({ kind }) => kind === 'equal' || kind === 'in').map(({ field }) => field);
  const weak = known.includes('id') ? !fields.has('id') : fields.size === 1 && bestOf(usage) > 1;
  return weak ? [...slow, `only by ${[...fields].join(', ')}`] : slow;
}

/** How many fields of the filter a declared index could find rows by. */
function bestOf({ spec, terms }: Usage): number {
  const kinds = new Map(terms.map(({ field, kind }) => [field, kind]));
  const counts = [['id'], ...spec.indexes, ...(spec.unique ?? [])].map((index) => {
    const end = index.findIndex((field) => kinds.get(field) !== 'equal' && kinds.get(field) !== 'in');
    const found = end < 0 ? index.length : end;
    return kinds.get(index[found] ?? '') === 'range' ? found + 1 : found;
  });
  return Math.max(...counts);
}

/**
 * Whether a declared index serves it: its first field is compared (or sorted by), and where there is an order, every
 * field in front of the one that is sorted by is compared for equality.
 */
export function isServed({ spec, terms, slice }: Usage): boolean {
  const fields = new Set(terms.map(({ field }) => field));
  const equal = new Set(terms.filter(({ kind }) => kind === 'equal').map(({ field }) => field));
  const order = slice.sort?.field;
  return [['id'], ...spec.indexes, ...(spec.unique ?? [])].some((index) => {
    const [first = ''] = index;
    if (order === undefined || order === 'id') return fields.has(first);
    const at = index.indexOf(order);
    return at >= 0 && index.slice(0, at).every((field) => equal.has(field));
  });
}
