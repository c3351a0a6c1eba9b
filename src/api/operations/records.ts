import { z } from 'zod';
import { toTimestamp } from '../../base/clock.ts';
import { proofOf } from '../../inbound/ownership.ts';
import type { AttemptRecord, QueuedDelivery } from '../../queue/delivery.ts';
import { type InboundDomainRow, type InboundRouteRow, isClaim } from '../../store/rows/domains.ts';

// Records of the Inbound group, and how rows become them.

const time = (description: string) => z.string().meta({ description: `${description}, UTC, YYYY-MM-DD HH:MM:SS` });
const timeOrNull = (description: string) =>
  z
    .string()
    .nullable()
    .meta({ description: `${description}, UTC, YYYY-MM-DD HH:MM:SS` });
const say = (description: string) => z.string().meta({ description });

export const inboundDomainRecord = z
  .object({
    domain: say('the domain, as it was added'),
    created_at: time('when it was added'),
    valid_mx: z.boolean().meta({ description: 'whether an MX record delivers mail to the service' }),
    routed: z.boolean().meta({ description: 'whether mail is taken for it here; false: publish the TXT record first' }),
    verified_at: timeOrNull('when the TXT record was first seen; null: never'),
    txt_name: say('where a TXT record proves that the domain belongs to the account'),
    txt_value: say('the value of that record'),
  })
  .meta({ title: 'inbound domain record' });

export const inboundRouteRecord = z
  .object({
    id: say('unique identifier'),
    pattern: say('what the mailbox name must match'),
    url: say('webhook URL that inbound messages are posted to'),
  })
  .meta({ title: 'inbound route record' });

export const attemptRecord = z
  .object({
    time: time('when the POST began'),
    duration_ms: z.number().meta({ description: 'how long it took' }),
    status: z.int().nullable().meta({ description: 'HTTP status, null when no answer came' }),
    error: z.string().nullable().meta({ description: 'why no answer came, null when one came' }),
    answer: say('the start of the answer'),
  })
  .meta({ title: 'attempt record' });

export const deliveryRecord = z
  .object({
    id: say('unique identifier; travels as the header webhook-id, the same over all attempts and replays'),
    message_id: say('the message; several recipients share one'),
    route: say('id of the route'),
    pattern: say('pattern of the route when the message came'),
    url: say('where it is posted to'),
    email: say('the recipient'),
    state: z
      .enum(['waiting', 'delivered', 'dead', 'dropped'])
      .meta({ description: 'dead: given up, can be replayed; dropped: ended by an operator' }),
    created_at: time('when the message was accepted'),
    next_attempt_at: timeOrNull('when it is posted next, null when it is not waiting'),
    ended_at: timeOrNull('when it was delivered, given up or dropped'),
    last_status: z.int().nullable().meta({ description: 'HTTP status of the last attempt' }),
    last_error: z.string().nullable().meta({ description: 'why the last attempt got no answer' }),
    attempts: z.array(attemptRecord).meta({ description: 'every POST, the oldest first' }),
  })
  .meta({ title: 'delivery record' });

export function toDomainRecord(row: InboundDomainRow) {
  const { name, value } = proofOf(row);
  return {
    domain: row.domain,
    created_at: toTimestamp(row.createdAt),
    valid_mx: row.validMx,
    routed: !isClaim(row),
    verified_at: row.verifiedAt ? toTimestamp(row.verifiedAt) : null,
    txt_name: name,
    txt_value: value,
  };
}

export function toRouteRecord(row: Pick<InboundRouteRow, 'id' | 'pattern' | 'url'>) {
  return { id: row.id, pattern: row.pattern, url: row.url };
}

export function toDeliveryRecord(delivery: QueuedDelivery, attempts: readonly AttemptRecord[]) {
  return {
    id: delivery.id,
    message_id: delivery.messageId,
    route: delivery.routeId,
    pattern: delivery.pattern,
    url: delivery.url,
    email: delivery.recipient,
    state: delivery.state,
    created_at: toTime(delivery.createdAt),
    next_attempt_at: delivery.state === 'waiting' ? toTime(delivery.dueAt) : null,
    ended_at: delivery.endedAt === null ? null : toTime(delivery.endedAt),
    last_status: delivery.lastStatus,
    last_error: delivery.lastError,
    attempts: attempts.toSorted((a, b) => a.at - b.at).map(toAttemptRecord),
  };
}

function toAttemptRecord(attempt: AttemptRecord) {
  return {
    time: toTime(attempt.at),
    duration_ms: attempt.durationMs,
    status: attempt.status,
    error: attempt.error,
    answer: attempt.answer,
  };
}

function toTime(ms: number): string {
  return toTimestamp(new Date(ms));
}
