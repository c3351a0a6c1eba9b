import { existsSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { Body, Message } from '../types.ts';
import { blobFault } from './blob-check.ts';
import { sumOf } from './row-sum.ts';
import { number, numberOrNull, type SqlRow, text, textOrNull, toMessage } from './rows.ts';

/** A message as it was found: whole, or with the reason why its body cannot be had any more. */
export type Found =
  | { readonly kind: 'whole'; readonly message: Message; readonly body: Body }
  | { readonly kind: 'damaged'; readonly reason: string };

/** What the reader answers about messages. */
export interface MessageQueries {
  message(id: string): Found | undefined;
  blobNames(): { readonly name: string; readonly messageId: string; readonly size: number }[];
}

const DAMAGED: Found = { kind: 'damaged', reason: 'its row was damaged on the disk' };

/** Questions over the reader's connection. `blobs` is the folder of large bodies. */
export function createMessageQueries(db: DatabaseSync, blobs: string): MessageQueries {
  const one = db.prepare(
    'SELECT m.*, v.verdicts, v.sum AS verdicts_sum FROM messages m LEFT JOIN verdicts v ON v.message = m.key WHERE m.id = ?',
  );
  const sound = new Set<string>(); // blobs whose bytes were read and are right
  return {
    message(id: string) {
      const row = one.get(id);
      return row && (isWhole(row) ? toFound(row, blobs, sound) : DAMAGED);
    },
    blobNames: () =>
      db
        .prepare('SELECT id, blob, size FROM messages WHERE blob IS NOT NULL')
        .all()
        .map((row) => ({ name: text(row, 'blob'), messageId: text(row, 'id'), size: number(row, 'size') })),
  };
}

/** Whether a row says what was written. One of an older version has no checksum; then at least it has to make sense. */
function isWhole(row: SqlRow): boolean {
  try {
    const sum = numberOrNull(row, 'sum');
    if (sum === null) toMessage(row);
    return (
      sum === null ||
      sum ===
        sumOf({
          id: text(row, 'id'),
          receivedAt: number(row, 'received_at'),
          deliveries: number(row, 'deliveries'),
          envelope: text(row, 'envelope'),
          trace: text(row, 'trace'),
          size: number(row, 'size'),
          crc: numberOrNull(row, 'crc'),
          blob: textOrNull(row, 'blob'),
          sha256: textOrNull(row, 'sha256'),
        })
    );
  } catch (error) {
    if (error instanceof TypeError || error instanceof SyntaxError || error instanceof RangeError) return false;
    throw error;
  }
}

/** SQLite does not notice a changed byte inside a body, so each is held against its checksum when it comes from the disk. */
function toFound(row: SqlRow, blobs: string, sound: Set<string>): Found {
  const size = number(row, 'size');
  const name = textOrNull(row, 'blob');
  if (name === null) {
    const bytes = row['bytes'];
    if (!(bytes instanceof Uint8Array) || bytes.byteLength !== size || crc32(bytes) !== row['crc']) {
      return { kind: 'damaged', reason: 'its bytes were damaged on the disk' };
    }
    return { kind: 'whole', message: toMessage(row), body: { kind: 'inline', bytes } };
  }
  const path = `${blobs}/${name}`;
  const sha256 = text(row, 'sha256');
  const reason = sound.has(name) && existsSync(path) ? null : blobFault(path, size, sha256);
  if (reason !== null) return { kind: 'damaged', reason };
  if (sound.size > 10_000) sound.clear();
  sound.add(name);
  return { kind: 'whole', message: toMessage(row), body: { kind: 'blob', path, size, sha256 } };
}
