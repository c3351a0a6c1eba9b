import { z } from 'zod';
import { mapConcurrently } from '../../base/concurrency.ts';
import { optional, optionalTime, text } from '../../base/schema.ts';
import { toExampleEvents } from '../../events/payload.ts';
import type { AttemptRecord, QueuedDelivery } from '../../queue/delivery.ts';
import { DELIVERY_STATES } from '../../queue/states.ts';
import { pagesByField } from '../../store/pages.ts';
import { DEFAULT_EVENTS, HOOK_EVENTS, type WebhookRow, type WebhookTallyRow } from '../../store/rows/webhooks.ts';
import { toSigningSecret } from '../../webhooks/signing.ts';
import { askAll } from '../hosts/join-hosts.ts';
import { type Call, listOperation, operation } from '../operation.ts';
import { mapPages } from '../streamed-lists.ts';
import { AT_A_TIME, deliveryRecord, MAX_LISTED, newest, toDeliveryRecord } from './deliveries.ts';
import {
  ALL_HOSTS,
  endpointUrl,
  int,
  limitOf,
  listOf,
  record,
  str,
  strOrNull,
  time,
  timeOrNull,
  toTime,
  verifyUrl,
} from './fields.ts';

// Records of the Webhooks group, and their conversion from rows.

const webhookRecord = record('webhook record', {
  id: int('unique identifier'),
  url: str('URL that batches of events are posted to'),
  description: strOrNull('its purpose'),
  auth_key: str('the key that signs its posts'),
  events: listOf(z.enum(HOOK_EVENTS), 'the events that are posted'),
  created_at: time('when it was added'),
  last_sent_at: timeOrNull('when it last accepted a batch; null if never'),
  batches_sent: int('number of batches it accepted'),
  events_sent: int('number of events in these batches'),
  last_error: strOrNull('the last error; null if there was none'),
});

/** The record; `tallies` has one row for each host. */
function toWebhookRecord(
  row: WebhookRow,
  authKey: string,
  tallies: readonly WebhookTallyRow[],
): z.input<typeof webhookRecord> {
  const sent = latest(tallies, ({ lastSentAt }) => lastSentAt);
  const failed = latest(tallies, ({ lastErrorAt }) => lastErrorAt);
  return {
    id: row.number,
    url: row.url,
    description: row.description,
    auth_key: authKey,
    events: row.events.length === 0 ? [...DEFAULT_EVENTS] : [...row.events],
    created_at: toTime(row.createdAt),
    last_sent_at: toTime(sent?.lastSentAt),
    batches_sent: tallies.reduce((sum, { batchesSent }) => sum + batchesSent, 0),
    events_sent: tallies.reduce((sum, { eventsSent }) => sum + eventsSent, 0),
    last_error: failed?.lastError ?? null,
  };
}

function latest(
  tallies: readonly WebhookTallyRow[],
  timeOf: (tally: WebhookTallyRow) => Date | null,
): WebhookTallyRow | undefined {
  return tallies.filter((tally) => timeOf(tally) !== null).toSorted((a, b) => Number(timeOf(b)) - Number(timeOf(a)))[0];
}

const batchRecord = deliveryRecord
  .omit({ message_id: true, route: true, pattern: true, email: true, scan: true, hint: true })
  .extend({ webhook: int('id of the webhook'), events: int('number of events in the batch') })
  .meta({ title: 'batch record' });

function toBatchRecord(delivery: QueuedDelivery, attempts: readonly AttemptRecord[]): z.input<typeof batchRecord> {
  const record = toDeliveryRecord(delivery, attempts, undefined);
  const { message_id: _, route: __, pattern: ___, email: ____, scan: _____, hint: ______, ...rest } = record;
  return { ...rest, webhook: Number(delivery.batch?.webhook), events: delivery.batch?.events ?? 0 };
}

/** No limit is documented. */
const MAX_DESCRIPTION = 10_000;

const webhookId = int('id of the webhook');
const details = {
  description: optional(z.string().max(MAX_DESCRIPTION)).describe(`its purpose, at most ${MAX_DESCRIPTION} characters`),
  events: optional(z.array(z.enum(HOOK_EVENTS)).max(100)).describe(`the events to post, of: ${HOOK_EVENTS.join(', ')}`),
};

