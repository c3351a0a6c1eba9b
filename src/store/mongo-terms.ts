import type { Slice, Term } from './filter.ts';

/** A filter for MongoDB: every condition is an operator of ours, every value stands where only a value can stand. */
export type MongoFilter = Record<string, Record<string, unknown>>;

/** The port's `id` is MongoDB's `_id`. */
function nameOf(field: string): string {
  return field === 'id' ? '_id' : field;
}

function condition(term: Term): Record<string, unknown> {
  switch (term.kind) {
    case 'equal':
      return { $eq: term.value };
    // For MongoDB equality with null matches null and absent, and its negation neither.
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

/** Ties are broken by the id, in the direction of the sort, so that one index serves both. */
export function toMongoSort({ sort }: Slice): [string, 1 | -1][] {
  if (!sort) return [];
  const direction = sort.descending ? -1 : 1;
  return sort.field === 'id'
    ? [['_id', direction]]
    : [
        [sort.field, direction],
        ['_id', direction],
      ];
}

/** The indexes of a declaration; those that are not unique end with the id, for sorting. */
export function toMongoIndexes(indexes: readonly (readonly string[])[], unique: readonly (readonly string[])[]) {
  const keys = (fields: readonly string[]) => Object.fromEntries(fields.map((field): [string, 1] => [field, 1]));
  return [
    ...indexes.map((fields) => ({ key: keys([...fields, '_id']) })),
    ...unique.map((fields) => ({ key: keys(fields), unique: true })),
  ];
}
