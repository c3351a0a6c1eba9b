import { open, readFile } from 'node:fs/promises';

/** Bytes in memory or in a file: a message on the queue, a POST. */
export type Bytes = BytesInMemory | BytesInFile;

export interface BytesInMemory {
  readonly kind: 'memory';
  readonly bytes: Uint8Array;
}

export interface BytesInFile {
  readonly kind: 'file';
  readonly path: string;
  readonly size: number;
}

export const sizeOf = (bytes: Bytes): number => (bytes.kind === 'file' ? bytes.size : bytes.bytes.byteLength);

/** Bytes of memory in use. */
export const heldBy = (bytes: Bytes): number => (bytes.kind === 'file' ? 0 : bytes.bytes.byteLength);

/** All bytes; those in memory are not copied. */
export async function readAll(bytes: Bytes): Promise<Buffer> {
  return bytes.kind === 'file' ? readFile(bytes.path) : toBuffer(bytes.bytes);
}

/** The first `most` bytes of a file; bytes in memory are returned whole, and not copied. */
export async function readStart(bytes: Bytes, most: number): Promise<Buffer> {
  if (bytes.kind === 'memory') return toBuffer(bytes.bytes);
  const file = await open(bytes.path, 'r');
  try {
    const start = Buffer.alloc(most);
    for (let length = 0; ; ) {
      const { bytesRead } = await file.read(start, length, start.length - length, length);
      length += bytesRead;
      if (bytesRead === 0 || length === start.length) return start.subarray(0, length);
    }
  } finally {
    await file.close();
  }
}

/** Large enough that a body without line breaks is not scanned too often, small enough for the memory of a thread. */
const CHUNK_BYTES = 2 * 1024 * 1024;

/** Reads a file from `from` on, in chunks. */
export async function* chunksOf({ path }: BytesInFile, from: number): AsyncGenerator<Uint8Array> {
  const file = await open(path, 'r');
  try {
    for (let at = from; ; ) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES, at);
      if (bytesRead === 0) return;
      at += bytesRead;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** A copy to pass to a thread, with the memory to transfer. The original stays for a retry. */
export function toTransfer(bytes: Bytes): { readonly copy: Bytes; readonly transfer: readonly ArrayBuffer[] } {
  if (bytes.kind === 'file') return { copy: bytes, transfer: [] };
  const copy = new Uint8Array(bytes.bytes);
  return { copy: { kind: 'memory', bytes: copy }, transfer: [copy.buffer] };
}

/** Frees the memory of bytes that are no longer used (`freeMemory`). */
export function freeBytes(bytes: Bytes): void {
  if (bytes.kind === 'memory') freeMemory(bytes.bytes);
}

/** The bytes of all parts in memory of their own, which can be transferred. */
export function joined(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** The same memory as a Buffer. */
export function toBuffer({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

/**
 * Frees the memory of a chunk that is no longer used, if the chunk is all of its buffer. The garbage collector does not
 * count the external memory of socket chunks: it lets them pile up and then marks the whole heap for every 64 MB.
 */
export function freeChunk(chunk: Uint8Array): void {
  if (chunk.buffer.byteLength === chunk.byteLength) freeMemory(chunk);
}

/** Frees the memory of bytes that are not used any more, unless it is part of a slab. Their length is 0 then. */
export function freeMemory(bytes: Uint8Array): void {
  const { buffer } = bytes;
  if (buffer instanceof ArrayBuffer && !buffer.detached && isTight(bytes)) buffer.transfer(0);
}

/** Enough for the final dot of a message and a command or two after it. */
const MAX_SPARE = 1024;

/**
 * Whether bytes make up nearly all of their buffer. Keeping a view keeps the whole buffer in memory, and posting one to
 * a thread copies all of it; the buffer may be a slab that is shared with others.
 */
export function isTight(bytes: Uint8Array): boolean {
  return bytes.buffer.byteLength - bytes.byteLength <= MAX_SPARE;
}
