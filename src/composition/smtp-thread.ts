import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { systemClock } from '../base/clock.ts';
import { createIds } from '../base/ids.ts';
import { createBlobs } from '../queue/disk/bodies.ts';
import { folderOf } from '../queue/disk/folder.ts';
import { serveSessions } from '../smtp/threads/thread.ts';

/** The start data of a thread with SMTP sessions. */
export interface SmtpThreadData {
  /** The folder of the queue, in which large messages arrive. */
  readonly spoolDir: string;
}

serveSessions<SmtpThreadData>(({ spoolDir }, number) => {
  const { blobs, tmp } = folderOf(spoolDir);
  // Its own folder, emptied of files left by a dead thread.
  const own = join(tmp, `smtp-${number}`);
  rmSync(own, { recursive: true, force: true });
  mkdirSync(own, { mode: 0o750 });
  const clock = systemClock;
  return { bodies: createBlobs({ blobs, tmp: own }), ids: createIds(clock), clock };
});
