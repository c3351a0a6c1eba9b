import { createHash } from 'node:crypto';
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

const STEP = 1024 * 1024;

/** What is wrong with a blob file, as the rest of "message lost: …"; null when it is whole. Reads all of it. */
export function blobFault(path: string, size: number, sha256: string): string | null {
  let file: number | undefined;
  try {
    file = openSync(path, 'r');
    if (fstatSync(file).size !== size) return 'its blob file has the wrong length';
    return digestOf(file) === sha256 ? null : 'its blob file was damaged on the disk';
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return 'its blob file is missing';
    // Running out of file handles or memory says nothing about the file.
    if (isEio(error)) return 'its blob file cannot be read';
    throw error;
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function isEio(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'EIO';
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
