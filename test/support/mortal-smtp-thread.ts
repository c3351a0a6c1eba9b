import { workerData } from 'node:worker_threads';

// A thread of SMTP sessions that dies (1) or hangs (2) when it is told to: `own.fuse` has a cell for each thread.
const fuse = new Int32Array(workerData.own.fuse);
setInterval(() => {
  const told = Atomics.exchange(fuse, workerData.number, 0);
  if (told === 1) throw new Error('broken on purpose');
  while (told === 2);
}, 5).unref();
await import('../../src/composition/smtp-thread.ts');
