import type { CollectionSpec, Row } from './collection.ts';

/** Who may run a task now, when several processes share one store. `id` is the task's name. */
export interface LeaseRow extends Row {
  /** One life of one process; null: free. */
  readonly holder: string | null;
  /** When the holder counts as dead unless it renewed the lease. */
  readonly until: Date;
  /** When the last run began, so that a time that two processes share is one run. */
  readonly ranAt: Date;
}

export const leases: CollectionSpec<LeaseRow> = {
  name: 'leases',
  indexes: [['until']],
  dates: ['until', 'ranAt'],
  upkeep: true,
};
