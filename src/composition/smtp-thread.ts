import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createBlobs } from '../queue/disk/bodies.ts';
import { folderOf } from '../queue/disk/folder.ts';
import { serveSessions } from '../smtp/threads/thread.ts';

/** What a thread with SMTP sessions is started with. */
export interface SmtpThreadData {
  /** The folder of the queue: large messages arrive in it. */
  readonly spoolDir: string;
}

serveSessions<SmtpThreadData>(({ spoolDir }, number) => {
  const { blobs, tmp } = folderOf(spoolDir);
  // A folder of its own, in which nothing is left of a thread that died.
  const own = join(tmp, `smtp-${number}`);
  rmSync(own, { recursive: true, force: true });
  mkdirSync(own, { mode: 0o750 });
  const clock = systemClock;
  return { bodies: createBlobs({ blobs, tmp: own }), ids: createIds(clock), clock };
});
