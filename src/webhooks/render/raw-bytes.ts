import { open } from 'node:fs/promises';
import { type Bytes, toBuffer } from '../../base/bytes.ts';
import { createSerialQueue } from '../../base/concurrency.ts';

/**
 * Lends the raw bytes of a message to `work`; they are valid until it ends. Of files, one at a time is in memory.
 * Throws if the file cannot be read.
 */
export type WithRaw = <T>(body: Bytes, work: (raw: Buffer) => Promise<T>) => Promise<T>;

/** The bytes of messages on a render thread; its tasks share one. */
export function createRawBytes(): WithRaw {
  const fileTurn = createSerialQueue();
  const withFile = createLoan();
  return async (body, work) => {
    if (body.kind === 'file') return fileTurn(() => withFile(body.path, work));
    return work(toBuffer(body.bytes));
  };
}

/** Lends the bytes of a file to `work`; they are valid until it ends. Throws if the file cannot be read. */
type WithFile = <T>(path: string, work: (bytes: Buffer) => Promise<T>) => Promise<T>;

// Larger buffers are not kept: such messages are rare, and reuse would not be worth the memory.
const MAX_KEPT = 16 * 1024 * 1024;

/**
 * Reads one file after another into the same buffer. With a buffer per file, a thread held several large messages no
 * longer in use, and each triggered a garbage collection that marked the whole heap.
 */
function createLoan(): WithFile {
  let kept: ArrayBuffer | undefined;

  function take(size: number): ArrayBuffer {
    const memory = kept && kept.byteLength >= size ? kept : new ArrayBuffer(size);
    if (memory === kept) kept = undefined;
    return memory;
  }

  /** Keeps the larger buffer and frees the other now instead of at the next garbage collection. */
  function give(memory: ArrayBuffer): void {
    const better = memory.byteLength <= MAX_KEPT && memory.byteLength > (kept?.byteLength ?? 0);
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
        if (bytesRead === 0) throw new Error(`${path} is truncated`);
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
