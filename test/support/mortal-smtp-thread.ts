import { workerData } from 'node:worker_threads';

// A thread of SMTP sessions that dies when it is told to: `own.fuse` has a cell for each thread.
const fuse = new Int32Array(workerData.own.fuse);
setInterval(() => {
  if (Atomics.exchange(fuse, workerData.number, 0) !== 0) throw new Error('broken on purpose');
}, 5).unref();
await import('../../src/composition/smtp-thread.ts');
