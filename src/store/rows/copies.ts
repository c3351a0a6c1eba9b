import type { Row } from '../driver/port.ts';
import type { GatedRow } from '../features.ts';
import { collection } from './collection.ts';

/** A delivery as it was queued. */
export type CopiedDelivery = {
  readonly id: string;
  readonly messageId: string;
  readonly account: string;
  readonly url: string;
  readonly routeId: string;
  readonly pattern: string;
  readonly recipient: string;
  /** Milliseconds since 1970; null: at once. */
  readonly notBefore: number | null;
  // Only for accepted mail (`copied` in KINDS), whose time budget began at `notBefore`:
  readonly kind?: string;
  readonly task?: string;
  readonly sequence?: string;
  /** Its state, unless it waits, with the time and the reason. */
  readonly state?: string;
  readonly endedAt?: number | null;
  readonly note?: string | null;
};

/** The end of a delivery, kept until its report is in the store. */
export type CopyResult = {
  readonly state: string;
  readonly report: { readonly id: string; readonly body: string } | null;
};

/**
 * Mail on the queue of a host. This row is authoritative, and the queue a cache of it: only the host that it names
 * sends it, and only in its present epoch. It is removed when the mail has ended. `id` is that of the delivery: each
 * recipient is claimed and settled alone.
 *
 * Kinds that need no claim: a row of `inbound` is a message as it was accepted, with all deliveries that are still
 * open, and has its id. A row of `events` is one event for one webhook (webhooks/event-copies.ts): `message` is its own
 * id, and there are no deliveries.
 */
export interface CopyRow extends GatedRow {
  readonly kind: string;
  /** `id` of the message on the queue. */
  readonly message: string;
  readonly host: string;
  /** The epoch of the host when it wrote the row or took it over. */
  readonly epoch: number;
  /**
   * Null: never attempted. leaving: its host has attempted it, and may have sent it. settled: it has ended as `result`
   * says, and nobody may send it.
   */
  readonly state: 'leaving' | 'settled' | null;
  readonly result: CopyResult | null;
  readonly deliveries: readonly CopiedDelivery[];
  /** Envelope and body, as JSON; null if they are in rows of `copy_parts`. */
  readonly content: string | null;
  /** The number of those rows. */
  readonly parts: number;
  /** By the clock of the host that wrote it. */
  readonly createdAt: Date;
}

export const copies = collection<CopyRow>()({
  name: 'copies',
  access: 'none',
  // Claims are by id and host; a takeover reads the rows of a host in one epoch.
  indexes: [['host', 'epoch'], ['message']],
  dates: ['createdAt'],
  features: { kind: { feature: 'copies', each: (kind) => [kind] } },
});

/** A part of a message that is too large for its row in `copies`. Written before that row, and removed after it. */
interface CopyPartRow extends Row {
  readonly message: string;
  readonly text: string;
  readonly createdAt: Date;
}

export const copyParts = collection<CopyPartRow>()({
  name: 'copy_parts',
  access: 'none',
  indexes: [['createdAt']],
  dates: ['createdAt'],
});

/** The id of a part of a message. */
export const copyPartId = (message: string, at: number): string => `${message} ${String(at).padStart(4, '0')}`;
