import {
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { frozen } from '../../base/frozen.ts';
import { makePrivate } from '../../base/private-files.ts';
import { kindOf, SpoolInUse } from './faults.ts';

/** The paths in the folder of the queue. */
export type Folder = Readonly<ReturnType<typeof folderOf>>;

export function folderOf(dir: string) {
  const at = (name: string) => join(dir, name);
  return {
    dir,
    /** The queue file, with `-wal` and `-shm` beside it. */
    file: at('spool.db'),
    /** A new queue file while it is written; worthless until it is renamed to `next`. */
    part: at('spool.db.part'),
    /** A complete new queue file that replaces `file`, even after a crash. */
    next: at('spool.db.next'),
    /** Locked by the one daemon. */
    lock: at('daemon.lock'),
    /** The id of the host. */
    hostId: at('host-id'),
    /** Large bodies, and the folder where they are written first. */
    blobs: at('blobs'),
    tmp: at('tmp'),
  };
}

/** Creates the folders and syncs them, so that they survive a power cut. */
export function makeFolders({ dir, blobs, tmp }: Folder): void {
  for (const path of [dir, blobs, tmp]) mkdirSync(path, { recursive: true, mode: 0o750 });
  syncPath(dir);
  syncPath(dirname(dir));
}

/** Syncs a folder, or a file that is not open elsewhere here: closing it drops the locks of SQLite on it. */
export function syncPath(path: string): void {
  const handle = openSync(path, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/** Syncs a folder asynchronously. */
export async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/**
 * Returns the id of the host with this queue, created on its first start. It is not the host name, which another
 * machine may get; a queue that is moved to another machine keeps its id.
 */
export function hostIdIn({ dir, hostId: path }: Folder, create: () => string): string {
  const known = existsSync(path) ? readFileSync(path, 'utf8').trim() : '';
  if (known !== '') return known;
  const id = create();
  const part = `${path}.part`;
  writeFileSync(part, `${id}\n`, { mode: 0o600 });
  syncPath(part);
  renameSync(part, path);
  syncPath(dir);
  return id;
}

/** Deletes unfinished files of the last daemon. Returns how many. */
export function emptyTmp({ tmp }: Folder): number {
  // Threads with SMTP sessions have their own subfolders.
  const files = readdirSync(tmp, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const name of readdirSync(tmp)) rmSync(join(tmp, name), { recursive: true, force: true });
  return files.length;
}

/**
 * Makes the new file the valid one: after a crash before `applyReplacement`, the next start completes the replacement.
 */
export function stageReplacement({ dir, part, next }: Folder): void {
  syncPath(part);
  renameSync(part, next);
  syncPath(dir);
}

/** Replaces the old file with the new one. The old log goes first: SQLite would replay it into the new file. */
export function applyReplacement({ dir, file, next }: Folder): void {
  rmSync(`${file}-wal`, { force: true });
  rmSync(`${file}-shm`, { force: true });
  syncPath(dir);
  renameSync(next, file);
  syncPath(dir);
}

/** Whether a new file waits to be adopted. */
export function isReplacementStaged({ next }: Folder): boolean {
  return existsSync(next);
}

const asideOf = ({ file }: Folder, now: number) =>
  `${file}.damaged-${new Date(now).toISOString().replaceAll(/[:.]/g, '-')}`;

/** Copies a damaged log before SQLite continues to write it. Returns the path; null if that failed. */
export function copyLogAside(folder: Folder, now: number): string | null {
  const aside = `${asideOf(folder, now)}-wal`;
  try {
    copyFileSync(`${folder.file}-wal`, aside, constants.COPYFILE_FICLONE);
    syncPath(aside);
    syncPath(folder.dir);
    return aside;
  } catch {
    rmSync(aside, { force: true }); // most likely no space
    return null;
  }
}

/** Keeps a damaged queue file, with its log, under another name for inspection. Returns the name. */
export function keepAside(folder: Folder, now: number): string {
  const { file } = folder;
  const aside = asideOf(folder, now);
  for (const end of ['', '-wal']) {
    if (existsSync(file + end) && !existsSync(aside + end)) linkSync(file + end, aside + end);
  }
  return aside;
}

/**
 * Keeps other daemons out until it is released. Locks the folder for one daemon, with SQLite's exclusive lock on
 * an empty file: unlike a process id in a file, the kernel releases it when the process ends for any reason.
 */
export function takeLock(path: string) {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    db.close();
    if (kindOf(error) === 'busy')
      throw new SpoolInUse(
        `another Postern uses this queue (${path}). Stop it first, or set another data_dir for this one`,
      );
    throw error;
  }
  return frozen({ release: () => db.close() });
}
