import { type RejectRow, rejectId, type WhitelistRow, whitelistId } from '../../src/store/rows/lists.ts';
import { type SubaccountRow, searchKey, subaccountId } from '../../src/store/rows/subaccounts.ts';
import type { Store } from '../../src/store/store.ts';

const KEPT = { unsent: null, unsentSince: null, removed: false, version: 1 } as const;
const CREATED_AT = new Date('2026-01-05T11:00:00Z');

/** A row of the rejection list, as an entry by hand. */
export function rejectRow(account: string, email: string, fields: Partial<RejectRow> = {}): RejectRow {
  const { subaccount = '' } = fields;
  return {
    ...KEPT,
    id: rejectId(account, email, subaccount),
    account,
    email,
    subaccount,
    reason: 'custom',
    detail: null,
    createdAt: CREATED_AT,
    lastEventAt: CREATED_AT,
    expiresAt: null,
    expired: false,
    sender: null,
    termMs: 0,
    ...fields,
  };
}

/** A row of the whitelist. */
export function whitelistRow(account: string, email: string, fields: Partial<WhitelistRow> = {}): WhitelistRow {
  return { ...KEPT, id: whitelistId(account, email), account, email, detail: null, createdAt: CREATED_AT, ...fields };
}

/** A row of a subaccount. */
export function subaccountRow(account: string, slug: string, fields: Partial<SubaccountRow> = {}): SubaccountRow {
  const { name = '' } = fields;
  return {
    id: subaccountId(account, slug),
    account,
    slug,
    name,
    slugKey: searchKey(slug),
    nameKey: searchKey(name),
    notes: '',
    customQuota: null,
    status: 'active',
    pausedAt: null,
    createdAt: CREATED_AT,
    firstSentAt: null,
    ...fields,
  };
}

/** What the examples of rejects, whitelists and subaccounts start from. */
export async function seedLists(store: Store, account: string): Promise<void> {
  const at = new Date('2026-01-05T10:00:00Z');
  await store.rejects.insert(
    rejectRow(account, 'gone@example.com', {
      reason: 'hard-bounce',
      detail: 'smtp;550 5.1.1 no such user',
      createdAt: at,
      lastEventAt: at,
      expiresAt: new Date('2026-01-12T10:00:00Z'),
      termMs: 7 * 86_400_000,
      sender: 'news@example.com',
    }),
  );
  await store.whitelists.insert(whitelistRow(account, 'friend@example.com', { detail: 'a partner' }));
  await store.subaccounts.insert(
    subaccountRow(account, 'cust-123', {
      name: 'ABC Widgets, Inc.',
      notes: 'Free plan user, signed up on 2026-01-05',
      customQuota: 42,
    }),
  );
}
