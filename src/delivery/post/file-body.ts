import { type FileHandle, open } from 'node:fs/promises';

/** The bytes of a file, for one request. */
export interface FileBody {
  /** Each chunk is valid until the next is asked for. Throws when the file cannot be read. */
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Ends the reading, begun or not. */
  close(): void;
}

// Not below the buffer of a socket (64 KiB): then the next chunk is asked for when this one is gone, and its memory is free again.
const CHUNK = 128 * 1024;

/**
 * Reads so many bytes of a file in chunks that share memory as long as `sent` says that all before has left: a stream makes new
 * memory for every chunk, and a large post kept the collector of garbage busy with nothing else.
 */
export function createFileBody(
  { path, size }: { readonly path: string; readonly size: number },
  sent: () => boolean,
): FileBody {
  let file: Promise<FileHandle> | undefined;
  let closed = false;

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

  return Object.freeze({ chunks: read(), close });
}
