import { threadId } from 'node:worker_threads';
import { serveTasks } from '../../src/base/worker-tasks.ts';

/**
 * A thread whose task keeps what it was given, and says how much is left of what it kept before. Others stand still
 * until the first cell is no longer 0: with their thread, or beside what else it does.
 */
serveTasks<null>(() => {
  const kept: Uint8Array[] = [];
  const keep = async (bytes: Uint8Array, fails: boolean) => {
    const left = kept.map(({ byteLength }) => byteLength);
    kept.push(bytes);
    if (fails) throw new Error('it was to fail');
    return { value: { left, same: bytes.subarray(1) }, transfer: [] };
  };
  return {
    keep: (bytes: Uint8Array) => keep(bytes, false),
    fail: (bytes: Uint8Array) => keep(bytes, true),
    block: async (cells: Int32Array) => {
      Atomics.store(cells, 1, 1);
      return { value: Atomics.wait(cells, 0, 0), transfer: [] };
    },
    wait: async (cells: Int32Array) => ({ value: await Atomics.waitAsync(cells, 0, 0).value, transfer: [] }),
    thread: async () => ({ value: threadId, transfer: [] }),
  };
});
