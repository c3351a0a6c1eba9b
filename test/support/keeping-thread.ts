import { serveTasks } from '../../src/base/worker-tasks.ts';

/** A thread whose task keeps what it was given, and says how much is left of what it kept before. */
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
  };
});
