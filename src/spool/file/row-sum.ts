import { crc32 } from 'node:zlib';

/** What the row of a message says beside its body, as it is stored; of the body, what it is checked by. */
export interface SummedRow {
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

/** The checksum of a message's row: SQLite does not notice a changed bit in a value. */
export function sumOf({ id, receivedAt, deliveries, envelope, trace, size, crc, blob, sha256 }: SummedRow): number {
  return crc32(`${id} ${receivedAt} ${deliveries} ${size} ${crc} ${blob} ${sha256} ${trace}\n${envelope}`);
}

/** What the row of a delivery says for as long as it is there; where it goes to and what became of it change. */
export interface SummedDelivery {
  readonly id: string;
  /** The number of its message. */
  readonly message: number;
  readonly route: string;
  readonly pattern: string;
  readonly recipient: string;
}

/** The checksum of a delivery's row. */
export function sumOfDelivery({ id, message, route, pattern, recipient }: SummedDelivery): number {
  return crc32(`${id} ${message} ${route} ${pattern} ${recipient}`);
}
