import { fold } from '../../mail/address.ts';
import { collection, type OwnedRow } from './collection.ts';

/** A customer of the account. `id` is `subaccountId`. */
export interface SubaccountRow extends OwnedRow {
  /** The id that sending calls use; letters count as they are. */
  readonly slug: string;
  /** '' when it has none. */
  readonly name: string;
  /** `searchKey` of `slug` and of `name`. */
  readonly slugKey: string;
  readonly nameKey: string;
  readonly notes: string;
  /** Messages an hour; null: by reputation. */
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

/** An account id holds no space, so no two subaccounts share one. */
export function subaccountId(account: string, slug: string): string {
  return `${account} ${slug}`;
}

/** What a search without regard to case compares. */
export function searchKey(text: string): string {
  return fold(text);
}
