import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { changeInbound, selecting } from './selection.ts';

const replayInbound = operation({
  path: '/inbound/replay',
  access: 'mail',
  extension: true,
  summary: 'Replays ended deliveries by id, time, URL, status or search.',
  notes:
    'Select deliveries with `id`, `ids`, `query`, `url`, `status`, or `from` and `to` (one of the two is ' +
    'enough); all given conditions must match. By id, a delivery may have any ended state or be held; otherwise ' +
    'only dead ones are replayed, unless `state` or the query names another state. A replay keeps the ' +
    'webhook-id of the first delivery, so receivers can detect duplicates. ' +
    `More than ${MOST_AT_ONCE} deliveries are replayed by a job, which continues after the answer: /jobs/info ` +
    'shows its progress. An account has one job at a time. ' +
    'Deleted mail cannot be replayed. Each host replays only mail that it accepted.',
  params: {
    ...selecting('replay'),
    at_most: optional(z.int().min(0)).meta({ description: 'nothing is replayed if more deliveries match' }),
  },
  returns: z.object({
    matched: z.int().meta({ description: 'number of deliveries that can be replayed' }),
    forgotten: z.int().meta({
      description:
        'with `query` or `status`: number of further matches in the history whose message was deleted; otherwise 0',
    }),
    replayed: z.int().meta({ description: 'number of deliveries queued again by this call; 0 if a job replays them' }),
    job: z.string().nullable().meta({ description: 'id of the job that replays them, or null' }),
  }),
  errors: [],
  example: { from: '2026-01-05 11:00:00', to: '2026-01-05 12:00:00', route: '1.1' },
  async handle(given, call) {
    const { matched, forgotten, changed, job } = await changeInbound('replay', given, call);
    return { matched, forgotten, replayed: changed, job };
  },
});

export const replayOperations = [replayInbound];
