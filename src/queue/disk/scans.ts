import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { SqlRow } from '../../base/sqlite.ts';
import type { Scan } from '../../mail/scan.ts';
import { text } from './schema.ts';

// The results of scanners, in the queue file.

const FIND = 'SELECT s.scan, s.sum AS scan_sum FROM messages m JOIN scans s ON s.message = m.key WHERE m.id = ?';

/** Part of the changes of the writer. */
export function createScanKeeping(db: DatabaseSync) {
  const find = db.prepare(FIND);
  const keep = db.prepare(`INSERT INTO scans (message, scan, sum) SELECT key, ?1, ?2 FROM messages WHERE id = ?3
    ON CONFLICT DO UPDATE SET scan = excluded.scan, sum = excluded.sum`);
  return {
    /** Keeps the scan of a message, as JSON, unless it has one. Returns the one that it has now. */
    keepScan(messageId: string, scan: string) {
      const kept = find.get(messageId);
      if (kept && toScan(kept)) return text(kept, 'scan');
      keep.run(scan, crc32(scan), messageId);
      return scan;
    },
  };
}

/** Part of the queries of the reader. */
export function createScanQueries(db: DatabaseSync) {
  const find = db.prepare(FIND);
  return {
    scanOf(messageId: string) {
      const row = find.get(messageId);
      return row && toScan(row);
    },
  };
}

/** Reads the columns `scan` and `scan_sum`. Undefined also for a scan that was damaged on disk: it is taken again. */
export function toScan({ scan, scan_sum: sum }: SqlRow): Scan | undefined {
  return typeof scan === 'string' && sum === crc32(scan) ? JSON.parse(scan) : undefined;
}
