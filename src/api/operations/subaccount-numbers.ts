import { addUpMonths, type Month } from '../../mail/reputation.ts';
import { addUp, type Tally } from '../../mail/stats.ts';
import {
  type CounterRow,
  counterId,
  NO_COUNTS,
  reputationMonths,
  type Span,
  sinceMinutes,
  startOf,
} from '../../store/counters.ts';
import type { AccountStore } from '../../store/store.ts';
import type { SubaccountRow } from '../../store/subaccounts.ts';
import { hoursOf } from './stats-records.ts';

/** What is counted of one subaccount, as its record needs it. */
export interface SubaccountNumbers {
  readonly week: number;
  readonly month: number;
  readonly total: number;
  /** Counts of this month and the one before: what reputation is made of. */
  readonly recent: Month;
  readonly firstSentAt: Date | null;
}

/** The numbers of many subaccounts: four queries, however many. */
export async function numbersOf(
  { account, counters }: AccountStore,
  rows: readonly SubaccountRow[],
  now: Date,
): Promise<(row: SubaccountRow) => SubaccountNumbers> {
  const of = async (span: Span, start: Date): Promise<Map<string, CounterRow>> => {
    const ids = rows.map(({ slug }) => counterId(account, 'subaccount', span, start, slug));
    // The ids name all of it; the rest says which index ends in them.
    const found = await counters.many({ kind: 'subaccount', span, start, id: { in: ids } });
    return new Map(found.map((counter) => [counter.key, counter]));
  };
  const [thisMonth, monthBefore] = reputationMonths(now);
  const [weeks, months, monthsBefore, totals] = await Promise.all([
    of('week', startOf('week', now)),
    of('month', thisMonth),
    of('month', monthBefore),
    of('total', startOf('total', now)),
  ]);
  return (row) => {
    const total = totals.get(row.slug);
    const month = months.get(row.slug) ?? NO_COUNTS;
    return {
      week: weeks.get(row.slug)?.sent ?? 0,
      month: month.sent,
      total: total?.sent ?? 0,
      recent: addUpMonths([monthsBefore.get(row.slug) ?? NO_COUNTS, month]),
      firstSentAt: row.firstSentAt ?? (total && total.sent > 0 ? total.firstAt : null),
    };
  };
}

const DAYS = 30;

/** What a subaccount did in the last hour and in the last 30 days. */
export async function recentlyOf(
  store: AccountStore,
  slug: string,
  now: Date,
): Promise<{ readonly sentHourly: number; readonly last30Days: Tally }> {
  const [hours, minutes] = await Promise.all([
    hoursOf(store, 'subaccount', slug, DAYS, now),
    store.counters.many({ kind: 'subaccount', span: 'minute', key: slug, start: { range: { gt: sinceMinutes(now) } } }),
  ]);
  return { sentHourly: addUp(minutes).sent, last30Days: addUp(hours) };
}
