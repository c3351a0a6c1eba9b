import { open } from 'node:fs/promises';
import { MOST_HEADER_BYTES } from './header-section.ts';

/** Where the raw bytes of a message are, line ends CRLF. */
export type RawSource = { readonly bytes: Uint8Array } | { readonly path: string };

/** Large enough that a body of one endless line is not gone through too often, small enough for the memory of a thread. */
const CHUNK_BYTES = 2 * 1024 * 1024;

/** The first octets of a message, enough to tell whether its header section is within the limit. */
export async function readStart(source: RawSource): Promise<Uint8Array> {
  if ('bytes' in source) return source.bytes;
  const file = await open(source.path, 'r');
  try {
    const start = Buffer.alloc(MOST_HEADER_BYTES + 1);
    let length = 0;
    for (;;) {
      const { bytesRead } = await file.read(start, length, start.length - length, length);
      length += bytesRead;
      if (bytesRead === 0 || length === start.length) return start.subarray(0, length);
    }
  } finally {
    await file.close();
  }
}

/** The octets of a message from `bodyAt` on. */
export function bodyPieces(source: RawSource, bodyAt: number): Iterable<Uint8Array> | AsyncIterable<Uint8Array> {
  return 'bytes' in source ? memoryPieces(source.bytes, bodyAt) : filePieces(source.path, bodyAt);
}

function* memoryPieces(bytes: Uint8Array, bodyAt: number): Iterable<Uint8Array> {
  for (let at = bodyAt; at < bytes.length; at += CHUNK_BYTES) yield bytes.subarray(at, at + CHUNK_BYTES);
}

async function* filePieces(path: string, bodyAt: number): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r');
  try {
    for (let at = bodyAt; ; ) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES, at);
      if (bytesRead === 0) return;
      at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}
