import { z } from 'zod';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { reputationOf, REPUTATION_FORMULA, type Month } from '../../mail/reputation.ts';
import { sinceHours, windowsOf } from '../../mail/stats.ts';
import { counterId, NO_COUNTS, startOf, type CounterRow } from '../../store/counters.ts';
import type { AccountStore } from '../../store/store.ts';
import { operation, type Call } from '../operation.ts';
import {
  hoursOf, LONGEST_WINDOW_DAYS, MAX_LIST, recentOf, recentOfPage, SERIES_DAYS, SOME_STATS, statsFields, tagHourlyEntry, totalFields, totalOf, totalsAfter, toStats,
  toTagHourlyEntry, toTotals, toWindows, windowsRecord,
} from './stats-records.ts';

/** Most entries of all-time-series in one answer. */
const MAX_ENTRIES = 5000;

const tag = text(1000).meta({ description: 'a tag that mail was sent with' });
const tagRecord = z.object({
  tag: z.string().meta({ description: 'the tag' }),
  reputation: z.int().meta({ description: '0 to 100' }),
  ...statsFields,
}).meta({ title: 'tag record' });
const TAG = { tag: 'example-tag', reputation: 58, ...SOME_STATS };
const HOUR = { time: '2026-01-05 09:00:00', ...SOME_STATS };

function toTagRecord(total: CounterRow, recent: Month) {
  return { tag: total.key, reputation: reputationOf(recent), ...toStats(total) };
}

async function findTag(tag: string, { store, refuse }: Call<'Invalid_Tag_Name'>) {
  const row = await totalOf(store, 'tag', tag);
  if (!row) throw refuse('Invalid_Tag_Name', tag);
  return row;
}

const list = operation({
  path: '/tags/list',
  summary: 'Lists the tags that mail was sent with, with their totals and reputation.',
  notes: `By name, up to ${MAX_LIST} at a time; with \`after\`, those that follow. ${REPUTATION_FORMULA}`,
  params: { after: optional(text(1000)).meta({ description: 'the last tag of the page before (beyond the documented interface)' }) },
  returns: z.array(tagRecord),
  errors: [],
  example: { params: {}, answer: [TAG] },
  async handle({ after }, { store, now }) {
    const page = await totalsAfter(store, 'tag', after);
    const recent = await recentOfPage(store, 'tag', page, now());
    return page.map((total) => toTagRecord(total, recent.get(total.key) ?? NO_COUNTS));
  },
});

const remove = operation({
  path: '/tags/delete',
  summary: 'Deletes a tag: takes it off the messages that were sent with it and deletes its numbers. This cannot be undone.',
  notes: 'Answers the record as it was. Mail that is sent with the tag afterwards makes it anew. With very many messages, the rest is done within minutes.',
  params: { tag },
  returns: tagRecord,
  errors: ['Invalid_Tag_Name'],
  example: { params: { tag: 'example-tag' }, answer: TAG },
  async handle({ tag }, call) {
    const total = await findTag(tag, call);
    const recent = await recentOf(call.store, 'tag', tag, call.now());
    await call.removeTag(tag);
    return toTagRecord(total, recent);
  },
});

const info = operation({
  path: '/tags/info',
  summary: 'Shows the numbers of a tag: totals, and five windows that end now.',
  notes: 'today begins at 00:00 UTC; the other windows are days of 24 hours and begin with a whole hour.',
  params: { tag },
  returns: z.object({ tag: z.string().meta({ description: 'the tag' }), ...totalFields, stats: windowsRecord }).meta({ title: 'tag detail' }),
  errors: ['Invalid_Tag_Name'],
  example: {
    params: { tag: 'example-tag' },
    answer: {
      tag: 'example-tag', sent: 40, hard_bounces: 0, soft_bounces: 0, rejects: 0, complaints: 0, unsubs: 0, opens: 12, clicks: 3,
      stats: { today: SOME_STATS, last_7_days: SOME_STATS, last_30_days: SOME_STATS, last_60_days: SOME_STATS, last_90_days: SOME_STATS },
    },
  },
  async handle({ tag }, call) {
    const total = await findTag(tag, call);
    const hours = await hoursOf(call.store, 'tag', tag, LONGEST_WINDOW_DAYS, call.now());
    return { tag, ...toTotals(total), stats: toWindows(windowsOf(hours, call.now())) };
  },
});

const timeSeries = operation({
  path: '/tags/time-series',
  summary: 'Shows the numbers of a tag by hour, for the last 30 days.',
  notes: 'Only hours with activity, the oldest first.',
  params: { tag },
  returns: z.array(tagHourlyEntry),
  errors: ['Invalid_Tag_Name'],
  example: { params: { tag: 'example-tag' }, answer: [HOUR] },
  async handle({ tag }, call) {
    await findTag(tag, call);
    return (await hoursOf(call.store, 'tag', tag, SERIES_DAYS, call.now())).map(toTagHourlyEntry);
  },
});

const allTimeSeries = operation({
  path: '/tags/all-time-series',
  summary: 'Shows the numbers of all tags by hour, for the last 30 days.',
  notes: `An entry for each tag in each hour with activity, by time and then tag, up to ${MAX_ENTRIES} at a time; with \`after_time\` and \`after_tag\`, those that follow.`,
  params: {
    after_time: optionalTime.meta({ description: 'time of the last entry of the page before (beyond the documented interface)' }),
    after_tag: optional(z.string().max(1000)).meta({ description: 'tag of the last entry of the page before (beyond the documented interface)' }),
  },
  returns: z.array(tagHourlyEntry.extend({ tag: z.string().meta({ description: 'the tag' }) })),
  errors: [],
  example: { params: {}, answer: [{ ...HOUR, tag: 'example-tag' }] },
  async handle({ after_time: time, after_tag: name = '' }, { store, now }) {
    const oldest = sinceHours(now(), SERIES_DAYS);
    const rows = time === undefined || time <= oldest ? await hoursBehind(store, oldest) : await hoursAfter(store, startOf('hour', time), name);
    return rows.map((row) => ({ ...toTagHourlyEntry(row), tag: row.key }));
  },
});

/** Hours of all tags that begin later, by time and then tag. */
function hoursBehind({ counters }: AccountStore, start: Date, limit = MAX_ENTRIES): Promise<CounterRow[]> {
  return counters.many({ kind: 'tag', span: 'hour', start: { range: { gt: start } } }, { sort: 'start', limit });
}

/** As `hoursBehind`, after what `name` has in the hour. */
async function hoursAfter(store: AccountStore, start: Date, name: string): Promise<CounterRow[]> {
  const id = { range: { gt: counterId(store.account, 'tag', 'hour', start, name) } };
  const same = await store.counters.many({ kind: 'tag', span: 'hour', start, id }, { sort: 'id', limit: MAX_ENTRIES });
  return [...same, ...await hoursBehind(store, start, MAX_ENTRIES - same.length)];
}

/** Tags of messages and their numbers. */
export const tags = [list, remove, info, timeSeries, allTimeSeries];
