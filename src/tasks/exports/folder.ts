import { mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';

/** What a name of ours looks like; anything else in the folder is left alone. */
const OURS = /^[\w-]+\.zip(?:\.tmp)?$/;

/** The folder of the archives on this host. A name without `.tmp` is a whole archive on the disk. */
export interface ArchiveFolder {
  /** Has an archive written beside its place and puts it there when it is whole. */
  put(name: string, write: (path: string) => Promise<void>): Promise<void>;
  /** Names of archives, whole or not. */
  names(): Promise<string[]>;
  remove(name: string): Promise<void>;
}

export function createArchiveFolder(dir: string): ArchiveFolder {
  return Object.freeze({
    async put(name: string, write: (path: string) => Promise<void>) {
      await mkdir(dir, { recursive: true, mode: 0o700 });
      const path = join(dir, name);
      try {
        await write(`${path}.tmp`);
        await rename(`${path}.tmp`, path);
      } catch (error) {
        await rm(`${path}.tmp`, { force: true });
        throw error;
      }
      await syncFolder(dir);
    },
    async names() {
      const names = await readdir(dir).catch((error: unknown) => {
        if (isMissing(error)) return [];
        throw error;
      });
      return [...new Set(names.filter((name) => OURS.test(name)).map((name) => name.replace(/\.tmp$/, '')))];
    },
    async remove(name: string) {
      await rm(join(dir, name), { force: true });
      await rm(join(dir, `${name}.tmp`), { force: true });
    },
  });
}

/** The new name is on the disk only when the folder is. */
async function syncFolder(dir: string): Promise<void> {
  const handle = await open(dir, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
