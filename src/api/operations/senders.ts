import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { optional, text } from '../../base/schema.ts';
import { parseAddress } from '../../mail/address.ts';
import { windowsOf } from '../../mail/stats.ts';
import { type Call, listing, operation } from '../operation.ts';
import { mapPages } from '../whole-lists.ts';
import {
  hourlyEntry,
  hoursOf,
  LONGEST_WINDOW_DAYS,
  SERIES_DAYS,
  SOME_STATS,
  senderRecord,
  toHourlyEntry,
  toSenderRecord,
  toTotals,
  totalFields,
  totalOf,
  totalsAfter,
  toWindows,
  windowsRecord,
} from './stats-records.ts';

/** A sender as the examples have it. */
const SENDER_EXAMPLE = { address: 'news@example.com', created_at: '2026-01-05 09:00:00', ...SOME_STATS };
/** What holds for both lists of senders. */
const SENDERS_NOTES =
  'By address, all of them; with `after`, those that follow. Addresses appear with the first event of their mail.';
/** Where the next page begins. */
const afterAddress = optional(text(1000)).meta({
  description: 'where to begin: behind this address (beyond the documented interface)',
});

/** An address that mail was sent from, as counters have it: in lower case. */
const address = text(1000)
  .transform((value, context) => {
    const sender = value.trim();
    if (parseAddress(sender)) return { given: sender, key: sender.toLowerCase() };
    context.addIssue({ code: 'custom', message: 'Not a valid email address' });
    return z.NEVER;
  })
  .meta({ description: 'the sending address, in any case' });

/** The list of senders, which stands at two paths. */
export function listAt(path: '/senders/list' | '/users/senders') {
  return listing({
    path,
    summary: 'Lists the addresses that the account has sent from, with their totals.',
    notes: SENDERS_NOTES,
    params: { after: afterAddress },
    returns: z.array(senderRecord),
    errors: [],
    example: { params: {}, answer: [SENDER_EXAMPLE] },
    pages: ({ after }, { store }) =>
      mapPages(totalsAfter(store, 'sender', after?.toLowerCase()), (page) => page.map(toSenderRecord)),
  });
}

async function findSender(
  { given, key }: { readonly given: string; readonly key: string },
  { store, refuse }: Call<'Unknown_Sender'>,
) {
  const row = await totalOf(store, 'sender', key);
  if (!row) throw refuse('Unknown_Sender', given);
  return row;
}

const info = operation({
  path: '/senders/info',
  summary: 'Shows the numbers of a sender: totals, and five windows that end now.',
  notes: 'today begins at 00:00 UTC; the other windows are days of 24 hours and begin with a whole hour.',
  params: { address },
  returns: z
    .object({
      address: z.string().meta({ description: 'the sending address' }),
      created_at: z.string().meta({ description: 'when it was first seen, UTC, YYYY-MM-DD HH:MM:SS' }),
      ...totalFields,
      stats: windowsRecord,
    })
    .meta({ title: 'sender detail' }),
  errors: ['Unknown_Sender'],
  example: {
    params: { address: 'news@example.com' },
    answer: {
      address: 'news@example.com',
      created_at: '2026-01-05 09:00:00',
      sent: 40,
      hard_bounces: 0,
      soft_bounces: 0,
      rejects: 0,
      complaints: 0,
      unsubs: 0,
      opens: 12,
      clicks: 3,
      stats: {
        today: SOME_STATS,
        last_7_days: SOME_STATS,
        last_30_days: SOME_STATS,
        last_60_days: SOME_STATS,
        last_90_days: SOME_STATS,
      },
    },
  },
  async handle({ address }, call) {
    const total = await findSender(address, call);
    const hours = await hoursOf(call.store, 'sender', total.key, LONGEST_WINDOW_DAYS, call.now());
    return {
      address: total.key,
      created_at: toTimestamp(total.firstAt),
      ...toTotals(total),
      stats: toWindows(windowsOf(hours, call.now())),
    };
  },
});

const { unsubs: _, ...HOUR } = { time: '2026-01-05 09:00:00', ...SOME_STATS };

const timeSeries = operation({
  path: '/senders/time-series',
  summary: 'Shows the numbers of a sender by hour, for the last 30 days.',
  notes: 'Only hours with activity, the oldest first.',
  params: { address },
  returns: z.array(hourlyEntry),
  errors: ['Unknown_Sender'],
  example: { params: { address: 'news@example.com' }, answer: [HOUR] },
  async handle({ address }, call) {
    const { key } = await findSender(address, call);
    return (await hoursOf(call.store, 'sender', key, SERIES_DAYS, call.now())).map(toHourlyEntry);
  },
});

/** Sending addresses and their numbers. */
export const senders = [listAt('/senders/list'), info, timeSeries];
