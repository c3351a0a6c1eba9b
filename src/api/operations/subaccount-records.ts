import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { hourlyQuota, reputationOf } from '../../mail/reputation.ts';
import type { Tally } from '../../mail/stats.ts';
import type { SubaccountRow } from '../../store/subaccounts.ts';
import { NO_STATS, statsBlock, toStats } from './stats-records.ts';
import type { SubaccountNumbers } from './subaccount-numbers.ts';

const say = (description: string) => z.string().meta({ description });
const count = (description: string) => z.int().meta({ description });

export const subaccountRecord = z
  .object({
    id: say('unique identifier, used in sending calls'),
    name: z.string().nullable().meta({ description: 'display name; null when there is none' }),
    custom_quota: z.int().nullable().meta({ description: 'hourly quota set by hand; null: by reputation' }),
    status: z
      .enum(['active', 'paused'])
      .meta({ description: 'mail of a paused subaccount is queued for at most 3 days' }),
    reputation: count('0 to 100'),
    created_at: say('when it was added, UTC, YYYY-MM-DD HH:MM:SS'),
    first_sent_at: z
      .string()
      .nullable()
      .meta({ description: 'when it first sent, UTC, YYYY-MM-DD HH:MM:SS; null before' }),
    sent_weekly: count('sent this week, which began on Monday 00:00 UTC'),
    sent_monthly: count('sent this month, which began on the 1st, 00:00 UTC'),
    sent_total: count('sent since it was added'),
  })
  .meta({ title: 'subaccount record' });

export const subaccountDetail = subaccountRecord
  .extend({
    notes: say('notes'),
    sent_hourly: count('sent in the last 60 minutes, to the minute'),
    hourly_quota: count('messages it may send in an hour: the custom quota, or by reputation'),
    last_30_days: statsBlock,
  })
  .meta({ title: 'subaccount detail' });

export function toSubaccountRecord(row: SubaccountRow, numbers: SubaccountNumbers) {
  return {
    id: row.slug,
    name: row.name === '' ? null : row.name,
    custom_quota: row.customQuota,
    status: row.status,
    reputation: reputationOf(numbers.recent),
    created_at: toTimestamp(row.createdAt),
    first_sent_at: numbers.firstSentAt === null ? null : toTimestamp(numbers.firstSentAt),
    sent_weekly: numbers.week,
    sent_monthly: numbers.month,
    sent_total: numbers.total,
  };
}

export function toSubaccountDetail(
  row: SubaccountRow,
  numbers: SubaccountNumbers,
  recently: { readonly sentHourly: number; readonly last30Days: Tally },
) {
  return {
    ...toSubaccountRecord(row, numbers),
    notes: row.notes,
    sent_hourly: recently.sentHourly,
    hourly_quota: row.customQuota ?? hourlyQuota(reputationOf(numbers.recent), numbers.recent),
    last_30_days: toStats(recently.last30Days),
  };
}

// For the examples.
export const SUBACCOUNT = {
  id: 'cust-123',
  name: 'ABC Widgets, Inc.',
  custom_quota: 42,
  status: 'active',
  reputation: 50,
  created_at: '2026-01-05 11:00:00',
  first_sent_at: null,
  sent_weekly: 0,
  sent_monthly: 0,
  sent_total: 0,
};
export const SUBACCOUNT_DETAIL = {
  ...SUBACCOUNT,
  notes: 'Free plan user, signed up on 2026-01-05',
  sent_hourly: 0,
  hourly_quota: 42,
  last_30_days: NO_STATS,
};
