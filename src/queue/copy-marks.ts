import { frozen } from '../base/frozen.ts';
import type { QueuedDelivery } from './delivery.ts';
import type { QueueFile } from './disk/file.ts';
import type { Reader } from './disk/reader.ts';

/**
 * The state of the copy of a message in the shared store, as known to this queue. It is written before the copy, and
 * removed when the store is known to have none, so that no copy is forgotten.
 */
export interface CopyMark {
  /** The number of the message in the queue file. */
  readonly key: number;
  /** `id` of the copy. */
  readonly id: string;
  /** Null: the message is gone. */
  readonly messageId: string | null;
  /** The number of rows with parts of it. */
  readonly parts: number;
  /** The epoch of this host in which it was written. */
  readonly epoch: number;
  /**
   * written: it is up to date · changed: a delivery has changed since · missing: the store may have none. The last two
   * are due.
   */
  readonly state: 'written' | 'changed' | 'missing';
  /** The number of changes of its deliveries. */
  readonly changes: number;
  /** The deliveries in open states (`OPEN_STATES`): without any, the store needs no copy. */
  readonly deliveries: readonly QueuedDelivery[];
  /** Whether the message or one of its deliveries is damaged on the disk, and intact in the copy. */
  readonly isDamaged: boolean;
}

/** A copy that is about to be written. */
export interface CopyStart extends Pick<CopyMark, 'id' | 'epoch'> {
  readonly messageId: string;
}

/** A copy that is now up to date in the store, or removed from it. */
export interface CopyEnd extends Pick<CopyMark, 'key' | 'changes' | 'parts' | 'epoch'> {
  readonly has: boolean;
}

/** The marks of the messages in this queue. */
export type CopyMarks = ReturnType<typeof createCopyMarks>;

export function createCopyMarks({ file, reading }: { readonly file: QueueFile; readonly reading: Reader }) {
  return frozen({
    /** Marks messages as copied. Returns the marks of those that are there. Throws SpoolFault if it fails now. */
    start: (starts: readonly CopyStart[]) => file.once('startCopies', starts),
    /** Notes results. */
    end: (ends: readonly CopyEnd[]) => file.write('endCopies', ends),
    /** The marks that are due, from the key after `after`. */
    due: (after: number, limit: number) => reading.read('dueCopies', after, limit),
    /** The marks of earlier epochs than this, from the key after `after`. */
    before: (epoch: number, after: number, limit: number) => reading.read('copiesBefore', epoch, after, limit),
    /** The number of messages that should have a copy and have none. */
    missing: () => reading.read('missingCopies'),
  });
}
