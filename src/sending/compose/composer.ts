import { frozen } from '../../base/frozen.ts';
import { type PooledTask, TaskBroken } from '../../base/worker-pool.ts';
import type { Packed } from '../../base/worker-tasks.ts';
import type { ComposeJob, ComposeReply, Composer } from '../types.ts';

/** Composes mail with the task `run` of the threads; mail that breaks a thread which it had for itself is refused. */
export function createComposer(run: PooledTask<ComposeJob, ComposeReply>): Composer {
  return frozen({
    async compose(job) {
      try {
        return await run(() => pack(job));
      } catch (error) {
        if (error instanceof TaskBroken) return { kind: 'refused', reason: `composing ${error.message}`, final: true };
        throw error;
      }
    },
  });
}

function pack(job: ComposeJob): Packed<ComposeJob> {
  const { body } = job;
  if (body.kind === 'blob') return { value: job, transfer: [] };
  // A copy of its own can be handed over; the original stays for another try.
  const bytes = new Uint8Array(body.bytes);
  return { value: { ...job, body: { kind: 'inline', bytes } }, transfer: [bytes.buffer] };
}
