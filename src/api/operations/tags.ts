import { z } from 'zod';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { type Month, NO_COUNTS, REPUTATION_FORMULA, reputationOf, sinceHours, windowsOf } from '../../mail/stats.ts';
import { pagesByTime } from '../../store/pages.ts';
import { type CounterRow, counterId, startOf } from '../../store/rows/counters.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { hasBadText } from '../requests/parameters.ts';
import { mapPages } from '../streamed-lists.ts';
import { int, record, str } from './fields.ts';
import {
  hoursOf,
  LONGEST_WINDOW_DAYS,
  recentOf,
  recentOfPage,
  SERIES_DAYS,
  statsFields,
  tagHourlyEntry,
  toStats,
  toTagHourlyEntry,
  toTotals,
  totalFields,
  totalOf,
  totalsAfter,
  toWindows,
  windowsRecord,
} from './stats.ts';

const tag = text(1000).describe('a tag that mail was sent with');
const tagRecord = record('tag record', {
  tag: str('the tag'),
  reputation: int('0 to 100'),
  ...statsFields,
});

function toTagRecord(total: CounterRow, recent: Month) {
  return { tag: total.key, reputation: reputationOf(recent), ...toStats(total) };
}

async function findTag(tag: string, { store, orRefuse }: Call<'Invalid_Tag_Name'>) {
  return orRefuse(hasBadText(tag) ? undefined : await totalOf(store, 'tag', tag), 'Invalid_Tag_Name', tag);
}

const list = listOperation({
  path: '/tags/list',
  access: 'numbers',
  summary: 'Lists the tags that mail was sent with, with their totals and reputation.',
  notes: `Returns all of them, sorted by name; \`after\` continues after one. ${REPUTATION_FORMULA}`,
  params: {
    after: optional(text(1000)).describe('continue after this tag (not part of the Mandrill API)'),
  },
  returns: z.array(tagRecord),
  pages: ({ after }, { store, now }) =>
    mapPages(totalsAfter(store, 'tag', after), async (page) => {
      const recent = await recentOfPage(store, 'tag', page, now());
      return page.map((total) => toTagRecord(total, recent.get(total.key) ?? NO_COUNTS));
    }),
});

/** Operations on one tag have these in common. */
const ofTag = {
  params: { tag },
  anyText: ['tag'],
  errors: ['Invalid_Tag_Name'],
  example: { tag: 'example-tag' },
} as const;

const remove = operation({
  path: '/tags/delete',
  access: 'settings',
  summary:
    'Deletes a tag: removes it from the messages that were sent with it and deletes its statistics. This cannot ' +
    'be undone.',
  notes:
    'Returns the deleted record. Sending mail with the tag creates it again. If it has very many messages, the ' +
    'removal finishes within minutes.',
  ...ofTag,
  returns: tagRecord,
  async handle({ tag }, call) {
    const total = await findTag(tag, call);
    const recent = await recentOf(call.store, 'tag', tag, call.now());
    await call.counters.removeTag(tag);
    return toTagRecord(total, recent);
  },
});

const info = operation({
  path: '/tags/info',
  access: 'numbers',
  summary: 'Shows the statistics of a tag: totals, and five windows that end now.',
  notes: 'today starts at 00:00 UTC; the other windows are days of 24 hours and start on the hour.',
  ...ofTag,
  returns: record('tag detail', { tag: str('the tag'), ...totalFields, stats: windowsRecord }),
  async handle({ tag }, call) {
    const total = await findTag(tag, call);
    const hours = await hoursOf(call.store, 'tag', tag, LONGEST_WINDOW_DAYS, call.now());
    return { tag, ...toTotals(total), stats: toWindows(windowsOf(hours, call.now())) };
  },
});

const timeSeries = operation({
  path: '/tags/time-series',
  access: 'numbers',
  summary: 'Shows the statistics of a tag by hour, for the last 30 days.',
  notes: 'Only hours with activity, oldest first.',
  ...ofTag,
  returns: z.array(tagHourlyEntry),
  async handle({ tag }, call) {
    await findTag(tag, call);
    return (await hoursOf(call.store, 'tag', tag, SERIES_DAYS, call.now())).map(toTagHourlyEntry);
  },
});

const allTimeSeries = listOperation({
  path: '/tags/all-time-series',
  access: 'numbers',
  summary: 'Shows the statistics of all tags by hour, for the last 30 days.',
  notes:
    'An entry for each tag in each hour with activity, by time and then tag; `after_time` and `after_tag` ' +
    'continue after one.',
  params: {
    after_time: optionalTime.describe('continue in this hour, after `after_tag` (not part of the Mandrill API)'),
    after_tag: optional(z.string().max(1000)).describe(
      'the tag to continue after in that hour (not part of the Mandrill API)',
    ),
  },
  returns: z.array(tagHourlyEntry.extend({ tag: str('the tag') })),
  pages({ after_time: time, after_tag: name = '' }, { store, now }) {
    const oldest = sinceHours(now(), SERIES_DAYS);
    const filter = { kind: 'tag', span: 'hour' } as const;
    const hour = time === undefined || time <= oldest ? undefined : startOf('hour', time);
    // The ids of one hour sort by tag.
    const id = hour && counterId(store.account, 'tag', 'hour', hour, name);
    const rows = pagesByTime(store.counters, 'start', { filter, after: hour ?? oldest, id });
    return mapPages(rows, (page) => page.map((row) => ({ ...toTagHourlyEntry(row), tag: row.key })));
  },
});

export const tagOperations = [list, remove, info, timeSeries, allTimeSeries];
