import { type Bytes, chunksOf, toBuffer } from '../base/bytes.ts';
import { slicesOf } from '../base/characters.ts';
import type { CopiedDelivery } from '../store/rows/copies.ts';
import { DELIVERY_KINDS, type Delivery, type NewMessage, type QueuedDelivery, RETURN_TASKS } from './delivery.ts';
import { ENDED_STATES } from './states.ts';

// The rows of a message in the shared store, as text.

/** The data that another host needs to queue a message. */
export interface CopiedMessage extends Facts {
  readonly bytes: Uint8Array;
}

type Facts = Omit<NewMessage, 'body'>;

/** Characters of a part: far below the 16 MB of a document of MongoDB, even as UTF-8. */
const PART_LENGTH = 1024 * 1024;

export function toContent(message: Facts, bytes: Uint8Array): string {
  return JSON.stringify({ ...message, body: toBuffer(bytes).toString('base64') });
}

export function fromContent(content: string): CopiedMessage {
  // Written by `toContent` or `contentParts`, and kept by the store, which is trusted.
  const { body, ...message }: Facts & { readonly body: string } = JSON.parse(content);
  return { ...message, bytes: new Uint8Array(Buffer.from(body, 'base64')) };
}

export const toParts = (content: string): readonly string[] => [...slicesOf(content, PART_LENGTH)];

/** The text of `toContent` in parts, so that a large message is never in memory whole. */
export async function* contentParts(message: Facts, body: Bytes): AsyncGenerator<string> {
  yield* toParts(`${JSON.stringify(message).slice(0, -1)},"body":"`);
  let rest: Uint8Array = new Uint8Array();
  for await (const chunk of body.kind === 'file' ? chunksOf(body, 0) : [body.bytes]) {
    const bytes = Buffer.concat([rest, chunk]);
    // Base64 has four characters for three bytes.
    const whole = bytes.length - (bytes.length % 3);
    yield* toParts(bytes.toString('base64', 0, whole));
    rest = bytes.subarray(whole);
  }
  yield `${toBuffer(rest).toString('base64')}"}`;
}

/** A delivery with its state, for the copy of mail that was accepted. Its attempts so far are not copied. */
export function toCopiedDelivery(delivery: QueuedDelivery): CopiedDelivery {
  const { task, sequence, state, endedAt, lastError } = delivery;
  return {
    id: delivery.id,
    messageId: delivery.messageId,
    account: delivery.account,
    url: delivery.url,
    routeId: delivery.routeId,
    pattern: delivery.pattern,
    recipient: delivery.recipient,
    notBefore: delivery.budgetFrom,
    kind: delivery.kind,
    ...(task && { task }),
    ...(sequence && { sequence }),
    ...(state !== 'waiting' && { state, endedAt, note: lastError }),
  };
}

/** Converts the delivery of a copy for a queue. A copy of outgoing mail does not name its kind. */
export function fromCopy(copied: CopiedDelivery): Delivery {
  const { id, messageId, account, url, routeId, pattern, recipient, sequence } = copied;
  const kind = DELIVERY_KINDS.find((name) => name === (copied.kind ?? 'outbound'));
  if (!kind) throw new TypeError(`the copy of ${id} has an unknown kind: ${copied.kind}`);
  const task = RETURN_TASKS.find((name) => name === copied.task);
  const state = ENDED_STATES.find((name) => name === copied.state);
  return {
    id,
    kind,
    messageId,
    account,
    url,
    routeId,
    pattern,
    recipient,
    ...(copied.notBefore !== null && { notBefore: copied.notBefore }),
    ...(task && { task }),
    ...(sequence !== undefined && { sequence }),
    ...(state && { fate: { state, note: copied.note ?? '', at: copied.endedAt ?? undefined } }),
  };
}
