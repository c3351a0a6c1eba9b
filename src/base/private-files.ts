import { chmodSync, closeSync, openSync, statSync } from 'node:fs';
import { chmod, opendir, stat } from 'node:fs/promises';
import { join, relative, sep } from 'node:path';

// Files with mail, keys and addresses in them: only their owner reads them, whatever the umask.

const PRIVATE = 0o600;
const FOR_OTHERS = 0o077;
/** SQLite gives the files beside a database the permissions that the database has when it makes them. */
const BESIDE = ['', '-wal', '-shm'];

/**
 * Creates the file of a database if it is missing, and removes the permissions of others on it and the files beside it.
 */
export function makePrivate(path: string): void {
  for (const end of BESIDE) {
    const found = statSync(path + end, { throwIfNoEntry: false });
    // Opening a database that is there would drop the locks of this process on it when it is closed.
    if (!found && end === '') closeSync(openSync(path, 'a', PRIVATE));
    else if (found?.isFile() && (found.mode & FOR_OTHERS) !== 0) chmodSync(path + end, PRIVATE);
  }
}

/**
 * Removes the permissions of others on the files of a folder, which an earlier version granted: on those with a name of
 * ours, and those in folders of ours. Files that vanish meanwhile are skipped.
 */
export async function keepPrivate(folder: string, isOurs: (name: string) => boolean): Promise<void> {
  for await (const entry of await opendir(folder, { recursive: true })) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || !isOurs(relative(folder, path).split(sep, 1)[0] ?? '')) continue;
    const found = await stat(path).catch(() => undefined);
    if (found && (found.mode & FOR_OTHERS) !== 0) await chmod(path, PRIVATE).catch(() => undefined);
  }
}
