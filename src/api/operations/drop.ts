import { z } from 'zod';
import { inWords } from '../../base/tables.ts';
import { OPEN_STATES } from '../../queue/states.ts';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { ALL_HOSTS, int, strOrNull } from './fields.ts';
import { type Changed, changeInbound, onAllHosts, selecting } from './selection.ts';

const toRecord = ({ matched, changed, job }: Changed) => ({ matched, dropped: changed, job });

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
    'Senders are not notified. Dropped mail can be replayed for delivery.keep_delivered_hours. ' +
    ALL_HOSTS,
  params: selecting('drop'),
  returns: z.object({
    matched: int('number of deliveries that can be dropped'),
    dropped: int('number of deliveries dropped by this call; 0 if a job drops them'),
    job: strOrNull('id of the job that drops them, or null'),
  }),
  errors: [],
  example: { url: 'https://app.example.com/hooks/mail', state: 'dead', at_most: 1 },
  handle: async (given, call) => toRecord(await changeInbound('drop', given, call)),
  across: onAllHosts('drop', toRecord),
});

export const drop = [dropInbound];
