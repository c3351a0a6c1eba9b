import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterFile } from './cleanup.ts';
import { place } from './place.ts';

const made: string[] = [];

async function make(where: string): Promise<string> {
  const dir = await mkdtemp(join(where, 'postern-test-'));
  made.push(dir);
  return dir;
}

/** A folder of this test's own; it is gone after the file. */
export const tempDir = (): Promise<string> => make(place());

/** The same, for what looks at the file system itself. */
export const diskDir = (): Promise<string> => make(tmpdir());

afterFile(async () => {
  for (const dir of made.splice(0)) await rm(dir, { recursive: true, force: true });
});
