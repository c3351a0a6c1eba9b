import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';
import { open, rename, rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { freeChunk, isTight } from '../../base/bytes.ts';
import { hasCode } from '../../base/errors.ts';
import { frozen } from '../../base/frozen.ts';
import type { Body, BodyWriter } from '../delivery.ts';
import { isNoSpace, reasonOf, SpoolFault, SpoolFull } from './faults.ts';
import { syncFolder } from './folder.ts';

/** Large bodies as separate files. */
export type Blobs = ReturnType<typeof createBlobs>;

/** Creates the blob files in `blobs`; they are written in `tmp` first. Every write is reported to `wrote`. */
export function createBlobs(folders: BlobFolders, wrote: (bytes: number) => void = () => {}) {
  const loose = new Set<string>();
  return frozen({
    writer: (messageId: string) => createBodyWriter(messageId, folders, loose, wrote),
    /** The file now belongs to a message: `abort` no longer removes it. */
    claim: (body: Body) => {
      if (body.kind === 'file') loose.delete(basename(body.path));
    },
    /** Removes files that no message refers to. Never throws: leftovers are removed at the next start. */
    async remove(names: readonly string[]) {
      for (const name of names) {
        loose.delete(name);
        await rm(join(folders.blobs, name), { force: true }).catch(() => undefined);
      }
    },
  });
}

/** The folders of finished bodies and of those being written. */
interface BlobFolders {
  readonly blobs: string;
  readonly tmp: string;
}

/** A body up to this size is stored in the row of its message. */
const INLINE_BYTES = 256 * 1024;

/**
 * Creates the writer of one body. A disk error is kept and thrown by `finish` (SpoolFull, SpoolFault), so that `write`
 * never throws into a stream. `loose` holds the names of finished blobs that belong to no message yet.
 */
function createBodyWriter(
  messageId: string,
  folders: BlobFolders,
  loose: Set<string>,
  wrote: (bytes: number) => void,
): BodyWriter {
  // Computed lazily, since most bodies need no file.
  const tmp = () => join(folders.tmp, messageId);
  const path = () => join(folders.blobs, messageId);
  const held = createBuffer();
  let file: BlobFile | undefined;
  let failure: unknown;

  const spill = async () => {
    file ??= await createBlobFile(tmp());
    const bytes = held.take();
    wrote(bytes.byteLength);
    await file.write(bytes);
  };
  const take = async (chunk: Uint8Array) => {
    for (let at = held.add(chunk); at < chunk.byteLength; at += held.add(chunk.subarray(at))) await spill();
  };
  const remove = async () => {
    await file?.close().catch(() => undefined);
    if (file) await rm(tmp(), { force: true }).catch(() => undefined);
    if (loose.delete(messageId)) await rm(path(), { force: true }).catch(() => undefined);
    file = undefined;
  };
  const seal = async (blob: BlobFile): Promise<Body> => {
    await spill();
    held.free();
    const { size, sha256 } = await blob.seal();
    await rename(tmp(), path());
    loose.add(messageId);
    file = undefined;
    await syncFolder(folders.blobs);
    return { kind: 'file', path: path(), size, sha256 };
  };

  return frozen({
    write(chunk): Promise<void> | undefined {
      if (failure !== undefined) return undefined;
      if (held.hasRoom(chunk)) {
        held.add(chunk);
        if (!held.isIn(chunk)) freeChunk(chunk);
        return undefined;
      }
      return take(chunk)
        .then(() => freeChunk(chunk))
        .catch((error: unknown) => {
          failure = error;
        });
    },
    async finish(): Promise<Body> {
      try {
        if (failure !== undefined) throw failure;
        return file ? await seal(file) : { kind: 'memory', bytes: held.giveAway() };
      } catch (error) {
        failure = error;
        await remove();
        throw toFault(error);
      }
    },
    async abort() {
      failure ??= new SpoolFault('the write was aborted');
      await remove();
    },
  });
}

function toFault(cause: unknown): Error {
  return isNoSpace(cause)
    ? new SpoolFull('no space for a large message', { cause })
    : new SpoolFault(reasonOf(cause), { cause });
}

const EMPTY: Buffer = Buffer.alloc(0);

/**
 * Creates a buffer that grows up to the limit. Most messages are one chunk, and a socket allocates each chunk
 * separately: such a chunk is kept without copying. A slice of a larger slab is copied, as is everything after the
 * first `take`.
 */
function createBuffer() {
  let buffer: Buffer = EMPTY;
  let length = 0;
  let ours = true;
  let taken = false;
  const copyOver = (size: number) => {
    const larger = Buffer.allocUnsafeSlow(size);
    buffer.copy(larger, 0, 0, length);
    if (buffer !== EMPTY) freeChunk(buffer);
    buffer = larger;
    ours = true;
  };
  return {
    /** Whether the buffer uses the memory of the chunk itself. */
    isIn: (chunk: Uint8Array): boolean => buffer.buffer === chunk.buffer,
    hasRoom: (chunk: Uint8Array): boolean => length + chunk.byteLength <= INLINE_BYTES,
    /** Copies as much of the chunk as fits. Returns how many bytes. */
    add(chunk: Uint8Array): number {
      const part = chunk.subarray(0, INLINE_BYTES - length);
      if (buffer === EMPTY && !taken && isTight(part)) {
        buffer = Buffer.from(part.buffer, part.byteOffset, part.byteLength);
        ours = false;
        length = part.byteLength;
        return length;
      }
      if (length + part.byteLength > buffer.byteLength)
        copyOver(Math.min(INLINE_BYTES, Math.max(buffer.byteLength * 2, length + part.byteLength)));
      buffer.set(part, length);
      length += part.byteLength;
      return part.byteLength;
    },
    /** Returns all bytes so far and empties the buffer; they are valid until the next `add`. */
    take(): Uint8Array {
      const bytes = buffer.subarray(0, length);
      length = 0;
      taken = true;
      if (!ours) buffer = EMPTY;
      return bytes;
    },
    /** Discards everything; nothing may be added afterwards. */
    free(): void {
      if (buffer !== EMPTY) freeChunk(buffer);
      buffer = EMPTY;
    },
    /** Returns all bytes in a buffer of exactly their size; nothing may be added afterwards. */
    giveAway(): Uint8Array {
      if (buffer.byteLength === length) return buffer;
      const bytes = new Uint8Array(buffer.subarray(0, length));
      freeChunk(buffer);
      return bytes;
    },
  };
}

type BlobFile = Awaited<ReturnType<typeof createBlobFile>>;

async function createBlobFile(path: string) {
  const handle = await open(path, 'wx', 0o600);
  const hash = createHash('sha256');
  let size = 0;
  return {
    async write(bytes: Uint8Array) {
      hash.update(bytes);
      for (let at = 0; at < bytes.byteLength; ) at += (await handle.write(bytes, at)).bytesWritten;
      size += bytes.byteLength;
    },
    /** Syncs and closes the file. */
    async seal(): Promise<{ readonly size: number; readonly sha256: string }> {
      await handle.datasync();
      await handle.close();
      return { size, sha256: hash.digest('hex') };
    },
    close: () => handle.close(),
  };
}

const STEP = 1024 * 1024;

/** Returns the fault of a blob file, to follow "message lost: "; null if it is intact. Reads all of it. */
export function blobFault(path: string, size: number, sha256: string): string | null {
  let file: number | undefined;
  try {
    file = openSync(path, 'r');
    if (fstatSync(file).size !== size) return 'its blob file has the wrong length';
    return digestOf(file) === sha256 ? null : 'its blob file was damaged on disk';
  } catch (error) {
    if (hasCode(error, 'ENOENT')) return 'its blob file is missing';
    // Running out of file handles or memory says nothing about the file.
    if (hasCode(error, 'EIO')) return 'its blob file cannot be read';
    throw error;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function digestOf(file: number): string {
  const hash = createHash('sha256');
  const buffer = Buffer.allocUnsafe(STEP);
  for (;;) {
    const read = readSync(file, buffer, 0, STEP, null);
    if (read === 0) return hash.digest('hex');
    hash.update(buffer.subarray(0, read));
  }
}

/** The first bytes of a blob; undefined if it cannot be read. */
export function startOfBlob(path: string, bytes: number): Uint8Array | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      const start = Buffer.alloc(bytes);
      return start.subarray(0, readSync(file, start));
    } finally {
      closeSync(file);
    }
  } catch {
    return undefined;
  }
}
