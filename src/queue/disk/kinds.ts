import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';

// Adds the kinds of deliveries to a queue file of a version without them.

/**
 * Sets the kind of each endpoint and delivery of an older version, by that version's rules: by its URL, and by whether
 * it is a batch, which has no recipient. A correct checksum is correct afterwards; a wrong one stays wrong.
 */
export function fillKinds(db: DatabaseSync, schema: 'main' | 'fresh'): void {
  db.function('crc32', { deterministic: true }, (text) => crc32(String(text)));
  db.exec(`
    UPDATE ${schema}.endpoints SET kind = CASE WHEN url GLOB 'smtp:*' THEN 2 ELSE 3 END
      WHERE url GLOB 'smtp:*' OR url IN ('return:', 'postmaster:') OR url GLOB 'report:*';
    CREATE TEMP TABLE kinds (endpoint INTEGER PRIMARY KEY, kind INTEGER NOT NULL, task INTEGER NOT NULL);
    INSERT INTO temp.kinds SELECT key, kind,
      CASE WHEN kind = 2 THEN 0 WHEN url = 'return:' THEN 1 WHEN url = 'postmaster:' THEN 2 ELSE 3 END
      FROM ${schema}.endpoints WHERE kind > 0;
    UPDATE ${schema}.deliveries SET kind = k.kind, task = k.task FROM temp.kinds k
      WHERE k.endpoint = deliveries.endpoint;
    UPDATE ${schema}.deliveries SET kind = 1
      WHERE kind = 0 AND (recipient = '' OR key IN (SELECT message FROM ${schema}.batches));
    UPDATE ${schema}.endpoints SET kind = 1 WHERE kind = 0 AND key IN (
      SELECT endpoint FROM ${schema}.deliveries GROUP BY endpoint HAVING min(kind) = 1);
    UPDATE ${schema}.deliveries SET sum = crc32(${SUMMED} || ' ' || kind || ' ' || task)
      WHERE kind > 0 AND sum = crc32(${SUMMED});
    DROP TABLE temp.kinds;`);
}

/** The input of a delivery's checksum before there were kinds, and still for inbound mail. */
const SUMMED = `id || ' ' || message || ' ' || route || ' ' || pattern || ' ' || recipient`;