/** Returns the webhook's row. Throws Unknown_Webhook, also for a webhook of another account. */
async function findWebhook(id: number, { store, orRefuse }: Call<'Unknown_Webhook'>): Promise<WebhookRow> {
  return orRefuse(await store.webhooks.one({ id: String(id) }), 'Unknown_Webhook', id);
}

async function toRecord(row: WebhookRow, call: Call<'ServiceUnavailable'>) {
  return withKey(row, await call.store.webhookTallies.many({ webhook: row.id }), call);
}

async function withKey(row: WebhookRow, tallies: readonly WebhookTallyRow[], call: Call<'ServiceUnavailable'>) {
  const key = call.orRefuse(await call.signingKeys.of(row.url), 'ServiceUnavailable');
  return toWebhookRecord(row, key, tallies);
}

const list = listOperation({
  path: '/webhooks/list',
  access: 'secrets',
  summary: 'Lists the webhooks of the account, oldest first.',
  notes: 'Returns all of them; `after` continues after one.',
  params: {
    after: optional(webhookId).describe('continue after the webhook with this id (not part of the Mandrill API)'),
  },
  returns: z.array(webhookRecord),
  errors: ['ServiceUnavailable'],
  pages: ({ after = 0 }, call) =>
    mapPages(pagesByField(call.store.webhooks, 'number', after), (page) => toRecords(page, call)),
});

/** The records of a page: all tallies in one query, and the keys a few at a time. */
async function toRecords(rows: readonly WebhookRow[], call: Call<'ServiceUnavailable'>) {
  const found = await call.store.webhookTallies.many({ webhook: { in: rows.map(({ id }) => id) } });
  const tallies = Map.groupBy(found, ({ webhook }) => webhook);
  return mapConcurrently(rows, (row) => withKey(row, tallies.get(row.id) ?? [], call), AT_A_TIME);
}

