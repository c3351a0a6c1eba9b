import {
  type Collection,
  type CollectionSpec,
  type Database,
  type Filter,
  filterTerms,
  type PageOptions,
  type Patch,
  type Row,
  type Slice,
  type Term,
  toSlice,
} from '../../src/store/driver/port.ts';

import { type Shape, shapeOf } from '../../src/store/driver/values.ts';

/** A query of the application: the collection, the conditions by field, the order. */
export interface Usage {
  /** In words, the same for all that differ in values only. */
  readonly name: string;
  readonly spec: {
    readonly name: string;
    readonly indexes: readonly (readonly string[])[];
    readonly unique?: readonly (readonly string[])[];
  };
  /** Makes the same collection, with its indexes, on another database. */
  openOn(other: Database): Promise<unknown>;
  readonly shape: Shape;
  readonly terms: readonly Term[];
  readonly slice: Slice;
}

/** A database that notes how it is used. Writes by id alone need no index but that of the id, and are not noted. */
export function watchUsages(database: Database): { readonly database: Database; readonly usages: Map<string, Usage> } {
  const usages = new Map<string, Usage>();
  const collection = async <R extends Row>(spec: CollectionSpec<R>): Promise<Collection<R>> => {
    const real = await database.collection(spec);
    const shape = shapeOf(spec);
    const note = (filter: Filter<R>, page: PageOptions<R>) => {
      const usage = {
        ...toUsage(spec, shape, filterTerms(shape, filter), toSlice(shape, page)),
        openOn: async (other: Database) => (await other.collection(spec)).one({}),
      };
      if (!usages.has(usage.name)) usages.set(usage.name, usage);
    };
    return {
      ...real,
      one: (filter: Filter<R>) => {
        note(filter, { limit: 1 });
        return real.one(filter);
      },
      many: (filter: Filter<R>, page: PageOptions<R> = {}) => {
        note(filter, page);
        return real.many(filter, page);
      },
      change: (filter: Filter<R>, patch: Patch<R>) => {
        note(filter, { limit: 1 });
        return real.change(filter, patch);
      },
      remove: (filter: Filter<R>) => {
        note(filter, { limit: 1 });
        return real.remove(filter);
      },
    };
  };
  return { usages, database: { ...database, collection } };
}

function toUsage(spec: Usage['spec'], shape: Shape, terms: readonly Term[], slice: Slice): Omit<Usage, 'openOn'> {
  const conditions = terms
    .map(({ field, kind }) => `${field} ${kind}`)
    .toSorted()
    .join(', ');
  const order = slice.sort ? ` by ${slice.sort.descending ? '-' : ''}${slice.sort.field}` : '';
  return {
    name: `${spec.name} where ${conditions || 'anything'}${order}${slice.limit === null ? '' : ' limited'}`,
    spec,
    shape,
    terms,
    slice,
  };
}
