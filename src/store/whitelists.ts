import type { CollectionSpec, Row } from './collection.ts';
import type { Carrier } from './outbox.ts';

/** An address that no event puts on the rejection list. `id` is `whitelistId`. */
export interface WhitelistRow extends Row, Carrier {
  readonly account: string;
  /** As `listedAddress` (mail/suppression.ts) makes it: lower case, the domain as A-labels. */
  readonly email: string;
  readonly detail: string | null;
  readonly createdAt: Date;
  /** Where it took entries off that events had made: '' for the list of the whole account, else the subaccount; one for each. */
  readonly overruled?: readonly string[];
  /** Taken off; the row stays until its event is on the spool. */
  readonly removed: boolean;
  readonly version: number;
}

export const whitelists: CollectionSpec<WhitelistRow> = {
  name: 'whitelists',
  indexes: [['account', 'email'], ['unsentSince']],
  dates: ['createdAt', 'unsentSince'],
};

export function whitelistId(account: string, email: string): string {
  return `${account} ${email}`;
}
