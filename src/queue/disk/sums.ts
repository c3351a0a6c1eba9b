import { crc32 } from 'node:zlib';
import type { MessageRow } from './changes.ts';

// Checksums of rows: SQLite does not notice a changed bit in a value.

/** The columns of a message's row, as stored; for the body, its checksums. */
interface SummedRow extends Omit<MessageRow, 'bytes' | 'verdicts' | 'scan'> {
  readonly deliveries: number;
}

/** Returns the checksum of a message's row. */
export function sumOf({ id, receivedAt, deliveries, envelope, trace, size, crc, blob, sha256 }: SummedRow): number {
  return crc32(`${id} ${receivedAt} ${deliveries} ${size} ${crc} ${blob} ${sha256} ${trace}\n${envelope}`);
}

/** The constant columns of a delivery's row; its endpoint and its state change. */
interface SummedDelivery {
  readonly id: string;
  /** The codes of its kind and task. */
  readonly kind: number;
  readonly task: number;
  /** The key of its message. */
  readonly message: number;
  readonly route: string;
  readonly pattern: string;
  readonly recipient: string;
}

/** Returns the checksum of a delivery's row; for inbound mail it is the same as before there were kinds. */
export function sumOfDelivery({ id, kind, task, message, route, pattern, recipient }: SummedDelivery): number {
  const rest = kind === 0 && task === 0 ? '' : ` ${kind} ${task}`;
  return crc32(`${id} ${message} ${route} ${pattern} ${recipient}${rest}`);
}
