import type { CollectionSpec, Row } from './collection.ts';

/** An account: everything else belongs to one. */
export interface AccountRow extends Row {
  readonly name: string;
  /** A small number that ids shown to people begin with (route `7.23`). */
  readonly number: number;
  readonly createdAt: Date;
}

export const accounts: CollectionSpec<AccountRow> = {
  name: 'accounts',
  indexes: [['name']],
  unique: [['number']],
  dates: ['createdAt'],
};
