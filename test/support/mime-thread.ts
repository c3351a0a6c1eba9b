/**
 * A render thread that can be broken: what a message says in `X-Test` happens to it, because no input is known that would do it.
 */
import { parentPort } from 'node:worker_threads';
import '../../src/webhooks/render/thread.ts';
import type { Body } from '../../src/queue/delivery.ts';
import type { ThreadJob } from '../../src/webhooks/render/handle.ts';

interface Kept {
  readonly before: Kept | undefined;
  readonly text: string;
}

parentPort?.on('message', (jobs: readonly ThreadJob[]) => {
  for (const job of jobs) {
    const bytes =
      job.kind === 'mail' ? inlineOf(job.compose.body) : 'bytes' in job.source ? job.source.bytes : undefined;
    const parseError = job.kind === 'mail' ? null : job.parseError;
    const text = bytes ? Buffer.from(bytes).toString('latin1') : '';
    const order = /^X-Test: (\w+)/m.exec(text)?.[1];
    if (order === 'die' || (order === 'throw' && parseError === null)) throw new Error('broken by a test');
    if (order === 'memory' && parseError === null) useMemory();
  }
});

function inlineOf(body: Body): Uint8Array | undefined {
  return body.kind === 'inline' ? body.bytes : undefined;
}

/** In small bites: one large one past the limit would end the process and not the thread. */
function useMemory(): void {
  let kept: Kept | undefined;
  for (let i = 0; ; i++) kept = { before: kept, text: `${i} is kept` };
}
