import { hasCode } from '../../base/errors.ts';
import { resultCode } from '../../base/sqlite.ts';
import type { QueuedDelivery } from '../delivery.ts';

/** The disk has no space: the sender may retry later (452 4.3.1). */
export class SpoolFull extends Error {
  override readonly name = 'SpoolFull';
}

/** The prefix of the note of a delivery whose message or row was damaged on disk. */
export const LOST = 'message lost: ';

/** Whether a delivery was given up because of that. */
export const isLost = ({ state, lastError }: Pick<QueuedDelivery, 'state' | 'lastError'>): boolean =>
  state === 'dead' && lastError?.startsWith(LOST) === true;

/** An error of the disk, the file or its thread: temporary (451 4.3.0), and logged once. */
export class SpoolFault extends Error {
  override readonly name = 'SpoolFault';
}

/** Another daemon has this folder open. */
export class SpoolInUse extends Error {
  override readonly name = 'SpoolInUse';
}

/** The queue was written by a newer version, in a format this one does not know. */
export class SpoolTooNew extends Error {
  override readonly name = 'SpoolTooNew';
}

/**
 * The kind of an SQLite error, as it concerns a write.
 * full: no space · busy: another process writes · io: the file can no longer be trusted · damaged: the file content
 * is invalid · misuse: only this write is wrong.
 */
export type FailureKind = 'full' | 'busy' | 'io' | 'damaged' | 'misuse';

/** Primary result codes, https://www.sqlite.org/rescode.html */
const KINDS: Readonly<Record<number, FailureKind>> = {
  5: 'busy',
  6: 'busy',
  13: 'full',
  8: 'io',
  10: 'io',
  14: 'io',
  15: 'io',
  22: 'io',
  23: 'io',
  11: 'damaged',
  26: 'damaged',
};

/** SQLITE_IOERR_SHMSIZE: the WAL index could not grow, which means lack of space, not loss. */
const SHM_SIZE = 4874;

export function kindOf(error: unknown): FailureKind {
  const code = resultCode(error);
  if (code === undefined) return 'misuse';
  if (code === SHM_SIZE) return 'full';
  return KINDS[code & 0xff] ?? 'misuse';
}

/** Returns the message of an error, with its SQLite result code. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'errcode' in error ? ` (${String(error.errcode)})` : '';
  return error.message + code;
}

/** Whether the system reported no space, or an exceeded quota. */
export const isNoSpace = (error: unknown): boolean => hasCode(error, 'ENOSPC', 'EDQUOT');
