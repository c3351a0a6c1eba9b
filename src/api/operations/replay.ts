import { z } from 'zod';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { ALL_HOSTS, int, strOrNull } from './fields.ts';
import { type Changed, changeInbound, onAllHosts, selecting } from './selection.ts';

const toRecord = ({ matched, forgotten, changed, job }: Changed) => ({ matched, forgotten, replayed: changed, job });

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
    'Deleted mail cannot be replayed. ' +
    ALL_HOSTS,
  params: selecting('replay'),
  returns: z.object({
    matched: int('number of deliveries that can be replayed'),
    forgotten: int(
      'with `query` or `status`: number of further matches in the history whose message was deleted; otherwise 0',
    ),
    replayed: int('number of deliveries queued again by this call; 0 if a job replays them'),
    job: strOrNull('id of the job that replays them, or null'),
  }),
  errors: [],
  example: { from: '2026-01-05 11:00:00', to: '2026-01-05 12:00:00', route: '1.1' },
  handle: async (given, call) => toRecord(await changeInbound('replay', given, call)),
  across: onAllHosts('replay', toRecord),
});

export const replayOperations = [replayInbound];
