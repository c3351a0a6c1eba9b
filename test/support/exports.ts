import { crc32, inflateRawSync } from 'node:zlib';
import { tokenHash } from '../../src/base/ids.ts';
import { type ExportRow, exportId } from '../../src/store/rows/exports.ts';
import type { Store } from '../../src/store/store.ts';

/** The job that the examples show, and its token. */
export const EXPORT = '2026-01-05 09:20:28.13842';
export const TOKEN = 'ExampleExportToken0001';

/** An export job as a test wants it, waiting unless it says otherwise. */
export function exportRow(account: string, name: string, more: Partial<ExportRow> = {}): ExportRow {
  return {
    id: exportId(account, name),
    account,
    type: 'reject',
    state: 'waiting',
    createdAt: new Date(`${name.slice(0, 19).replace(' ', 'T')}Z`),
    finishedAt: null,
    notifyEmail: null,
    filter: null,
    error: null,
    holder: null,
    until: null,
    attempts: 0,
    host: null,
    file: null,
    resultUrl: null,
    tokenHash: null,
    unnotified: null,
    ...more,
  };
}

export async function seedExports(store: Store, account: string): Promise<void> {
  await store.exportJobs.insert(
    exportRow(account, EXPORT, {
      type: 'activity',
      state: 'complete',
      finishedAt: new Date('2026-01-05T09:20:31Z'),
      attempts: 1,
      host: 'mx.postern.test',
      file: 'ExampleExportFile00001.zip',
      resultUrl: `https://mail.example.com/exports/${TOKEN}`,
      tokenHash: tokenHash(TOKEN),
    }),
  );
}

interface ArchiveEntry {
  readonly name: string;
  readonly text: string;
  readonly time: Date;
}

/**
 * Reads a zip archive by its central directory (APPNOTE 4.3), as strictly as a program that was given a bad one should.
 */
export function readArchive(bytes: Buffer): ArchiveEntry[] {
  const end = bytes.lastIndexOf(Buffer.from('PK\x05\x06', 'latin1'));
  if (end < 0 || end + 22 !== bytes.length) throw new Error('no end of the central directory');
  const entries: ArchiveEntry[] = [];
  let at = bytes.readUInt32LE(end + 16);
  for (let n = bytes.readUInt16LE(end + 10); n > 0; n--) {
    if (bytes.readUInt32LE(at) !== 0x02014b50) throw new Error('no entry in the central directory');
    const [crc, packed, size] = [bytes.readUInt32LE(at + 16), bytes.readUInt32LE(at + 20), bytes.readUInt32LE(at + 24)];
    const [nameLength, extraLength, commentLength, local] = [
      bytes.readUInt16LE(at + 28),
      bytes.readUInt16LE(at + 30),
      bytes.readUInt16LE(at + 32),
      bytes.readUInt32LE(at + 42),
    ];
    const name = bytes.toString('utf8', at + 46, at + 46 + nameLength);
    if (bytes.readUInt32LE(local) !== 0x04034b50) throw new Error('no local header');
    const from = local + 30 + bytes.readUInt16LE(local + 26) + bytes.readUInt16LE(local + 28);
    const content = inflateRawSync(bytes.subarray(from, from + packed));
    if (content.length !== size || crc32(content) !== crc) throw new Error('length or checksum is wrong');
    // The extra field begins with the time stamp of Info-ZIP: id, length, flags, seconds.
    entries.push({
      name,
      text: content.toString('utf8'),
      time: new Date(bytes.readUInt32LE(at + 46 + nameLength + 5) * 1000),
    });
    at += 46 + nameLength + extraLength + commentLength;
  }
  if (at !== end) throw new Error('something between the directory and its end');
  return entries;
}

/** Reads CSV (RFC 4180) cell by cell, so that a test sees what a program would. */
export function readCsv(text: string): string[][] {
  const lines: string[][] = [];
  let line: string[] = [];
  for (let at = 0; at < text.length; ) {
    const quoted = /^"((?:[^"]|"")*)"/.exec(text.slice(at, at + 10_000));
    const cell = quoted ? quoted[0] : (/^[^,\r\n"]*/.exec(text.slice(at, at + 10_000))?.[0] ?? '');
    line.push(quoted ? (quoted[1]?.replaceAll('""', '"') ?? '') : cell);
    at += cell.length;
    if (text[at] === ',') {
      at++;
      continue;
    }
    if (!text.startsWith('\r\n', at))
      throw new Error(`no end of a line at ${at}: ${JSON.stringify(text.slice(at, at + 20))}`);
    lines.push(line);
    line = [];
    at += 2;
  }
  return lines;
}
