import { z } from 'zod';
import { optional } from '../../base/schema.ts';
import { HOOK_EVENTS } from '../../store/outbox.ts';
import type { WebhookRow, WebhookTallyRow } from '../../store/webhooks.ts';
import { type Call, listing, operation } from '../operation.ts';
import { mapPages, pagesByKey } from '../whole-lists.ts';
import { endpointUrl, verifyUrl } from './rules.ts';
import { toWebhookRecord, webhookRecord } from './webhook-records.ts';

/** No length is documented; nobody reads more. */
const MAX_DESCRIPTION = 10_000;
/** Keys asked for at one time. */
const AT_A_TIME = 20;

/** Of a webhook. */
export const webhookId = z.int().meta({ description: 'id of the webhook' });
const details = {
  description: optional(z.string().max(MAX_DESCRIPTION)).meta({
    description: `what it is for, at most ${MAX_DESCRIPTION} characters`,
  }),
  events: optional(z.array(z.enum(HOOK_EVENTS)).max(100)).meta({
    description: `the events to post, of: ${HOOK_EVENTS.join(', ')}`,
  }),
};

const HOOK = {
  id: 4,
  url: 'https://app.example.com/hooks/events',
  description: 'My Example Webhook',
  auth_key: 'ExampleSigningKey000000000000001',
  events: ['send', 'open', 'click'],
  created_at: '2026-01-05 11:00:00',
  last_sent_at: '2026-01-05 11:30:00',
  batches_sent: 42,
  events_sent: 1892,
  last_error: null,
};
const FRESH = { last_sent_at: null, batches_sent: 0, events_sent: 0, last_error: null };

/** The webhook, or the error that it is not there; for one account another's is not there. */
export async function findWebhook(id: number, { store, refuse }: Call<'Unknown_Webhook'>): Promise<WebhookRow> {
  const row = await store.webhooks.one({ id: String(id) });
  if (!row) throw refuse('Unknown_Webhook', id);
  return row;
}

async function toRecord(row: WebhookRow, call: Call<'ServiceUnavailable'>) {
  return withKey(row, await call.store.webhookTallies.many({ webhook: row.id }), call);
}

async function withKey(row: WebhookRow, tallies: readonly WebhookTallyRow[], call: Call<'ServiceUnavailable'>) {
  const key = await call.signingKey(row.url);
  if (key === undefined) throw call.refuse('ServiceUnavailable');
  return toWebhookRecord(row, key, tallies);
}

const list = listing({
  path: '/webhooks/list',
  summary: 'Lists the webhooks of the account, the oldest first.',
  notes: 'All of them; `after` begins behind one.',
  params: {
    after: optional(webhookId).meta({
      description: 'beyond the public ancestor: id of the webhook behind which to begin',
    }),
  },
  returns: z.array(webhookRecord),
  errors: ['ServiceUnavailable'],
  example: { params: {}, answer: [HOOK] },
  pages({ after = 0 }, call) {
    const rows = pagesByKey(
      after,
      ({ number }: WebhookRow) => number,
      (behind, limit) => call.store.webhooks.many({ number: { range: { gt: behind } } }, { sort: 'number', limit }),
    );
    return mapPages(rows, (page) => toRecords(page, call));
  },
});

/** The records of a page: one query for the numbers of all, and the keys a few at a time. */
async function toRecords(rows: readonly WebhookRow[], call: Call<'ServiceUnavailable'>) {
  const found = await call.store.webhookTallies.many({ webhook: { in: rows.map(({ id }) => id) } });
  const tallies = Map.groupBy(found, ({ webhook }) => webhook);
  const records = [];
  for (let at = 0; at < rows.length; at += AT_A_TIME) {
    records.push(
      ...(await Promise.all(
        rows.slice(at, at + AT_A_TIME).map((row) => withKey(row, tallies.get(row.id) ?? [], call)),
      )),
    );
  }
  return records;
}

const add = operation({
  path: '/webhooks/add',
  summary: 'Adds a webhook: events of the account are posted to its URL in batches.',
  notes:
    'Without `events`, or with an empty list, it gets every event but deferral and delivered, which have to be named. The key belongs to the account and the URL: a route to the same URL signs with the same key.',
  params: { url: endpointUrl, ...details },
  returns: webhookRecord,
  errors: ['ServiceUnavailable'],
  example: {
    params: {
      url: 'https://app.example.com/hooks/more',
      description: 'Bounces',
      events: ['hard_bounce', 'soft_bounce'],
    },
    answer: {
      ...HOOK,
      ...FRESH,
      id: 8,
      url: 'https://app.example.com/hooks/more',
      description: 'Bounces',
      events: ['hard_bounce', 'soft_bounce'],
      created_at: '2026-01-05 12:00:00',
    },
  },
  async handle({ url, description = null, events = [] }, call) {
    await verifyUrl(url, call);
    const number = await call.webhooks.newNumber();
    const row = { id: String(number), number, url, description, events: [...new Set(events)], createdAt: call.now() };
    await call.store.webhooks.insert(row);
    call.webhooks.changed();
    return toRecord({ ...row, account: call.account.id }, call);
  },
});

const info = operation({
  path: '/webhooks/info',
  summary: 'Shows a webhook with what it was sent.',
  notes: 'The numbers change once for each batch that was answered with 2xx, however often it was posted.',
  params: { id: webhookId },
  returns: webhookRecord,
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { params: { id: 4 }, answer: HOOK },
  async handle({ id }, call) {
    return toRecord(await findWebhook(id, call), call);
  },
});

const update = operation({
  path: '/webhooks/update',
  summary: 'Changes a webhook; description and events remain unchanged when they are left out.',
  notes:
    'An empty list of events leaves them unchanged too: official clients send it when none are given. With a new URL, what still waits for this webhook goes there too, and the key ' +
    'stays, unless another webhook or a route of the account has that URL and so a key for it.',
  params: { id: webhookId, url: endpointUrl, ...details },
  returns: webhookRecord,
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: {
    params: { id: 4, url: 'https://app.example.com/hooks/events', events: ['spam', 'unsub'] },
    answer: { ...HOOK, events: ['spam', 'unsub'] },
  },
  async handle({ id, url, description, events = [] }, call) {
    const before = await findWebhook(id, call);
    await verifyUrl(url, call);
    // Before the row: no post to the new URL may be signed with another key.
    if (url !== before.url) await call.carryKey(before.url, url);
    const row = await call.store.webhooks.change(
      { id: String(id) },
      { url, description, events: events.length > 0 ? [...new Set(events)] : undefined },
    );
    if (!row) throw call.refuse('Unknown_Webhook', id);
    call.webhooks.changed();
    if (url !== before.url) await call.webhooks.moved(row);
    return toRecord(row, call);
  },
});

const remove = operation({
  path: '/webhooks/delete',
  summary: 'Deletes a webhook; what waits for it is dropped.',
  params: { id: webhookId },
  returns: webhookRecord,
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { params: { id: 4 }, answer: HOOK },
  async handle({ id }, call) {
    const record = await toRecord(await findWebhook(id, call), call);
    const row = await call.store.webhooks.remove({ id: String(id) });
    if (!row) throw call.refuse('Unknown_Webhook', id);
    call.webhooks.changed();
    await call.webhooks.deleted(row);
    return record;
  },
});

/** Webhooks, as the documented interface has them. */
export const webhooks = [list, add, info, update, remove];
