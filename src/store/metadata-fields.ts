import type { CollectionSpec, Row } from './collection.ts';

/** A metadata field that an account wants to see as a column of its activity. `id` is `metadataFieldId`. */
export interface MetadataFieldRow extends Row {
  readonly account: string;
  readonly name: string;
  /** Mustache, for programs that show activity; kept and answered as it is. */
  readonly viewTemplate: string | null;
  readonly createdAt: Date;
}

export const metadataFields: CollectionSpec<MetadataFieldRow> = {
  name: 'metadata_fields',
  indexes: [['account', 'createdAt']],
  dates: ['createdAt'],
};

/** The id of the row of an account's metadata field. */
export function metadataFieldId(account: string, name: string): string {
  return `${account} ${name}`;
}
