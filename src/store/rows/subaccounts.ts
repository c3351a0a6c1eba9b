import { foldCase } from '../../mail/addresses/address.ts';
import { collection, type OwnedRow } from './collection.ts';

/** A subaccount. `id` is `subaccountId`. */
export interface SubaccountRow extends OwnedRow {
  /** The id that sending calls use; case-sensitive. */
  readonly slug: string;
  /** '' if it has none. */
  readonly name: string;
  /** `searchKey` of `slug` and `name`. */
  readonly slugKey: string;
  readonly nameKey: string;
  readonly notes: string;
  /** Messages per hour; null: by reputation. */
  readonly customQuota: number | null;
  readonly status: 'active' | 'paused';
  readonly pausedAt: Date | null;
  readonly createdAt: Date;
  readonly firstSentAt: Date | null;
}

export const subaccounts = collection<SubaccountRow>()({
  name: 'subaccounts',
  access: 'own',
  limited: true,
  indexes: [
    ['account', 'slugKey'],
    ['account', 'nameKey'],
  ],
  dates: ['pausedAt', 'createdAt', 'firstSentAt'],
});

/** Unique, because an account id contains no space. */
export function subaccountId(account: string, slug: string): string {
  return `${account} ${slug}`;
}

/** The form compared in case-insensitive searches. */
export function searchKey(text: string): string {
  return foldCase(text);
}
