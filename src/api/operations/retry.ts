import { z } from 'zod';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { ALL_HOSTS, int, strOrNull } from './fields.ts';
import { type Changed, changeInbound, onAllHosts, selecting } from './selection.ts';

const toRecord = ({ matched, changed, job }: Changed) => ({ matched, retried: changed, job });

const retryInbound = operation({
  path: '/inbound/retry',
  access: 'mail',
  extension: true,
  summary: 'Retries waiting deliveries now, by id, time, URL, status or search.',
  notes:
    'Select deliveries with `id`, `ids`, `query`, `url`, `status`, or `from` and `to`, as in /inbound/replay; ' +
    'all given conditions must match. The deliveries become due; their attempts and the end of their retries do ' +
    'not change. ' +
    'Endpoints that are down are probed with one delivery; after a 2xx answer, the others follow. Pauses still ' +
    'apply. Pulled mail is left out. ' +
    `A job retries more than ${MOST_AT_ONCE} deliveries, as in /inbound/replay. ${ALL_HOSTS}`,
  params: selecting('retry'),
  returns: z.object({
    matched: int('number of waiting deliveries that match'),
    retried: int('number of deliveries made due by this call; 0 if a job retries them'),
    job: strOrNull('id of the job that retries them, or null'),
  }),
  errors: [],
  example: { url: 'https://app.example.com/hooks/mail', at_most: 1 },
  handle: async (given, call) => toRecord(await changeInbound('retry', given, call)),
  across: onAllHosts('retry', toRecord),
});

export const retry = [retryInbound];
