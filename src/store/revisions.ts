import type { CollectionSpec, Row } from './collection.ts';

/** Counts that only grow: `routing` (changes of domains and routes, so that other hosts notice them), `accounts`, `routes:<account>` (the next number to give out). */
export interface RevisionRow extends Row {
  readonly count: number;
}

export const revisions: CollectionSpec<RevisionRow> = { name: 'revisions', indexes: [], dates: [], upkeep: true };