const add = operation({
  path: '/webhooks/add',
  access: 'secrets',
  summary: 'Adds a webhook: events of the account are posted to its URL in batches.',
  notes:
    'docs/payload.md describes the events. Without `events`, or with an empty list, it gets every event except ' +
    'deferral, delivered and reply, which must be named. A reply is a message that a route of the account received ' +
    'and that answers a message of the account. The event is about the sent message, and its `reply` has id ' +
    '(`msg.id` in the payload of the reply), from_email, email (the recipient), subject and automated (why it counts ' +
    'as automated, or null). A reply is one event, even if it is posted several times; bounces and other mail with ' +
    'an empty reverse-path are not replies. The key belongs to the account and the URL: a route to the same URL ' +
    'signs with the same key.',
  params: { url: endpointUrl, ...details },
  returns: webhookRecord,
  errors: ['ServiceUnavailable'],
  example: {
    url: 'https://app.example.com/hooks/more',
    description: 'Bounces',
    events: ['hard_bounce', 'soft_bounce'],
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
  access: 'secrets',
  summary: 'Shows a webhook with its statistics.',
  notes: 'A batch counts once, after a 2xx response, even if it was posted several times.',
  params: { id: webhookId },
  returns: webhookRecord,
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { id: 4 },
  handle: async ({ id }, call) => toRecord(await findWebhook(id, call), call),
});

const update = operation({
  path: '/webhooks/update',
  access: 'secrets',
  summary: 'Changes a webhook; description and events remain unchanged if omitted.',
  notes:
    'An empty list of events also leaves them unchanged, because official clients send it when none are given. ' +
    'With a new URL, queued events of this webhook are posted there too, and the key ' +
    'stays the same, unless another webhook or a route of the account already has a key for that URL.',
  params: { id: webhookId, url: endpointUrl, ...details },
  returns: webhookRecord,
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { id: 4, url: 'https://app.example.com/hooks/events', events: ['spam', 'unsub'] },
  async handle({ id, url, description, events = [] }, call) {
    const before = await findWebhook(id, call);
    await verifyUrl(url, call);
    // Before the row changes: no post to the new URL may be signed with another key.
    if (url !== before.url) await call.signingKeys.carryOver(before.url, url);
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
  access: 'settings',
  summary: 'Deletes a webhook; events queued for it are dropped.',
  params: { id: webhookId },
  returns: webhookRecord,
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { id: 4 },
  async handle({ id }, call) {
    const record = await toRecord(await findWebhook(id, call), call);
    const row = call.orRefuse(await call.store.webhooks.remove({ id: String(id) }), 'Unknown_Webhook', id);
    call.webhooks.changed();
    await call.webhooks.deleted(row);
    return record;
  },
});

export const webhookOperations = [list, add, info, update, remove];

const test = operation({
  path: '/webhooks/test',
  access: 'settings',
  extension: true,
  summary: 'Posts an example of every event that the webhook receives, as a regular batch.',
  notes:
    'The call returns once the batch is safely on disk; /webhooks/deliveries shows its outcome. It counts in ' +
    'batches_sent and events_sent.',
  params: { id: webhookId },
  returns: z.object({
    id: str('id of the delivery; sent as the header webhook-id'),
    events: int('number of events in the batch'),
  }),
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { id: 4 },
  async handle({ id }, call) {
    const row = await findWebhook(id, call);
    const events = toExampleEvents(toWebhookRecord(row, '', []).events, call.now());
    const sent = call.orRefuse(await call.webhooks.send(row, events), 'ServiceUnavailable');
    return { id: sent, events: events.length };
  },
});

const key = operation({
  path: '/webhooks/key',
  access: 'secrets',
  extension: true,
  summary: 'Shows the key that signs the posts of a webhook, or rotates it.',
  notes:
    'The key belongs to the account and the URL: webhooks and routes with the same URL share a key. It is the ' +
    'key for X-Mandrill-Signature; signing_secret is the same key in the form that Standard Webhooks libraries ' +
    'expect. Turn off their JSON parsing (jsonParse: false), because the body is a form. After a rotation, ' +
    'posts carry the signatures of both keys (webhook-signature) for a day.',
  params: { id: webhookId, rotate: optional(z.boolean()).describe('true creates a new key') },
  returns: z.object({
    id: webhookId,
    url: str('the URL that the key belongs to'),
    auth_key: str('the key'),
    signing_secret: str('`whsec_` and the base64 of the key'),
  }),
  errors: ['Unknown_Webhook', 'ServiceUnavailable'],
  example: { id: 4 },
  async handle({ id, rotate = false }, call) {
    const { url } = await findWebhook(id, call);
    const authKey = rotate ? await call.signingKeys.rotate(url) : await call.signingKeys.of(url);
    if (authKey === undefined) throw call.refuse('ServiceUnavailable');
    return { id, url, auth_key: authKey, signing_secret: toSigningSecret(authKey) };
  },
});

const deliveries = operation({
  path: '/webhooks/deliveries',
  access: 'settings',
  extension: true,
  summary: 'Lists the batches of a webhook with every attempt, newest first.',
  notes:
    'Delivered batches are listed for delivery.keep_delivered_hours, dead ones for delivery.keep_dead_days. ' +
    `Events that are not in a batch yet are not listed. ${ALL_HOSTS}`,
  params: {
    id: webhookId,
    delivery: optional(text(255)).describe('id of one delivery'),
    state: optional(z.enum(DELIVERY_STATES)),
    from: optionalTime.describe('created at this time or later, UTC, YYYY-MM-DD HH:MM:SS'),
    to: optionalTime.describe('created before this time, UTC, YYYY-MM-DD HH:MM:SS'),
    limit: limitOf(MAX_LISTED, 100),
  },
  returns: z.array(batchRecord),
  errors: ['Unknown_Webhook'],
  example: { id: 4 },
  async handle({ id, delivery, state, from, to, limit }, call) {
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
    return mapConcurrently(found, async (one) => toBatchRecord(one, await call.queue.attempts(one)), AT_A_TIME);
  },
  across: {
    join: async (hosts, { limit }) => newest(await askAll(hosts), limit),
  },
});

export const webhookTools = [test, key, deliveries];
