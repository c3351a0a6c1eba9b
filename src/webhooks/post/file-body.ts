import { type FileHandle, open } from 'node:fs/promises';
import type { BytesInFile } from '../../base/bytes.ts';
import { frozen } from '../../base/frozen.ts';

/** The bytes of a file, for one request. */
export type FileBody = ReturnType<typeof createFileBody>;

// At least the buffer of a socket (64 KiB): the next chunk is then requested only once this one has been written, and
// its memory can be reused.
const CHUNK = 128 * 1024;

/**
 * Reads `size` bytes of a file in chunks, reusing one buffer while `sent` reports that everything so far was written. A
 * stream allocates a buffer per chunk, which kept the garbage collector busy during large posts.
 */
export function createFileBody({ path, size }: Pick<BytesInFile, 'path' | 'size'>, sent: () => boolean) {
  let file: Promise<FileHandle> | undefined;
  let closed = false;

  /** Stops reading, whether or not it has begun. */
  function close(): void {
    closed = true;
    const opened = file;
    file = undefined;
    opened?.then((handle) => handle.close()).catch(() => {});
  }

  async function* read(): AsyncGenerator<Uint8Array> {
    let memory = Buffer.allocUnsafeSlow(Math.min(CHUNK, size));
    try {
      for (let left = size; left > 0 && !closed; ) {
        file ??= open(path);
        const { bytesRead } = await (await file).read(memory, 0, memory.length);
        if (bytesRead === 0) return;
        left -= bytesRead;
        yield memory.subarray(0, bytesRead);
        if (left > 0 && !sent()) memory = Buffer.allocUnsafeSlow(CHUNK);
      }
    } finally {
      close();
    }
  }

  return frozen({
    /** Each chunk is valid until the next is requested. Throws if the file cannot be read. */
    chunks: read(),
    close,
  });
}
