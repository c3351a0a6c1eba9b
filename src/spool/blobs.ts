import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { open, rename, rm, type FileHandle } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { isNoSpace, reasonOf, SpoolFault, SpoolFull } from './faults.ts';
import type { Body, BodyWriter } from './types.ts';

/** Large bodies as files of their own. */
export interface Blobs {
  writer(messageId: string): BodyWriter;
  /** From now on the file belongs to a message and no `abort` removes it. */
  claim(body: Body): void;
  /** Removes files that no message names. Never throws: what stays is swept at the next start. */
  remove(names: readonly string[]): Promise<void>;
}

/** A body up to this size lives in the row of its message. */
const INLINE_BYTES = 256 * 1024;
const FIRST_BUFFER = 16 * 1024;

/** Blob files under `blobs`; they arrive in `tmp`. */
export function createBlobs(folder: { readonly blobs: string; readonly tmp: string }): Blobs {
  /** Finished, and neither accepted nor aborted yet. */
  const loose = new Set<string>();
  const remove = async (names: readonly string[]) => {
    for (const name of names) await rm(join(folder.blobs, name), { force: true }).catch(() => undefined);
  };
  return Object.freeze({
    writer: (messageId: string) => createBodyWriter(messageId, folder, loose),
    claim: (body: Body) => { if (body.kind === 'blob') loose.delete(basename(body.path)); },
    remove,
  });
}

/** One body. A failure of the disk is remembered and thrown by `finish`, so that `write` never throws into a stream. */
function createBodyWriter(messageId: string, folder: { readonly blobs: string; readonly tmp: string }, loose: Set<string>): BodyWriter {
  const tmp = join(folder.tmp, messageId);
  const path = join(folder.blobs, messageId);
  let buffer = Buffer.allocUnsafeSlow(FIRST_BUFFER);
  let held = 0;
  let file: BlobFile | undefined;
  let failure: unknown;

  const hold = (chunk: Uint8Array) => {
    if (held + chunk.byteLength > buffer.byteLength) {
      const size = Math.min(INLINE_BYTES, Math.max(buffer.byteLength * 2, held + chunk.byteLength));
      const larger = Buffer.allocUnsafeSlow(size);
      buffer.copy(larger, 0, 0, held);
      buffer = larger;
    }
    buffer.set(chunk, held);
    held += chunk.byteLength;
  };

  const spill = async () => {
    file ??= await createBlobFile(tmp);
    await file.write(buffer.subarray(0, held));
    held = 0;
  };

  const take = async (chunk: Uint8Array) => {
    for (let at = 0; at < chunk.byteLength;) {
      if (held === INLINE_BYTES) await spill();
      const part = chunk.subarray(at, at + INLINE_BYTES - held);
      hold(part);
      at += part.byteLength;
    }
  };

  const discard = async () => {
    await file?.close().catch(() => undefined);
    if (file) await rm(tmp, { force: true }).catch(() => undefined);
    file = undefined;
  };

  return Object.freeze({
    async write(chunk: Uint8Array) {
      if (failure !== undefined) return;
      await take(chunk).catch((error: unknown) => { failure = error; });
    },
    async finish(): Promise<Body> {
      try {
        if (failure !== undefined) throw failure;
        if (!file) return { kind: 'inline', bytes: new Uint8Array(buffer.subarray(0, held)) };
        await spill();
        const { size, sha256 } = await file.seal();
        await rename(tmp, path);
        loose.add(messageId);
        file = undefined;
        await syncFolder(folder.blobs);
        return { kind: 'blob', path, size, sha256 };
      } catch (error) {
        failure = error;
        await discard();
        if (loose.delete(messageId)) await rm(path, { force: true }).catch(() => undefined);
        throw isNoSpace(error) ? new SpoolFull('no space for a large message', { cause: error }) : new SpoolFault(reasonOf(error), { cause: error });
      }
    },
    async abort() {
      failure ??= new SpoolFault('it was aborted');
      await discard();
      if (loose.delete(messageId)) await rm(path, { force: true }).catch(() => undefined);
    },
  });
}

interface BlobFile {
  write(bytes: Uint8Array): Promise<void>;
  /** Syncs and closes it. */
  seal(): Promise<{ readonly size: number; readonly sha256: string }>;
  close(): Promise<void>;
}

async function createBlobFile(path: string): Promise<BlobFile> {
  const handle: FileHandle = await open(path, 'wx', 0o640);
  const hash = createHash('sha256');
  let size = 0;
  return {
    async write(bytes) {
      hash.update(bytes);
      for (let at = 0; at < bytes.byteLength;) at += (await handle.write(bytes, at)).bytesWritten;
      size += bytes.byteLength;
    },
    async seal() {
      await handle.datasync();
      await handle.close();
      return { size, sha256: hash.digest('hex') };
    },
    close: () => handle.close(),
  };
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
