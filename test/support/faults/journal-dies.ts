import { existsSync, rmSync } from 'node:fs';
import { isMainThread, workerData } from 'node:worker_threads';

// Ends the thread of the journal when there is a file `journal.die` beside the journal.
const file: unknown = isMainThread ? undefined : workerData?.file;
if (typeof file === 'string' && file.endsWith('journal.db')) {
  const order = file.replace(/db$/, 'die');
  setInterval(() => {
    if (!existsSync(order)) return;
    rmSync(order);
    process.exit(1);
  }, 20).unref();
}
