import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** MB that the files below a folder take up on the disk. */
export async function megabytesIn(dir: string): Promise<number> {
  const entries = await readdir(dir, { recursive: true });
  let blocks = 0;
  // A file may be gone before it is read.
  for (const entry of entries) blocks += (await stat(join(dir, entry)).catch(() => undefined))?.blocks ?? 0;
  return (blocks * 512) / 1024 / 1024;
}

/** Watches the folder: `end` answers the most that was in it. */
export function watchDisk(dir: string, everyMs = 100): { end(): Promise<number> } {
  let [most, over] = [0, false];
  const watching = (async () => {
    while (!over) {
      most = Math.max(most, await megabytesIn(dir));
      await new Promise((resolve) => setTimeout(resolve, everyMs));
    }
  })();
  return {
    async end() {
      over = true;
      await watching;
      return Math.max(most, await megabytesIn(dir));
    },
  };
}
