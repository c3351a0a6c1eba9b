import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { QUOTA_FORMULA, reputationOf, REPUTATION_FORMULA, hourlyQuota } from '../../mail/reputation.ts';
import { totals, windowsOf } from '../../mail/stats.ts';
import type { Counts } from '../../store/counters.ts';
import { operation } from '../operation.ts';

const counter = z.int();

/** The ten counters, as records show them. */
const statsFields = {
  sent: counter, hard_bounces: counter, soft_bounces: counter, rejects: counter, complaints: counter,
  unsubs: counter, opens: counter, unique_opens: counter, clicks: counter, unique_clicks: counter,
};
const statsBlock = z.object(statsFields).meta({ title: 'stats block', description: `the integers ${Object.keys(statsFields).join(', ')}` });

function toStats(counts: Counts) {
  return {
    sent: counts.sent, hard_bounces: counts.hardBounces, soft_bounces: counts.softBounces, rejects: counts.rejects, complaints: counts.complaints,
    unsubs: counts.unsubs, opens: counts.opens, unique_opens: counts.uniqueOpens, clicks: counts.clicks, unique_clicks: counts.uniqueClicks,
  };
}

// For the examples.
const NOTHING = { sent: 0, hard_bounces: 0, soft_bounces: 0, rejects: 0, complaints: 0, unsubs: 0, opens: 0, unique_opens: 0, clicks: 0, unique_clicks: 0 };
const SOME = { ...NOTHING, sent: 40, opens: 12, unique_opens: 10, clicks: 3, unique_clicks: 3 };

const ping = operation({
  path: '/users/ping',
  summary: 'Answers PONG! when the key is good.',
  params: {},
  returns: z.literal('PONG!'),
  errors: [],
  example: { params: {}, answer: 'PONG!' },
  handle: () => Promise.resolve('PONG!' as const),
});

const ping2 = operation({
  path: '/users/ping2',
  summary: 'As ping, with a struct for an answer.',
  params: {},
  returns: z.object({ PING: z.literal('PONG!') }),
  errors: [],
  example: { params: {}, answer: { PING: 'PONG!' } },
  handle: () => Promise.resolve({ PING: 'PONG!' as const }),
});

const info = operation({
  path: '/users/info',
  summary: 'Shows the account that the key belongs to.',
  notes: `${REPUTATION_FORMULA} ${QUOTA_FORMULA}`,
  params: {},
  returns: z.object({
    username: z.string().meta({ description: 'name of the account' }),
    created_at: z.string().meta({ description: 'when the account was made, UTC, YYYY-MM-DD HH:MM:SS' }),
    public_id: z.string().meta({ description: 'unique identifier of the account' }),
    reputation: z.int().meta({ description: '0 to 100' }),
    hourly_quota: z.int().meta({ description: 'messages that may be sent in an hour' }),
    backlog: z.int().meta({ description: 'deliveries that wait' }),
    stats: z.object({
      today: statsBlock, last_7_days: statsBlock, last_30_days: statsBlock, last_60_days: statsBlock, last_90_days: statsBlock, all_time: statsBlock,
    }).meta({ description: 'a stats block for each window' }),
  }),
  errors: [],
  example: {
    params: {},
    answer: {
      username: 'main', created_at: '2026-01-01 00:00:00', public_id: 'ExampleAccountId000001', reputation: 58, hourly_quota: 350, backlog: 0,
      stats: { today: SOME, last_7_days: SOME, last_30_days: SOME, last_60_days: SOME, last_90_days: SOME, all_time: SOME },
    },
  },
  async handle(_, { account, store, backlog, now }) {
    const hours = await store.counters.many({ kind: 'account' });
    const windows = windowsOf(hours, now());
    const reputation = reputationOf(windows.last_30_days);
    return {
      username: account.name,
      created_at: toTimestamp(account.createdAt),
      public_id: account.id,
      reputation,
      hourly_quota: hourlyQuota(reputation, windows.last_30_days),
      backlog: backlog(),
      stats: {
        today: toStats(windows.today), last_7_days: toStats(windows.last_7_days), last_30_days: toStats(windows.last_30_days),
        last_60_days: toStats(windows.last_60_days), last_90_days: toStats(windows.last_90_days), all_time: toStats(windows.all_time),
      },
    };
  },
});

const senders = operation({
  path: '/users/senders',
  summary: 'Lists the addresses that the account has sent from, with their totals.',
  params: {},
  returns: z.array(z.object({
    address: z.string().meta({ description: 'the sender' }),
    created_at: z.string().meta({ description: 'when it was first seen, UTC, YYYY-MM-DD HH:MM:SS' }),
    ...statsFields,
  })),
  errors: [],
  example: { params: {}, answer: [{ address: 'news@example.com', created_at: '2026-01-05 09:00:00', ...SOME }] },
  async handle(_, { store }) {
    const hours = await store.counters.many({ kind: 'sender' }, { sort: 'hour' });
    return [...totals(hours)].map(([address, { first, counts }]) => ({ address, created_at: toTimestamp(first), ...toStats(counts) }));
  },
});

/** The account itself. */
export const users = [ping, ping2, info, senders];
