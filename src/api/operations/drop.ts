import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import { OPEN_STATES } from '../../queue/states.ts';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { EXAMPLE } from './deliveries.ts';
import { changeInbound, selecting } from './selection.ts';

const dropInbound = operation({
  path: '/inbound/drop',
  access: 'settings',
  extension: true,
  summary: `Ends ${inWords(OPEN_STATES)} deliveries without posting them.`,
  notes:
    'Selects as /inbound/replay does: give `id`, `ids`, `query`, `url`, `status`, or `from` and `to`; all that are given must hold. By id, any delivery in these states is dropped; else only dead ones unless `state` or the query says otherwise. ' +
    'Without ids, `at_most` is needed: nothing is dropped if more match than the caller has seen, so count with `dry_run` first. ' +
    `More than ${MOST_AT_ONCE} deliveries are dropped by a job, as with /inbound/replay. ` +
    'Senders are told nothing. What was dropped can be replayed for delivery.keep_delivered_hours. With several hosts, each drops the mail that it accepted itself.',
  params: {
    ...selecting('drop'),
    at_most: optional(z.int().min(0)).meta({
      description: 'nothing is dropped if more deliveries match; needed unless there are ids or it is a dry run',
    }),
  },
  returns: z.object({
    matched: z.int().meta({ description: 'how many deliveries can be dropped' }),
    dropped: z.int().meta({ description: 'how many were dropped by this call; 0 if there is a job' }),
    job: z.string().nullable().meta({ description: 'id of the job that drops them; null if there is none' }),
  }),
  errors: [],
  example: {
    params: { url: EXAMPLE.url, state: 'dead', at_most: 1 },
    answer: { matched: 1, dropped: 1, job: null },
  },
  async handle(given, call) {
    const { matched, changed, job } = await changeInbound('drop', given, call);
    return { matched, dropped: changed, job };
  },
});

export const drop = [dropInbound];
