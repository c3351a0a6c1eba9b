import {
  type Collection,
  type CollectionSpec,
  type Database,
  filterTerms,
  type Operand,
  type Row,
  type Term,
  toSlice,
} from '../../../src/store/driver/port.ts';
import { shapeOf } from '../../../src/store/driver/values.ts';

/** A database in memory, without a thread: each operation is one step, so that a seed always gives the same run. */
export function createMemoryDatabase(): Database {
  const collections = new Map<string, Map<string, Row>>();
  return {
    async collection<R extends Row>(spec: CollectionSpec<R>): Promise<Collection<R>> {
      const rows = (collections.get(spec.name) ?? new Map()) as Map<string, R>;
      collections.set(spec.name, rows as Map<string, Row>);
      return open(spec, rows);
    },
    left: () => Number.POSITIVE_INFINITY,
    ping: async () => {},
    close: async () => {},
  };
}

function open<R extends Row>(spec: CollectionSpec<R>, rows: Map<string, R>): Collection<R> {
  const shape = shapeOf(spec);
  const find = (filter: object): R[] => {
    const terms = filterTerms(shape, filter);
    const byId = terms.find((term) => term.kind === 'equal' && term.field === 'id');
    const one = byId?.kind === 'equal' ? rows.get(String(byId.value)) : undefined;
    const from = byId ? (one ? [one] : []) : [...rows.values()];
    return from.filter((row) => terms.every((term) => meets(row, term)));
  };
  const put = (row: R): R => {
    const copy = structuredClone(row);
    rows.set(row.id, copy);
    return structuredClone(copy);
  };
  const insert = (row: R): 'inserted' | 'duplicate' => {
    if (rows.has(row.id)) return 'duplicate';
    put(row);
    return 'inserted';
  };
  return {
    one: async (filter) => structuredClone(find(filter)[0]),
    async many(filter, page = {}) {
      const { sort, limit } = toSlice(shape, page);
      const found = find(filter);
      const key = (row: R) => (sort ? Reflect.get(row, sort.field) : row.id);
      const order = (a: R, b: R) => compare(key(a), key(b)) || compare(a.id, b.id);
      if (sort) found.sort((a, b) => (sort.descending ? -order(a, b) : order(a, b)));
      return structuredClone(found.slice(0, limit ?? found.length));
    },
    insert: async (row) => insert(row),
    insertAll: async (all) => all.map(insert),
    async change(filter, patch) {
      const [row] = find(filter);
      const given = Object.entries(patch).filter(([, value]) => value !== undefined);
      return row && put({ ...row, ...Object.fromEntries(given) });
    },
    async add(id, amounts, fresh) {
      const row = rows.get(id) ?? ({ ...fresh, id } as R);
      const sums = Object.entries(amounts).map(([field, by]) => [
        field,
        Number(Reflect.get(row, field) ?? 0) + Number(by),
      ]);
      return put({ ...row, ...Object.fromEntries(sums) });
    },
    async remove(filter) {
      const [row] = find(filter);
      if (row) rows.delete(row.id);
      return row;
    },
    async removeAll(filter) {
      const found = find(filter);
      for (const { id } of found) rows.delete(id);
      return found.length;
    },
  };
}

const plain = (value: unknown) => (value instanceof Date ? value.getTime() : value);
const compare = (a: unknown, b: unknown): number => {
  const [x, y] = [plain(a), plain(b)] as [string | number, string | number];
  return x < y ? -1 : x > y ? 1 : 0;
};

function meets(row: Row, term: Term): boolean {
  const value: unknown = Reflect.get(row, term.field);
  const same = (operand: Operand) => plain(operand) === plain(value);
  switch (term.kind) {
    case 'equal':
      return same(term.value);
    case 'exists':
      return (value !== null && value !== undefined) === term.there;
    case 'in':
      return term.values.some(same) || (term.orNull && (value === null || value === undefined));
    case 'range':
      return term.bounds.every(({ op, value: bound }) => {
        if (typeof plain(value) !== typeof plain(bound)) return false;
        const order = compare(value, bound);
        return { gt: order > 0, gte: order >= 0, lt: order < 0, lte: order <= 0 }[op];
      });
  }
}
