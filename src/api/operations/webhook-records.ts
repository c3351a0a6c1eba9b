import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import type { AttemptRecord, QueuedDelivery } from '../../spool/types.ts';
import { DEFAULT_EVENTS, HOOK_EVENTS } from '../../store/outbox.ts';
import type { WebhookRow, WebhookTallyRow } from '../../store/webhooks.ts';
import { deliveryRecord, toDeliveryRecord } from './records.ts';

// Records of the Webhooks group, and how rows become them.

const timeOrNull = (description: string) =>
  z
    .string()
    .nullable()
    .meta({ description: `${description}, UTC, YYYY-MM-DD HH:MM:SS` });

export const webhookRecord = z
  .object({
    id: z.int().meta({ description: 'unique identifier' }),
    url: z.string().meta({ description: 'URL that batches of events are posted to' }),
    description: z.string().nullable().meta({ description: 'what it is for' }),
    auth_key: z.string().meta({ description: 'the key that signs its posts' }),
    events: z.array(z.enum(HOOK_EVENTS)).meta({ description: 'the events that are posted' }),
    created_at: z.string().meta({ description: 'when it was added, UTC, YYYY-MM-DD HH:MM:SS' }),
    last_sent_at: timeOrNull('when it last took a batch; null before the first'),
    batches_sent: z.int().meta({ description: 'batches that it took' }),
    events_sent: z.int().meta({ description: 'events in them' }),
    last_error: z
      .string()
      .nullable()
      .meta({ description: 'what went wrong the last time that something did; null when nothing ever did' }),
  })
  .meta({ title: 'webhook record' });

/** The record; `tallies` are the numbers of every host. */
export function toWebhookRecord(
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
    created_at: toTimestamp(row.createdAt),
    last_sent_at: sent?.lastSentAt ? toTimestamp(sent.lastSentAt) : null,
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

const { message_id: _, route: __, pattern: ___, email: ____, ...shared } = deliveryRecord.shape;

export const batchRecord = z
  .object({
    ...shared,
    webhook: z.int().meta({ description: 'id of the webhook' }),
    events: z.int().meta({ description: 'how many events it holds' }),
  })
  .meta({ title: 'batch record' });

/** A batch with its attempts. */
export function toBatchRecord(
  delivery: QueuedDelivery,
  attempts: readonly AttemptRecord[],
): z.input<typeof batchRecord> {
  const { message_id: _, route: __, pattern: ___, email: ____, ...rest } = toDeliveryRecord(delivery, attempts);
  return { ...rest, webhook: Number(delivery.batch?.webhook), events: delivery.batch?.events ?? 0 };
}
