import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { ZipFile } from 'yazl';

/** The one file in an archive. */
export interface Entry {
  readonly name: string;
  readonly time: Date;
}

/**
 * Writes a zip archive with one file, whose text comes in pieces and as fast as the disk takes it, and syncs it. Throws what
 * the disk or the source of the text throws; then the file is not whole.
 * The length is not known before the end, so it stands behind the data (bit 3 of the flags, APPNOTE 4.4.4); beyond 4 GiB yazl
 * writes ZIP64. Compression happens in the thread pool of libuv.
 */
export async function writeArchive(path: string, entry: Entry, text: AsyncIterable<string>): Promise<void> {
  const zip = new ZipFile();
  const source = Readable.from(text);
  const failing = new AbortController();
  // yazl joins its streams by pipe(), which hands on no errors.
  source.once('error', (error) => failing.abort(error));
  zip.once('error', (error) => failing.abort(error));
  zip.addReadStream(source, entry.name, { mtime: entry.time, mode: 0o100600 });
  zip.end();
  try {
    // `flush` syncs before it closes, and closing is awaited: what the sync throws is thrown here.
    await pipeline(zip.outputStream, createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true }), {
      signal: failing.signal,
    });
  } catch (error) {
    throw failing.signal.aborted ? failing.signal.reason : error;
  } finally {
    source.destroy();
  }
}
