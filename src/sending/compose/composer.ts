import { freeBytes, toTransfer } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';
import { type PooledTask, TaskBroken } from '../../base/worker-pool.ts';
import type { Packed } from '../../base/worker-tasks.ts';
import type { ComposeJob, ComposeReply, Composer } from '../types.ts';

/** Composes mail by running the task on worker threads. A message that crashes a thread by itself is refused. */
export function createComposer(run: PooledTask<ComposeJob, ComposeReply>): Composer {
  return frozen({
    async compose(job) {
      try {
        return await run(() => pack(job));
      } catch (error) {
        if (error instanceof TaskBroken) return { kind: 'refused', reason: `composing ${error.message}`, final: true };
        throw error;
      } finally {
        freeBytes(job.body);
      }
    },
  });
}

function pack(job: ComposeJob): Packed<ComposeJob> {
  const { copy, transfer } = toTransfer(job.body);
  return { value: { ...job, body: copy }, transfer };
}
