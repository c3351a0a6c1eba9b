import { z } from 'zod';
import { addUpMonths, type Counts, type Month, sinceHours, type Windows } from '../../mail/stats.ts';
import { pagesByKey } from '../../store/pages.ts';
import {
  type CounterRow,
  type CounterSubject,
  counterId,
  reputationMonths,
  startOf,
} from '../../store/rows/counters.ts';
import type { AccountStore } from '../../store/store.ts';
import type { Pages } from '../streamed-lists.ts';
import { int, record, str, time, toTime } from './fields.ts';

// Records with statistics, and their conversion from counters. Several groups share them: senders, tags, templates,
// subaccounts, rejects, users.

/** Maximum records of a list that Mandrill documents as limited. */
export const MAX_LIST = 1000;

/** The ten counters, as records show them. */
export const statsFields = {
  sent: int('messages sent'),
  hard_bounces: int('hard bounces'),
  soft_bounces: int('soft bounces'),
  rejects: int('messages rejected before sending'),
  complaints: int('spam complaints'),
  unsubs: int('unsubscribes'),
  opens: int('opens'),
  unique_opens: int('messages that were opened'),
  clicks: int('clicks'),
  unique_clicks: int('messages in which a link was clicked'),
};

export const statsBlock = z
  .object(statsFields)
  .meta({ title: 'stats block', description: `the integers ${Object.keys(statsFields).join(', ')}` });

/** The ten counters of a row, or of a sum of rows. */
export function toStats(counts: Counts) {
  return {
    sent: counts.sent,
    hard_bounces: counts.hardBounces,
    soft_bounces: counts.softBounces,
    rejects: counts.rejects,
    complaints: counts.complaints,
    unsubs: counts.unsubs,
    opens: counts.opens,
    unique_opens: counts.uniqueOpens,
    clicks: counts.clicks,
    unique_clicks: counts.uniqueClicks,
  };
}

/** Totals of a detail record: the ten counters except the unique ones. */
const { unique_opens: _opens, unique_clicks: _clicks, ...totals } = statsFields;
export const totalFields = totals;

export function toTotals(counts: Counts) {
  const { unique_opens: _, unique_clicks: __, ...totals } = toStats(counts);
  return totals;
}

/** The names of the five windows, each with a stats block. */
export const windowFields = {
  today: statsBlock,
  last_7_days: statsBlock,
  last_30_days: statsBlock,
  last_60_days: statsBlock,
  last_90_days: statsBlock,
};

export const windowsRecord = z.object(windowFields).describe('a stats block for each window');

export function toWindows(windows: Windows) {
  return {
    today: toStats(windows.today),
    last_7_days: toStats(windows.last_7_days),
    last_30_days: toStats(windows.last_30_days),
    last_60_days: toStats(windows.last_60_days),
    last_90_days: toStats(windows.last_90_days),
  };
}

const { unsubs: _, ...hourlyFields } = statsFields;

/** An entry of a time series of a template or a sender. */
export const hourlyEntry = record('hourly entry', { time: time('the hour'), ...hourlyFields });

/** An entry of a time series of a tag, which counts unsubs too. */
export const tagHourlyEntry = record('tag hourly entry', { time: time('the hour'), ...statsFields });

export function toHourlyEntry(row: CounterRow) {
  const { unsubs: _, ...counts } = toStats(row);
  return { time: toTime(row.start), ...counts };
}

export function toTagHourlyEntry(row: CounterRow) {
  return { time: toTime(row.start), ...toStats(row) };
}

/** A sender with its totals: in senders/list and inside a reject entry. */
export const senderRecord = record('sender record', {
  address: str('the sending address'),
  created_at: time('when it was first used'),
  ...statsFields,
});

export function toSenderRecord(row: CounterRow) {
  return { address: row.key, created_at: toTime(row.firstAt), ...toStats(row) };
}

type Counters = Pick<AccountStore, 'counters'>;
type Totals = Pick<AccountStore, 'account' | 'counters'>;

/** The all-time counts of one subject; undefined if nothing was counted. */
export function totalOf({ counters }: Counters, kind: CounterSubject, key: string): Promise<CounterRow | undefined> {
  return counters.one({ kind, span: 'total', key });
}

/** The hours of the last `days` days with counts of one subject, oldest first. */
export function hoursOf(
  { counters }: Counters,
  kind: CounterSubject,
  key: string,
  days: number,
  now: Date,
): Promise<CounterRow[]> {
  return counters.many({ kind, span: 'hour', key, start: { range: { gt: sinceHours(now, days) } } }, { sort: 'start' });
}

/** The counts that the reputation of one subject is based on: this month and the one before. */
export async function recentOf({ counters }: Counters, kind: CounterSubject, key: string, now: Date): Promise<Month> {
  return addUpMonths(await counters.many({ kind, span: 'month', key, start: { in: [...reputationMonths(now)] } }));
}

/** The all-time counts of all subjects of a kind, by key, in pages; begins after the key `after`. */
export function totalsAfter(
  { account, counters }: Totals,
  kind: CounterSubject,
  after: string | undefined,
): Pages<CounterRow> {
  const start = startOf('total', new Date(0));
  const first = after === undefined ? undefined : counterId(account, kind, 'total', start, after);
  return pagesByKey(
    first,
    (row: CounterRow) => row.id,
    (id, limit) => {
      const page = id === undefined ? {} : { id: { range: { gt: id } } };
      return counters.many({ kind, span: 'total', start, ...page }, { sort: 'id', limit });
    },
  );
}

/**
 * For a page of totals: key to the counts that its reputation is based on. Two queries, whatever the length of the
 * page.
 */
export async function recentOfPage(
  { account, counters }: Totals,
  kind: CounterSubject,
  page: readonly CounterRow[],
  now: Date,
): Promise<Map<string, Month>> {
  const first = page[0];
  const last = page.at(-1);
  if (!first || !last) return new Map();
  const months = await Promise.all(
    reputationMonths(now).map((start) => {
      const idOf = (key: string) => counterId(account, kind, 'month', start, key);
      return counters.many({
        kind,
        span: 'month',
        start,
        id: { range: { gte: idOf(first.key), lte: idOf(last.key) } },
      });
    }),
  );
  return new Map([...Map.groupBy(months.flat(), ({ key }) => key)].map(([key, own]) => [key, addUpMonths(own)]));
}

/** Days of a time series. */
export const SERIES_DAYS = 30;
/** Days of the longest window. */
export const LONGEST_WINDOW_DAYS = 90;
