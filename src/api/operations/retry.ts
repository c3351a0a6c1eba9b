import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { MOST_AT_ONCE } from '../account-bulk.ts';
import { operation } from '../operation.ts';
import { selecting, toWish } from './selection.ts';

const STATES = ['waiting'] as const;

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
    `A job retries more than ${MOST_AT_ONCE} deliveries, as in /inbound/replay. Each host retries only mail ` +
    'that it accepted.',
  params: {
    ...selecting(STATES),
    at_most: optional(z.int().min(0)).meta({ description: 'nothing is retried if more deliveries match' }),
  },
  returns: z.object({
    matched: z.int().meta({ description: 'number of waiting deliveries that match' }),
    retried: z.int().meta({ description: 'number of deliveries made due by this call; 0 if a job retries them' }),
    job: z.string().nullable().meta({ description: 'id of the job that retries them, or null' }),
  }),
  errors: [],
  example: { url: 'https://app.example.com/hooks/mail', at_most: 1 },
  async handle(given, call) {
    const { dry_run: dry, at_most: most } = given;
    const wish = toWish(given, STATES, call);
    if (wish.selection.ids?.length === 0) return { matched: 0, retried: 0, job: null };
    const { matched } = await call.retries.count(wish);
    if (dry || matched === 0) return { matched, retried: 0, job: null };
    if (most !== undefined && matched > most)
      throw call.invalid('at_most', `${matched} deliveries match now (limit ${most}); nothing was retried`);
    const note = await call.actions.begin();
    if (matched <= MOST_AT_ONCE) return { matched, retried: await call.retries.now(wish, note, most), job: null };
    return { matched, retried: 0, job: call.retries.later(wish, matched, note, most).id };
  },
});

export const retry = [retryInbound];
