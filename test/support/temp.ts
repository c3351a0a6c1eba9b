import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const made: string[] = [];

/** A folder of this test's own; it is gone after the run. */
export async function tempDir(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'postern-test-'));
  made.push(dir);
  return dir;
}

after(async () => {
  for (const dir of made.splice(0)) await rm(dir, { recursive: true, force: true });
});
