import { z } from 'zod';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { changeInbound, selecting } from './selection.ts';

const replayInbound = operation({
  path: '/inbound/replay',
  access: 'mail',
  extension: true,
  summary: 'Replays deliveries that have ended: by id, by time, by URL or status, or all that a search finds.',
  notes:
    'Give `id`, `ids`, `query`, `url`, `status`, or `from` and `to` (one of the two is enough); all that are given must hold. By id, any delivery that has ended or is held is replayed; else only dead ones unless `state` or the query says otherwise. A replay keeps the webhook-id of the first delivery, so that receivers can detect duplicates. ' +
    `More than ${MOST_AT_ONCE} deliveries are replayed by a job, which goes on after the answer: /jobs/info shows how far it is. An account has one job at a time. ` +
    'Mail that the queue has deleted cannot be replayed. With several hosts, each replays the mail that it accepted itself.',
  params: selecting('replay'),
  returns: z.object({
    matched: z.int().meta({ description: 'how many deliveries can be replayed' }),
    forgotten: z.int().meta({
      description:
        'with `query` or `status`: how many more match in the history, but the queue has deleted their message; else 0',
    }),
    replayed: z.int().meta({ description: 'how many were queued again by this call; 0 if there is a job' }),
    job: z.string().nullable().meta({ description: 'id of the job that replays them; null if there is none' }),
  }),
  errors: [],
  example: {
    params: { from: '2026-01-05 11:00:00', to: '2026-01-05 12:00:00', route: '1.1' },
    answer: { matched: 1, forgotten: 0, replayed: 1, job: null },
  },
  async handle(given, call) {
    const { matched, forgotten, changed, job } = await changeInbound('replay', given, call);
    return { matched, forgotten, replayed: changed, job };
  },
});

export const replayOperations = [replayInbound];
