import { z } from 'zod';
import {
  hourlyQuota,
  NO_COUNTS,
  QUOTA_FORMULA,
  REPUTATION_FORMULA,
  reputationOf,
  windowsOf,
} from '../../mail/stats.ts';
import { askAll } from '../hosts/join-hosts.ts';
import { type Call, operation } from '../operation.ts';
import { ALL_HOSTS, int, str, time, toTime } from './fields.ts';
import { listAt } from './senders.ts';
import {
  hoursOf,
  LONGEST_WINDOW_DAYS,
  recentOf,
  statsBlock,
  toStats,
  totalOf,
  toWindows,
  windowFields,
} from './stats.ts';

const ping = operation({
  path: '/users/ping',
  access: 'numbers',
  summary: 'Returns "PONG!" if the key is valid.',
  params: {},
  returns: z.literal('PONG!'),
  handle: () => Promise.resolve('PONG!' as const),
});

const ping2 = operation({
  path: '/users/ping2',
  access: 'numbers',
  summary: 'Like ping, but returns a struct.',
  params: {},
  returns: z.object({ PING: z.literal('PONG!') }),
  handle: () => Promise.resolve({ PING: 'PONG!' as const }),
});

async function infoOf({ account, store, queue, now }: Call<never>) {
  const [hours, recent, total] = await Promise.all([
    hoursOf(store, 'account', account.id, LONGEST_WINDOW_DAYS, now()),
    recentOf(store, 'account', account.id, now()),
    totalOf(store, 'account', account.id),
  ]);
  const reputation = reputationOf(recent);
  return {
    username: account.name,
    created_at: toTime(account.createdAt),
    public_id: account.id,
    reputation,
    hourly_quota: hourlyQuota(reputation, recent),
    backlog: queue.backlog(),
    stats: { ...toWindows(windowsOf(hours, now())), all_time: toStats(total ?? NO_COUNTS) },
  };
}

const info = operation({
  path: '/users/info',
  access: 'numbers',
  summary: 'Shows the account that the key belongs to.',
  notes: `${REPUTATION_FORMULA} ${QUOTA_FORMULA} ${ALL_HOSTS}`,
  params: {},
  returns: z.object({
    username: str('name of the account'),
    created_at: time('when the account was created'),
    public_id: str('unique identifier of the account'),
    reputation: int('0 to 100'),
    hourly_quota: int('messages that may be sent in an hour'),
    backlog: int('queued deliveries, on all hosts'),
    stats: z.object({ ...windowFields, all_time: statsBlock }).describe('a stats block for each window'),
  }),
  handle: (_, call) => infoOf(call),
  across: {
    part: z.object({ backlog: z.int() }),
    own: async (_, { queue }) => ({ backlog: queue.backlog() }),
    async join(hosts, _, call) {
      const [own, parts] = await Promise.all([infoOf(call), askAll(hosts)]);
      return { ...own, backlog: parts.reduce((sum, { backlog }) => sum + backlog, 0) };
    },
  },
});

export const users = [ping, ping2, info, listAt('/users/senders')];
