import { basename } from 'node:path';
import { crc32 } from 'node:zlib';
import type { Bytes } from '../base/bytes.ts';
import { frozen } from '../base/frozen.ts';
import type { Tools } from '../base/tools.ts';
import type { Body, Delivery, Message, NewMessage } from './delivery.ts';
import type { Blobs } from './disk/bodies.ts';
import type { MessageRow } from './disk/changes.ts';
import type { QueueFile } from './disk/file.ts';
import type { Reader } from './disk/reader.ts';
import { giveUpDamaged, quarantine } from './disk/recovery.ts';

/** A message that is lost on this disk and was found elsewhere, with one of its deliveries. */
export interface Rescued {
  readonly message: NewMessage;
  readonly delivery: Delivery;
}

/**
 * Finds a copy of a damaged message, by its id or by that of a delivery, and puts its body in the queue's folder.
 * Undefined: there is no copy. Throws if that is unknown for now; then the message is not given up.
 */
export type Finder = (messageId: string, deliveryId: string | undefined) => Promise<Rescued | undefined>;

interface MessagesParts extends Pick<Tools, 'clock' | 'log'> {
  readonly file: QueueFile;
  readonly reading: Reader;
  readonly blobs: Blobs;
}

export function createMessages(parts: MessagesParts) {
  const { file, reading, blobs, log } = parts;
  let finder: Finder = async () => undefined;

  /** Overwrites the damaged rows of a message and its delivery. False if the queue has no such delivery. */
  async function restore({ message, delivery }: Rescued, reason: string): Promise<boolean> {
    const isDone = await file.write('restore', messageRowOf(message, message.body), delivery);
    if (isDone) blobs.claim(message.body);
    else if (message.body.kind === 'file') await blobs.remove([basename(message.body.path)]);
    if (isDone) log.warn('spool.restored', { message: message.id, delivery: delivery.id, reason });
    return isDone;
  }

  return frozen({
    /** Reads a message; one that was damaged is restored, or its waiting deliveries are given up. */
    async find(messageId: string, deliveryId?: string): Promise<{ message: Message; body: Bytes } | undefined> {
      const found = await reading.read('message', messageId);
      if (found?.kind === 'whole') return { message: found.message, body: found.body };
      // A waiting delivery always has a message: if it is missing, its id or its index entry was damaged.
      if (!found && deliveryId === undefined) return undefined;
      let rescued: Rescued | undefined;
      try {
        rescued = await finder(messageId, deliveryId);
      } catch (error) {
        // Not needed for an attempt: the next one decides.
        if (deliveryId === undefined) return undefined;
        throw error;
      }
      const reason = found?.reason ?? 'its row was damaged on disk';
      if (rescued && (await restore(rescued, reason))) {
        const { id, receivedAt, envelope, trace, body } = rescued.message;
        return { message: { id, receivedAt, envelope, trace, verdicts: null }, body };
      }
      if (found) await quarantine(parts, messageId, reason);
      else if (deliveryId !== undefined) await giveUpDamaged(parts, [deliveryId], messageId);
      return undefined;
    },
    restore,
    /** Sets the finder that is called before a damaged message is given up. */
    onDamage(find: Finder) {
      finder = find;
    },
  });
}

/** A message as its row stores it. */
export function messageRowOf({ id, receivedAt, envelope, trace, verdicts, scan }: NewMessage, body: Body): MessageRow {
  const row = {
    id,
    receivedAt,
    trace,
    envelope: JSON.stringify(envelope),
    bytes: null,
    crc: null,
    blob: null,
    sha256: null,
    verdicts: verdicts ? JSON.stringify(verdicts) : null,
    scan: scan ? JSON.stringify(scan) : null,
  };
  if (body.kind === 'file') return { ...row, size: body.size, blob: basename(body.path), sha256: body.sha256 };
  return { ...row, size: body.bytes.byteLength, bytes: body.bytes, crc: crc32(body.bytes) };
}
