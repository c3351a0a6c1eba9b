import { isExpired } from '../../mail/suppression.ts';
import type { RejectRow } from '../../store/rejects.ts';
import type { AccountStore } from '../../store/store.ts';
import { MAX_LIST } from './stats-records.ts';

interface Search {
  /** '' for all addresses. */
  readonly prefix: string;
  readonly includeExpired: boolean;
  /** '' for the entries of the whole account and of all subaccounts. */
  readonly subaccount: string;
}

type Rejects = Pick<AccountStore, 'rejects'>;

/** The first entries by address, at most MAX_LIST. Whether one has expired is told by the clock: the task that marks them comes later. */
export async function listRejects(store: Rejects, search: Search, now: Date): Promise<RejectRow[]> {
  if (!search.includeExpired) return standing(store, search, now);
  // The index is by `expired` first, so that hidden entries cost nothing; both halves of it are in order.
  const halves = await Promise.all(
    [false, true].map((expired) => page(store, search, { expired, from: null, limit: MAX_LIST })),
  );
  return halves.flat().toSorted(byAddress).slice(0, MAX_LIST);
}

/** Pages until enough entries have not expired: one page, unless the task is late. */
async function standing(store: Rejects, search: Search, now: Date): Promise<RejectRow[]> {
  const found = new Map<string, RejectRow>();
  let from: string | null = null;
  let again = 0;
  for (;;) {
    const limit: number = MAX_LIST + again;
    const rows: RejectRow[] = await page(store, search, { expired: false, from, limit });
    const matching = rows.filter(({ email }) => email.startsWith(search.prefix));
    for (const row of matching) if (!isExpired(row, now)) found.set(row.id, row);
    if (found.size >= MAX_LIST || matching.length < limit) return [...found.values()].slice(0, MAX_LIST);
    // The next page begins with the last address, which may have entries of more subaccounts; those seen come again.
    const last = rows.at(-1)?.email ?? null;
    from = last;
    again = rows.filter(({ email }) => email === last).length;
  }
}

function page(
  { rejects }: Rejects,
  { prefix, subaccount }: Search,
  { expired, from, limit }: { expired: boolean; from: string | null; limit: number },
): Promise<RejectRow[]> {
  const of = subaccount === '' ? {} : { subaccount };
  const email =
    from === null ? (prefix === '' ? {} : { email: { startsWith: prefix } }) : { email: { range: { gte: from } } };
  return rejects.many({ ...of, expired, ...email, removed: false }, { sort: 'email', limit });
}

/** By code points, as the store orders text. */
function byAddress(a: RejectRow, b: RejectRow): number {
  return compare(a.email, b.email) || compare(a.subaccount, b.subaccount);
}

function compare(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
