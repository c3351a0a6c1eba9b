import type { CollectionSpec, Row } from './collection.ts';

/** One of the places that a quota has: it is taken until a time, and free again then. `id` is `<what is limited> <number>`. */
export interface QuotaRow extends Row {
  readonly until: Date;
}

export const quotas: CollectionSpec<QuotaRow> = {
  name: 'quotas',
  indexes: [['until']],
  dates: ['until'],
  upkeep: true,
};
