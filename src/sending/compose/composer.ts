import { frozen } from '../../base/frozen.ts';
import { free } from '../../base/room.ts';
import { type PooledTask, TaskBroken } from '../../base/worker-pool.ts';
import type { Packed } from '../../base/worker-tasks.ts';
import type { ComposeJob, ComposeReply, Composer } from '../types.ts';

/**
 * Composes mail by running the task on worker threads. A message that crashes a thread running nothing else is refused.
 */
export function createComposer(run: PooledTask<ComposeJob, ComposeReply>): Composer {
  return frozen({
    async compose(job) {
      try {
        return await run(() => pack(job));
      } catch (error) {
        if (error instanceof TaskBroken) return { kind: 'refused', reason: `composing ${error.message}`, final: true };
        throw error;
      } finally {
        if (job.body.kind === 'inline') free(job.body.bytes);
      }
    },
  });
}

function pack(job: ComposeJob): Packed<ComposeJob> {
  const { body } = job;
  if (body.kind === 'blob') return { value: job, transfer: [] };
  // Transferred as a copy; the original stays for a retry, and is freed after the last.
  const bytes = new Uint8Array(body.bytes);
  return { value: { ...job, body: { kind: 'inline', bytes } }, transfer: [bytes.buffer] };
}
