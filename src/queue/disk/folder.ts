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
  renameSync,
  rmSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { frozen } from '../../base/frozen.ts';
import { kindOf, SpoolInUse } from './faults.ts';

/** Where things are under the folder of the queue. */
export interface Folder {
  readonly dir: string;
  /** The queue file, with `-wal` and `-shm` beside it. */
  readonly file: string;
  /** A new queue file while it is written; worthless until it is renamed to `next`. */
  readonly part: string;
  /** A whole new queue file that replaces `file`, even after a crash. */
  readonly next: string;
  /** Held by the one daemon. */
  readonly lock: string;
  /** Large bodies, and the same while they arrive. */
  readonly blobs: string;
  readonly tmp: string;
}

/** The names under `dir`. */
export function folderOf(dir: string): Folder {
  const at = (name: string) => join(dir, name);
  return {
    dir,
    file: at('spool.db'),
    part: at('spool.db.part'),
    next: at('spool.db.next'),
    lock: at('daemon.lock'),
    blobs: at('blobs'),
    tmp: at('tmp'),
  };
}

/** Makes the folders, and makes sure that they are still there after a power cut. */
export function makeFolders({ dir, blobs, tmp }: Folder): void {
  for (const path of [dir, blobs, tmp]) mkdirSync(path, { recursive: true, mode: 0o750 });
  syncPath(dir);
  syncPath(dirname(dir));
}

/**
 * Syncs a folder (its names), or a file that nobody else has open: closing it drops the locks that SQLite holds on it.
 */
export function syncPath(path: string): void {
  const handle = openSync(path, 'r');
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/** Throws away what was arriving when the last daemon ended. Answers how many files. */
export function emptyTmp({ tmp }: Folder): number {
  // Threads with SMTP sessions have folders of their own.
  const files = readdirSync(tmp, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const name of readdirSync(tmp)) rmSync(join(tmp, name), { recursive: true, force: true });
  return files.length;
}

/** From here on the new file counts: a crash before `adopt` is made good by the next start. */
export function appoint({ dir, part, next }: Folder): void {
  syncPath(part);
  renameSync(part, next);
  syncPath(dir);
}

/**
 * Puts the new file in the place of the old one. The log of the old one goes first: SQLite would replay it into the new
 * file, whose pages it knows nothing of.
 */
export function adopt({ dir, file, next }: Folder): void {
  rmSync(`${file}-wal`, { force: true });
  rmSync(`${file}-shm`, { force: true });
  syncPath(dir);
  renameSync(next, file);
  syncPath(dir);
}

/** Whether a new file waits to be adopted. */
export function isAppointed({ next }: Folder): boolean {
  return existsSync(next);
}

const asideOf = ({ file }: Folder, now: number) =>
  `${file}.damaged-${new Date(now).toISOString().replaceAll(/[:.]/g, '-')}`;

/** Keeps a copy of a damaged log before SQLite goes on writing it. Answers where; null when it could not be made. */
export function copyLogAside(folder: Folder, now: number): string | null {
  const aside = `${asideOf(folder, now)}-wal`;
  try {
    copyFileSync(`${folder.file}-wal`, aside, constants.COPYFILE_FICLONE);
    syncPath(aside);
    syncPath(folder.dir);
    return aside;
  } catch {
    rmSync(aside, { force: true }); // no room, most likely
    return null;
  }
}

/** Keeps a damaged queue file, with its log, under another name for whoever wants to look at it. */
export function keepAside(folder: Folder, now: number): string {
  const { file } = folder;
  const aside = asideOf(folder, now);
  for (const end of ['', '-wal']) {
    if (existsSync(file + end) && !existsSync(aside + end)) linkSync(file + end, aside + end);
  }
  return aside;
}

/** Keeps other daemons out until it is released. */
interface Lock {
  release(): void;
}

/**
 * Takes the folder for one daemon. It is SQLite's exclusive lock on an empty file of its own: the kernel gives it up
 * when the process ends, however it ends, which a file with a process id in it does not.
 */
export function takeLock(path: string): Lock {
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    db.close();
    if (kindOf(error) === 'busy')
      throw new SpoolInUse(
        `another Postern has the queue open (${path}); stop it first, or give this one its own data_dir`,
      );
    throw error;
  }
  return frozen({ release: () => db.close() });
}
