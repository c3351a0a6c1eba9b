import { collection, type OwnedRow } from './collection.ts';
import type { Carrier } from './webhooks.ts';

export const REASONS = ['hard-bounce', 'soft-bounce', 'spam', 'unsub', 'custom'] as const;
export type Reason = (typeof REASONS)[number];

/** An address that is not mailed. `id` is `rejectId`: one entry for each address and subaccount. */
export interface RejectRow extends OwnedRow, Carrier {
  /** As `listedAddress` (mail/suppression.ts) makes it: lower case, the domain as A-labels. */
  readonly email: string;
  /** '' for the whole account, so that it can stand in an index. */
  readonly subaccount: string;
  readonly reason: Reason;
  readonly detail: string | null;
  readonly createdAt: Date;
  readonly lastEventAt: Date;
  /** Null: never. */
  readonly expiresAt: Date | null;
  /** Set by a task some time after `expiresAt`; until then only the clock knows. */
  readonly expired: boolean;
  /** The sending address whose mail brought it about. */
  readonly sender: string | null;
  /** Length of the last term in milliseconds, for the next one; 0 for one without end. */
  readonly termMs: number;
  /** Of the latest message events that renewed it, so that the same one again does not. */
  readonly eventIds?: readonly string[];
  /** An entry by hand that took the place of one that events had made. */
  readonly replacedEvents?: boolean;
  /** Taken off the list; the row stays until its event is on the spool. */
  readonly removed: boolean;
  readonly version: number;
}

export const rejects = collection<RejectRow>()({
  name: 'rejects',
  access: 'own',
  limited: true,
  // No index by account and address alone: SQLite would prefer it to the one that keeps expired entries out of the way.
  indexes: [
    ['account', 'expired', 'email'],
    ['account', 'subaccount', 'expired', 'email'],
    ['expired', 'expiresAt'],
    ['unsentSince'],
  ],
  dates: ['createdAt', 'lastEventAt', 'expiresAt', 'unsentSince'],
});

/** No two entries share one: an account id holds no space, and an address only inside its quotes. */
export function rejectId(account: string, email: string, subaccount: string): string {
  return `${account} ${email} ${subaccount}`;
}

/** An address that no event puts on the rejection list. `id` is `whitelistId`. */
export interface WhitelistRow extends OwnedRow, Carrier {
  /** As `listedAddress` (mail/suppression.ts) makes it: lower case, the domain as A-labels. */
  readonly email: string;
  readonly detail: string | null;
  readonly createdAt: Date;
  /**
   * Where it took entries off that events had made: '' for the list of the whole account, else the subaccount; one for
   * each.
   */
  readonly overruled?: readonly string[];
  /** Taken off; the row stays until its event is on the spool. */
  readonly removed: boolean;
  readonly version: number;
}

export const whitelists = collection<WhitelistRow>()({
  name: 'whitelists',
  access: 'own',
  limited: true,
  indexes: [['account', 'email'], ['unsentSince']],
  dates: ['createdAt', 'unsentSince'],
});

export function whitelistId(account: string, email: string): string {
  return `${account} ${email}`;
}
