import { open } from 'node:fs/promises';

/** Lends the bytes of a file to `work`; they are gone when it is done. Throws when the file cannot be read. */
export type WithFile = <T>(path: string, work: (bytes: Buffer) => Promise<T>) => Promise<T>;

// More than this is not kept: such messages are rare, and the memory would be missed more often than the time.
const MOST_KEPT = 16 * 1024 * 1024;

/**
 * Reads one file after another into the same memory. With memory of its own for each, a thread held several large messages
 * that nobody needed, and the collector of garbage, woken by each of them, marked the whole heap.
 */
export function createLoan(): WithFile {
  let kept: ArrayBuffer | undefined;

  function take(size: number): ArrayBuffer {
    const memory = kept && kept.byteLength >= size ? kept : new ArrayBuffer(size);
    if (memory === kept) kept = undefined;
    return memory;
  }

  /** The larger one is kept, the other given back now and not when the collector finds it. */
  function give(memory: ArrayBuffer): void {
    const better = memory.byteLength <= MOST_KEPT && memory.byteLength > (kept?.byteLength ?? 0);
    const spare = better ? kept : memory;
    if (better) kept = memory;
    spare?.transfer(0);
  }

  async function read(path: string): Promise<{ readonly memory: ArrayBuffer; readonly size: number }> {
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      const memory = take(size);
      const bytes = new Uint8Array(memory);
      for (let at = 0; at < size; ) {
        const { bytesRead } = await file.read(bytes, at, size - at, at);
        if (bytesRead === 0) throw new Error(`${path} ends too early`);
        at += bytesRead;
      }
      return { memory, size };
    } finally {
      await file.close();
    }
  }

  return async (path, work) => {
    const { memory, size } = await read(path);
    try {
      return await work(Buffer.from(memory, 0, size));
    } finally {
      give(memory);
    }
  };
}
