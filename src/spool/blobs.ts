import { rm } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { type BlobFolders, createBodyWriter } from './body-writer.ts';
import type { Body, BodyWriter } from './types.ts';

/** Large bodies as files of their own. */
export interface Blobs {
  writer(messageId: string): BodyWriter;
  /** From now on the file belongs to a message and no `abort` removes it. */
  claim(body: Body): void;
  /** Removes files that no message names. Never throws: what stays is swept at the next start. */
  remove(names: readonly string[]): Promise<void>;
}

/** Blob files under `blobs`; they arrive in `tmp`. */
export function createBlobs(folders: BlobFolders): Blobs {
  const loose = new Set<string>();
  return Object.freeze({
    writer: (messageId: string) => createBodyWriter(messageId, folders, loose),
    claim: (body: Body) => {
      if (body.kind === 'blob') loose.delete(basename(body.path));
    },
    async remove(names: readonly string[]) {
      for (const name of names) {
        loose.delete(name);
        await rm(join(folders.blobs, name), { force: true }).catch(() => undefined);
      }
    },
  });
}
