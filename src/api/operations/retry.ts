import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { MOST_AT_ONCE } from '../bulk-orders.ts';
import { operation } from '../operation.ts';
import { EXAMPLE } from './deliveries.ts';
import { changeInbound, selecting } from './selection.ts';

const retryInbound = operation({
  path: '/inbound/retry',
  access: 'mail',
  extension: true,
  summary: 'Retries waiting deliveries now: by id, by time, by URL or status, or all that a search finds.',
  notes:
    'Selects as /inbound/replay does: give `id`, `ids`, `query`, `url`, `status`, or `from` and `to`; all that are given must hold. The deliveries become due; their attempts and the time until they are given up stay as they are. ' +
    'Endpoints that are down are probed with one delivery, and the others follow if it is answered with 2xx. A pause is not ended. Mail that a consumer pulls is left out. ' +
    `More than ${MOST_AT_ONCE} deliveries are retried by a job, as with /inbound/replay. With several hosts, each retries the mail that it accepted itself.`,
  params: {
    ...selecting('retry'),
    at_most: optional(z.int().min(0)).meta({ description: 'nothing is retried if more deliveries match' }),
  },
  returns: z.object({
    matched: z.int().meta({ description: 'how many waiting deliveries match' }),
    retried: z.int().meta({ description: 'how many are due now because of this call; 0 if there is a job' }),
    job: z.string().nullable().meta({ description: 'id of the job that retries them; null if there is none' }),
  }),
  errors: [],
  example: {
    params: { url: EXAMPLE.url, at_most: 1 },
    answer: { matched: 0, retried: 0, job: null },
  },
  async handle(given, call) {
    const { matched, changed, job } = await changeInbound('retry', given, call);
    return { matched, retried: changed, job };
  },
});

export const retry = [retryInbound];
