import { STORED } from '../../src/store/copy.ts';
import type { Database, Row } from '../../src/store/driver/port.ts';

type AnyRow = Row & Readonly<Record<string, unknown>>;

/** Values that a store could change on the way, inside a row. */
const VALUES = {
  nothing: null,
  missing: undefined,
  yes: true,
  zero: 0,
  large: Number.MAX_SAFE_INTEGER,
  small: -1.5e-9,
  empty: '',
  text: 'Grüße, 日本語, 🙂, a\u0000b, \u2028 "quoted" \\',
  bytes: Buffer.from(Array.from({ length: 256 }, (_, n) => n)).toString('base64'),
  date: new Date('2026-01-05T12:00:00.123Z'),
  list: [1, [2, null, []], { deep: { deeper: new Date(0) } }, '2026-01-05T12:00:00.000Z'],
  names: { $where: 1, 'a.b': 2, '': 3, '%24': 4, $date: 'no date', 'nul\u0000': 5, constructor: 6 },
};

const { date: _, list: _list, names: _names, ...FLAT } = VALUES;

/** Rows in every collection, `each` in each, with all that a row may hold. Returns the number of rows. */
export async function fillStore(database: Database, each = 3): Promise<number> {
  for (const spec of STORED) {
    const rows = await database.collection(spec);
    const indexed = [...spec.indexes.flat(), ...(spec.unique ?? []).flat()];
    for (let n = 0; n < each; n++) {
      const fields = Object.fromEntries(indexed.map((field) => [field, `${field} ${n}`]));
      const dates = Object.fromEntries(spec.dates.map((field) => [field, new Date(1_700_000_000_000 + n)]));
      await rows.insert({ ...FLAT, values: [VALUES], ...fields, ...dates, id: `${spec.name} ${n} é` });
    }
    // Another kind of id, and nothing but what a row must have.
    await rows.insert({ id: '' });
  }
  return STORED.length * (each + 1);
}

/** All rows of all collections. */
export async function allRows(database: Database): Promise<Readonly<Record<string, readonly AnyRow[]>>> {
  const found: [string, readonly AnyRow[]][] = [];
  for (const spec of STORED) found.push([spec.name, await (await database.collection(spec)).many({}, { sort: 'id' })]);
  return Object.fromEntries(found);
}
