import type { CollectionSpec, Row } from './collection.ts';

/** One row that is only written to prove that writes are durable (`Database.ping`). */
export interface PingRow extends Row {
  readonly count: number;
}

export const pings: CollectionSpec<PingRow> = { name: 'pings', indexes: [], dates: [], upkeep: true };
