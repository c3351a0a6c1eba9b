import { frozen } from '../base/frozen.ts';
import type { QueuedDelivery } from './delivery.ts';
import type { QueueFile } from './disk/file.ts';
import type { Reader } from './disk/reader.ts';

/**
 * What this queue knows of the copy of a message in the store that hosts share. It is written before the copy, and
 * removed when the store is known to have none: so a copy that may have been written is never forgotten.
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
   * written: it is as it should be · changed: a delivery has changed since · missing: the store may have none. The two
   * last are due.
   */
  readonly state: 'written' | 'changed' | 'missing';
  /** How often its deliveries have changed. */
  readonly changes: number;
  /** The deliveries that somebody may still want to have delivered: without any, the store needs no copy. */
  readonly deliveries: readonly QueuedDelivery[];
  /** Whether the disk damaged the message or a delivery of it: the copy has what was lost. */
  readonly isDamaged: boolean;
}

/** A copy that is about to be written. */
export interface CopyStart extends Pick<CopyMark, 'id' | 'epoch'> {
  readonly messageId: string;
}

/** A copy that the store has now as the mark says, or that it does not have. */
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
    /** Those that are due, after the one with the key `after`. */
    due: (after: number, limit: number) => reading.read('dueCopies', after, limit),
    /** Those that were written in an earlier epoch than this, after the one with the key `after`. */
    before: (epoch: number, after: number, limit: number) => reading.read('copiesBefore', epoch, after, limit),
    /** How many messages have no copy although they should. */
    missing: () => reading.read('missingCopies'),
  });
}
