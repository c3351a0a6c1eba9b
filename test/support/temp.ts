import { execFileSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterFile } from './cleanup.ts';
import { filesFolder } from './files-folder.ts';

const made: string[] = [];

async function make(where: string): Promise<string> {
  const dir = await mkdtemp(join(where, 'postern-test-'));
  made.push(dir);
  return dir;
}

/** A folder of this test's own; it is gone after the file. */
export const tempDir = (): Promise<string> => make(filesFolder());

/** The same, for tests of the file system itself. */
export const diskDir = (): Promise<string> => make(tmpdir());

const mounted: string[] = [];

/** A disk of this number of megabytes, removed after the file; undefined where none can be mounted. */
export async function smallDisk(megabytes: number): Promise<string | undefined> {
  const dir = await tempDir();
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m`, 'tmpfs', dir], { stdio: 'ignore' });
  } catch {
    console.log('    a full disk is not tried: a small one cannot be mounted here');
    return undefined;
  }
  mounted.push(dir);
  return dir;
}

afterFile(async () => {
  for (const dir of mounted.splice(0)) execFileSync('umount', [dir]);
  for (const dir of made.splice(0)) await rm(dir, { recursive: true, force: true });
});
