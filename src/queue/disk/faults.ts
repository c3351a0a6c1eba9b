/** There is no room on the disk: the sender may come again later (452 4.3.1). */
export class SpoolFull extends Error {
  override readonly name = 'SpoolFull';
}

/** The disk, the file or the thread that owns it failed us: temporary (451 4.3.0), and said in the log once. */
export class SpoolFault extends Error {
  override readonly name = 'SpoolFault';
}

/** Another daemon has this folder open. */
export class SpoolInUse extends Error {
  override readonly name = 'SpoolInUse';
}

/** The queue was written by a newer version, whose meaning we do not know. */
export class SpoolTooNew extends Error {
  override readonly name = 'SpoolTooNew';
}

/**
 * What a failure of SQLite means for what was to be written.
 * full: no space · busy: another process writes · io: the file cannot be trusted any more ·
 * damaged: what is in the file makes no sense · misuse: this one write is wrong, the others are not.
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

/** SQLITE_IOERR_SHMSIZE: the index of the WAL could not grow, which is lack of space and no loss. */
const SHM_SIZE = 4874;

/** The result code that node:sqlite hangs on its errors. */
export function codeOf(error: unknown): number | undefined {
  return error instanceof Error && 'errcode' in error && typeof error.errcode === 'number' ? error.errcode : undefined;
}

/** What the result code of a failure means. */
export function kindOf(error: unknown): FailureKind {
  const code = codeOf(error);
  if (code === undefined) return 'misuse';
  if (code === SHM_SIZE) return 'full';
  return KINDS[code & 0xff] ?? 'misuse';
}

/** The text of a failure, with SQLite's own name for it. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const code = 'errcode' in error ? ` (${String(error.errcode)})` : '';
  return error.message + code;
}

/** Whether the system said that there is no space left, or none left for us. */
export function isNoSpace(error: unknown): boolean {
  return error instanceof Error && 'code' in error && (error.code === 'ENOSPC' || error.code === 'EDQUOT');
}
