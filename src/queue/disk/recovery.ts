import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Tools } from '../../base/tools.ts';
import type { Blobs } from './bodies.ts';
import { LOST } from './faults.ts';
import type { QueueFile } from './file.ts';
import { copyLogAside, type Folder, isReplacementStaged } from './folder.ts';
import { findLogDamage } from './log-damage.ts';
import type { Reader } from './reader.ts';

interface RecoveryParts extends Pick<Tools, 'clock' | 'log'> {
  readonly file: QueueFile;
  readonly reading: Reader;
  readonly blobs: Blobs;
  /** Folder of the blobs. */
  readonly path: string;
  /** Whether a message with a missing body may have a copy, which its next attempt looks for. */
  readonly copies: boolean;
}

/** Gives up the waiting deliveries of an unreadable message; the rest of the queue continues. */
export async function quarantine(
  { log, file, clock }: Pick<RecoveryParts, 'clock' | 'log' | 'file'>,
  messageId: string,
  reason: string,
): Promise<void> {
  const count = await file.write('quarantine', messageId, LOST + reason, clock.now());
  if (count > 0) log.error('spool.fault', { reason: LOST + reason, message: messageId, deliveries: count });
}

/** Gives up deliveries, by key or id, whose rows were damaged, or whose message cannot be found by its id. */
export async function giveUpDamaged(
  { log, file, clock }: Pick<RecoveryParts, 'clock' | 'log' | 'file'>,
  which: readonly (number | string)[],
  message?: string,
): Promise<void> {
  const reason = `${LOST}its row was damaged on disk`;
  const count = await file.write('bury', which, reason, clock.now());
  if (count > 0) log.error('spool.fault', { reason, ...(message !== undefined && { message }), deliveries: count });
}

/**
 * Checks the log of the queue file before it is opened: SQLite takes damage in the middle for the end, and discards the
 * commits behind it. Postern continues with the readable part, and keeps a copy of the log for inspection.
 */
export function lookAtLog(folder: Folder, { clock, log }: Pick<RecoveryParts, 'clock' | 'log'>): void {
  const path = `${folder.file}-wal`;
  // A file that is about to be replaced no longer needs its log.
  if (isReplacementStaged(folder) || !existsSync(path)) return;
  const damage = findLogDamage(path);
  if (!damage) return;
  log.error('spool.fault', {
    reason: 'the write-ahead log of the queue was damaged on disk; changes after the damage are missing from the queue',
    ...damage,
    aside: copyLogAside(folder, clock.now()),
  });
}

async function moveAside(path: string, names: readonly string[], aside: string): Promise<void> {
  if (names.length > 0) await mkdir(aside, { recursive: true, mode: 0o750 });
  for (const name of names) await rename(join(path, name), join(aside, name));
}

/** Reconciles files and rows when the daemon starts, and logs the differences. */
export async function recover(parts: RecoveryParts, swept: number): Promise<void> {
  const { log, file, reading, blobs, path } = parts;
  const rows = await reading.read('blobNames');
  const names = new Set(rows.map(({ name }) => name));
  const orphans = (await readdir(path)).filter((name) => !names.has(name));
  // A damaged queue file may have referred to them: they are kept with it.
  if (file.rebuilt?.aside) await moveAside(path, orphans, `${file.rebuilt.aside}-blobs`);
  else await blobs.remove(orphans);
  for (const { name, messageId, size } of parts.copies ? [] : rows) {
    const found = await stat(join(path, name)).catch(() => undefined);
    if (found?.size === size) continue;
    await quarantine(parts, messageId, found ? 'its blob file has the wrong length' : 'its blob file is missing');
  }
  const waiting = file.tally.entries().reduce((sum, entry) => sum + entry.waiting, 0);
  if (file.rebuilt)
    log.error('spool.fault', {
      reason: 'the queue file was damaged; all readable data is in a new file',
      ...file.rebuilt,
    });
  log.info('spool.recovered', { waiting, largeBodies: rows.length, orphans: orphans.length, unfinished: swept });
}
