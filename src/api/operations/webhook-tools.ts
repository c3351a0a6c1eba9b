import { z } from 'zod';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { toExampleEvents } from '../../events/example-events.ts';
import { toSigningSecret } from '../../mail/signature.ts';
import { operation } from '../operation.ts';
import { limitOf } from './rules.ts';
import { batchRecord, toBatchRecord, toWebhookRecord } from './webhook-records.ts';
import { findWebhook, webhookId } from './webhooks.ts';

const MAX_LISTED = 1000;
const DEFAULT_LISTED = 100;
/** Questions to the queue at one time: an account that looks at its batches must not keep mail from being taken. */
const AT_A_TIME = 20;
const URL = 'https://app.example.com/hooks/events';

const test = operation({
  path: '/webhooks/test',
  extension: true,
  summary: 'Posts an example of every event that the webhook asked for, as a batch like any other.',
  notes:
    'The answer comes when the batch is safe on disk; /webhooks/deliveries shows what became of it. It counts in batches_sent and events_sent.',
  params: { id: webhookId },
  returns: z.object({
    id: z.string().meta({ description: 'id of the delivery; travels as the header webhook-id' }),
    events: z.int().meta({ description: 'how many events it holds' }),
  }),
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { params: { id: 4 }, answer: { id: '01kcexamplebatch0000000000-ExampleHash1', events: 3 } },
  async handle({ id }, call) {
    const row = await findWebhook(id, call);
    const events = toExampleEvents(toWebhookRecord(row, '', []).events, call.now());
    const sent = await call.webhooks.send(row, events);
    if (sent === undefined) throw call.refuse('ServiceUnavailable');
    return { id: sent, events: events.length };
  },
});

const key = operation({
  path: '/webhooks/key',
  extension: true,
  summary: 'Shows the key that signs the posts of a webhook, or makes a new one.',
  notes:
    'The key belongs to the account and the URL: webhooks and routes with one URL have one key. It is the key of X-Mandrill-Signature; signing_secret is the same key in the form that Standard Webhooks libraries take, which have to be told that the body is no JSON (jsonParse: false). After a rotation posts carry the signatures of both keys (webhook-signature) for a day.',
  params: { id: webhookId, rotate: optional(z.boolean()).meta({ description: 'true makes a new key' }) },
  returns: z.object({
    id: webhookId,
    url: z.string().meta({ description: 'the URL that the key belongs to' }),
    auth_key: z.string().meta({ description: 'the key' }),
    signing_secret: z.string().meta({ description: '`whsec_` and the base64 of the key' }),
  }),
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: {
    params: { id: 4 },
    answer: {
      id: 4,
      url: URL,
      auth_key: 'ExampleSigningKey000000000000001',
      signing_secret: 'whsec_RXhhbXBsZVNpZ25pbmdLZXkwMDAwMDAwMDAwMDAwMDE=',
    },
  },
  async handle({ id, rotate = false }, call) {
    const { url } = await findWebhook(id, call);
    const authKey = rotate ? await call.newSigningKey(url) : await call.signingKey(url);
    if (authKey === undefined) throw call.refuse('ServiceUnavailable');
    return { id, url, auth_key: authKey, signing_secret: toSigningSecret(authKey) };
  },
});

const deliveries = operation({
  path: '/webhooks/deliveries',
  extension: true,
  summary: 'Lists the batches of a webhook with every attempt, the newest first.',
  notes:
    'What was delivered can be looked at for a while (delivery.keep_delivered_hours), what was given up for longer (delivery.keep_dead_days). Events that wait to become a batch are not among them. Of several hosts each knows the batches that it made itself.',
  params: {
    id: webhookId,
    delivery: optional(text(255)).meta({ description: 'id of one delivery' }),
    state: optional(z.enum(['waiting', 'delivered', 'dead', 'dropped'])),
    from: optionalTime.meta({ description: 'made at this time or later, UTC, YYYY-MM-DD HH:MM:SS' }),
    to: optionalTime.meta({ description: 'made before this time, UTC, YYYY-MM-DD HH:MM:SS' }),
    limit: limitOf(MAX_LISTED, DEFAULT_LISTED),
  },
  returns: z.array(batchRecord),
  errors: ['Unknown_Webhook'],
  example: {
    params: { id: 4 },
    answer: [
      {
        id: '01kcexamplebatch0000000000-ExampleHash1',
        url: URL,
        state: 'delivered',
        created_at: '2026-01-05 11:30:00',
        next_attempt_at: null,
        ended_at: '2026-01-05 11:30:01',
        last_status: 200,
        last_error: null,
        attempts: [{ time: '2026-01-05 11:30:01', duration_ms: 12, status: 200, error: null, answer: 'OK' }],
        webhook: 4,
        events: 3,
      },
    ],
  },
  async handle({ id, delivery, state, from, to, limit = DEFAULT_LISTED }, call) {
    const { id: webhook } = await findWebhook(id, call);
    const found = await call.webhooks.batches(
      {
        ids: delivery === undefined ? undefined : [delivery],
        webhook,
        states: state && [state],
        from: from?.getTime(),
        to: to?.getTime(),
      },
      limit,
    );
    const records = [];
    for (let at = 0; at < found.length; at += AT_A_TIME) {
      records.push(
        ...(await Promise.all(
          found.slice(at, at + AT_A_TIME).map(async (one) => toBatchRecord(one, await call.attempts(one))),
        )),
      );
    }
    return records;
  },
});

/** What helps to set up and to find faults in webhooks; beyond the documented interface. */
export const webhookTools = [test, key, deliveries];
