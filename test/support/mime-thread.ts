/**
 * A render thread that can be broken: what a message says in `X-Test` happens to it, because no input is known that would do it.
 */
import { parentPort } from 'node:worker_threads';
import '../../src/delivery/render/thread.ts';
import type { ThreadJob } from '../../src/delivery/render/protocol.ts';

interface Kept { readonly before: Kept | undefined; readonly text: string }

parentPort?.on('message', (jobs: readonly ThreadJob[]) => {
  for (const { source, parseError } of jobs) {
    const text = 'bytes' in source ? Buffer.from(source.bytes).toString('latin1') : '';
    const order = /^X-Test: (\w+)/m.exec(text)?.[1];
    if (order === 'die' || (order === 'throw' && parseError === null)) throw new Error('broken by a test');
    if (order === 'memory' && parseError === null) useMemory();
  }
});

/** In small bites: one large one past the limit would end the process and not the thread. */
function useMemory(): void {
  let kept: Kept | undefined;
  for (let i = 0; ; i++) kept = { before: kept, text: `${i} is kept` };
}
