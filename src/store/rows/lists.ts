import type { RejectReason } from '../../mail/suppression.ts';
import { collection, type OwnedRow } from './collection.ts';
import type { Carrier } from './webhooks.ts';

/** A suppressed address. `id` is `rejectId`: one entry per address and subaccount. */
export interface RejectRow extends OwnedRow, Carrier {
  /** As normalized by `canonicalAddress` (mail/suppression.ts): lower case, the domain in A-labels. */
  readonly email: string;
  /** '' for the whole account, so that it can be indexed. */
  readonly subaccount: string;
  readonly reason: RejectReason;
  readonly detail: string | null;
  readonly createdAt: Date;
  readonly lastEventAt: Date;
  /** Null: never. */
  readonly expiresAt: Date | null;
  /** Set by a task some time after `expiresAt`; until then compare the time. */
  readonly expired: boolean;
  /** The sending address whose mail caused it. */
  readonly sender: string | null;
  /** Length of the last term in milliseconds, from which the next one is derived; 0 for one without end. */
  readonly termMs: number;
  /** The latest message events that renewed it; the same event does not renew it again. */
  readonly eventIds?: readonly string[];
  /** A manual entry that replaced an event's. */
  readonly replacedEvents?: boolean;
  /** Removed from the list; the row stays until its event is on the spool. */
  readonly removed: boolean;
  readonly version: number;
}

export const rejects = collection<RejectRow>()({
  name: 'rejects',
  access: 'own',
  limited: true,
  // No index on account and address alone: SQLite would prefer it to the one that keeps expired entries out.
  indexes: [
    ['account', 'expired', 'email'],
    ['account', 'subaccount', 'expired', 'email'],
    ['expired', 'expiresAt'],
    ['unsentSince'],
  ],
  dates: ['createdAt', 'lastEventAt', 'expiresAt', 'unsentSince'],
});

/** Unique per entry: an account id contains no space, and an address only in quotes. */
export function rejectId(account: string, email: string, subaccount: string): string {
  return `${account} ${email} ${subaccount}`;
}

/** An address that events cannot put on the rejection list. `id` is `whitelistId`. */
export interface WhitelistRow extends OwnedRow, Carrier {
  /** As normalized by `canonicalAddress` (mail/suppression.ts): lower case, the domain in A-labels. */
  readonly email: string;
  readonly detail: string | null;
  readonly createdAt: Date;
  /** The lists from which it removed event entries: '' for the whole account's, else the subaccount. */
  readonly overruled?: readonly string[];
  /** Removed; the row stays until its event is on the spool. */
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
