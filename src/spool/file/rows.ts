import type { SQLOutputValue } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { AttemptRecord, Message, QueuedDelivery } from '../types.ts';
import { sumOfDelivery } from './row-sum.ts';
import { STATES } from './schema.ts';

/** A row as node:sqlite answers it. */
export type SqlRow = Readonly<Record<string, SQLOutputValue>>;

/** A text that the tables promise to be one. */
export function text(row: SqlRow, name: string): string {
  const value = row[name];
  if (typeof value !== 'string') throw new TypeError(`the queue holds no text in ${name}`);
  return value;
}

/** A number that the tables promise to be one. */
export function number(row: SqlRow, name: string): number {
  const value = row[name];
  if (typeof value !== 'number') throw new TypeError(`the queue holds no number in ${name}`);
  return value;
}

/** A number that may be missing. */
export function numberOrNull(row: SqlRow, name: string): number | null {
  return row[name] === null ? null : number(row, name);
}

/** A text that may be missing. */
export function textOrNull(row: SqlRow, name: string): string | null {
  return row[name] === null ? null : text(row, name);
}

/** What `toDelivery` reads: a delivery `d` with its endpoint and its last attempt. */
export const DELIVERY = `
SELECT d.key, d.id, d.message, d.sum, m.id AS message_id, e.account, e.url, d.route, d.pattern, d.recipient, d.state, d.created_at, d.due_at,
  d.ended_at, d.budget_from, d.attempts, d.parked, d.note, a.status, a.error, b.events, h.id AS hook
FROM deliveries d
JOIN endpoints e ON e.key = d.endpoint
LEFT JOIN messages m ON m.key = d.message
LEFT JOIN attempts a ON a.delivery = d.key AND a.n = d.posts
LEFT JOIN batches b ON b.message = d.message
LEFT JOIN hooks h ON h.key = b.hook`;

/** A row of `DELIVERY` as the rest of the house sees it. */
export function toDelivery(row: SqlRow): QueuedDelivery {
  const state = STATES[number(row, 'state')] ?? 'dead';
  return {
    id: text(row, 'id'),
    messageId: textOrNull(row, 'message_id') ?? '',
    account: text(row, 'account'),
    url: text(row, 'url'),
    routeId: text(row, 'route'),
    pattern: text(row, 'pattern'),
    recipient: text(row, 'recipient'),
    state,
    createdAt: number(row, 'created_at'),
    dueAt: number(row, 'due_at'),
    attempts: number(row, 'attempts'),
    endedAt: state === 'waiting' ? null : number(row, 'ended_at'),
    budgetFrom: number(row, 'budget_from'),
    parked: number(row, 'parked') === 1,
    lastStatus: numberOrNull(row, 'status'),
    lastError: textOrNull(row, 'note') ?? textOrNull(row, 'error'),
    ...(row['events'] === null
      ? {}
      : { batch: { webhook: textOrNull(row, 'hook') ?? '', events: number(row, 'events') } }),
  };
}

/** Whether a row of `DELIVERY` says what was written; one of an older version has no checksum. */
export function isWholeDelivery(row: SqlRow): boolean {
  const { id, message, route, pattern, recipient, sum } = row;
  if (
    typeof id !== 'string' ||
    typeof message !== 'number' ||
    typeof route !== 'string' ||
    typeof pattern !== 'string' ||
    typeof recipient !== 'string'
  )
    return false;
  return sum === null || sum === sumOfDelivery({ id, message, route, pattern, recipient });
}

/** A row of `attempts`. */
export function toAttempt(row: SqlRow): AttemptRecord {
  return {
    at: number(row, 'at'),
    durationMs: number(row, 'duration'),
    status: numberOrNull(row, 'status'),
    error: textOrNull(row, 'error'),
    answer: text(row, 'answer'),
  };
}

/** A row of `messages` with its verdicts; the body aside. */
export function toMessage(row: SqlRow): Message {
  const verdicts = verdictsOf(row);
  return {
    id: text(row, 'id'),
    receivedAt: number(row, 'received_at'),
    envelope: JSON.parse(text(row, 'envelope')),
    trace: text(row, 'trace'),
    verdicts: verdicts === null ? null : JSON.parse(verdicts),
  };
}

/** Verdicts that were damaged on the disk are taken again. */
function verdictsOf(row: SqlRow): string | null {
  const { verdicts, verdicts_sum: sum } = row;
  return typeof verdicts === 'string' && (sum === null || sum === crc32(verdicts)) ? verdicts : null;
}

/** Times are whole milliseconds; one beyond what a double counts exactly ("never") becomes the largest that it does. */
export function whole(time: number): number {
  return Math.min(Math.max(Math.round(time), 0), Number.MAX_SAFE_INTEGER);
}
