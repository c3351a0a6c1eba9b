import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { inWords } from '../../base/tables.ts';
import { OPEN_STATES } from '../../queue/states.ts';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { changeInbound, selecting } from './selection.ts';

const dropInbound = operation({
  path: '/inbound/drop',
  access: 'settings',
  extension: true,
  summary: `Drops ${inWords(OPEN_STATES)} deliveries without posting them.`,
  notes:
    'Select deliveries with `id`, `ids`, `query`, `url`, `status`, or `from` and `to`, as in /inbound/replay; ' +
    'all given conditions must match. By id, a delivery may be waiting, held or dead; otherwise only dead ones ' +
    'are dropped, unless `state` or the query names another state. ' +
    'Without ids, `at_most` is required: nothing is dropped if more deliveries match. Call with `dry_run` first ' +
    'to count them. ' +
    `A job drops more than ${MOST_AT_ONCE} deliveries, as in /inbound/replay. ` +
    'Senders are not notified. Dropped mail can be replayed for delivery.keep_delivered_hours. Each host drops ' +
    'only mail that it accepted.',
  params: {
    ...selecting('drop'),
    at_most: optional(z.int().min(0)).meta({
      description: 'nothing is dropped if more deliveries match; required unless ids are given or `dry_run` is true',
    }),
  },
  returns: z.object({
    matched: z.int().meta({ description: 'number of deliveries that can be dropped' }),
    dropped: z.int().meta({ description: 'number of deliveries dropped by this call; 0 if a job drops them' }),
    job: z.string().nullable().meta({ description: 'id of the job that drops them, or null' }),
  }),
  errors: [],
  example: { url: 'https://app.example.com/hooks/mail', state: 'dead', at_most: 1 },
  async handle(given, call) {
    const { matched, changed, job } = await changeInbound('drop', given, call);
    return { matched, dropped: changed, job };
  },
});

export const drop = [dropInbound];
