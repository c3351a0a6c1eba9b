import { syncBuiltinESMExports } from 'node:module';
import type { MessagePort } from 'node:worker_threads';

// A thread that runs an entry point several times, each time with a port and data of its own (warm-threads.ts).

const threads = process.getBuiltinModule('node:worker_threads');
const { parentPort: pool, workerData: script } = threads;
let uses = 0;

const open = () => process.getActiveResourcesInfo().length;

/**
 * A use has ended when its port is closed and what it opened is too, as a thread of its own would end. One handle may
 * be left: not all threads count the same before and after a use.
 */
function ended(before: number): void {
  if (open() > before + 1) setTimeout(ended, 2, before);
  else pool?.postMessage(null);
}

pool?.on('message', ({ port, data }: { port: MessagePort; data: unknown }) => {
  const before = open();
  port.once('close', () => setImmediate(() => ended(before)));
  Object.assign(threads, { parentPort: port, workerData: data });
  syncBuiltinESMExports();
  // The entry point runs again under another name; the modules that it imports are loaded once.
  void import(`${script}?use=${uses++}`);
});
