import { crc32 } from 'node:zlib';

// Checksums of rows: SQLite does not notice a changed bit in a value.

/** The columns of a message's row, as stored; for the body, its checksums. */
interface SummedRow {
  readonly id: string;
  readonly receivedAt: number;
  readonly deliveries: number;
  readonly envelope: string;
  readonly trace: string;
  readonly size: number;
  readonly crc: number | null;
  readonly blob: string | null;
  readonly sha256: string | null;
}

/** Returns the checksum of a message's row: SQLite does not notice a changed bit in a value. */
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
