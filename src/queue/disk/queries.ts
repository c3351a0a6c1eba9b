import { existsSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { frozen } from '../../base/frozen.ts';
import type { SqlRow } from '../../base/sqlite.ts';
import { tableOf } from '../../base/tables.ts';
import { START_BYTES } from '../../mail/mime/field-search.ts';
import { summaryFields } from '../../mail/summary.ts';
import type { Body, EndpointName, LastTime, Message, QueuedDelivery, SendReport } from '../delivery.ts';
import type { EventStage, Hook } from '../events.ts';
import { DELIVERY_STATES, ENDED_STATES } from '../states.ts';
import { PENDING, TALLY, toPending, toTally } from './batches.ts';
import { blobFault, startOfBlob } from './bodies.ts';
import { createCopyQueries } from './copied.ts';
import { createEndpointQueries } from './endpoint-queries.ts';
import { createScanQueries, toScan } from './scans.ts';
import {
  BEHIND,
  DELIVERY_ROW,
  detailKey,
  isWholeDelivery,
  number,
  numberOrNull,
  stateCode,
  text,
  textOrNull,
  toAttempt,
  toDelivery,
  toMessage,
} from './schema.ts';
import { createSelectionQueries } from './selections.ts';
import { sumOf } from './sums.ts';

/** The queries of the reader thread. Each is short: long scans run in windows of keys `from` to `to`. */
export type Queries = ReturnType<typeof createQueries>;

/** Creates the queries on one connection. `blobs` is the folder of large bodies. */
export function createQueries(db: DatabaseSync, blobs: string) {
  return frozen({
    ...createScheduling(db),
    ...createFigures(db),
    ...createLookups(db),
    ...createMessageQueries(db, blobs),
    ...createScanQueries(db),
    ...createCopyQueries(db),
    ...createSelectionQueries(db),
    ...createHookQueries(db),
    ...createReportQueries(db),
    ...createEndpointQueries(db),
  });
}

function createScheduling(db: DatabaseSync) {
  const dueRows =
    db.prepare(`${DELIVERY_ROW} WHERE d.endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?)
    AND d.state = 0 AND d.due_at <= ? ORDER BY d.due_at, d.key LIMIT ?`);
  // Few are that old, of all endpoints: the index of start times finds them without reading the others.
  const overdue = db.prepare(`${DELIVERY_ROW} WHERE d.key IN (
    SELECT key FROM deliveries INDEXED BY deliveries_since WHERE state = 0 AND budget_from <= ? AND due_at <= ?
    AND endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?) LIMIT ?)`);
  const first = db.prepare(
    `SELECT key, (SELECT min(due_at) FROM deliveries WHERE endpoint = e.key AND state = 0) AS due FROM endpoints e`,
  );
  return {
    /** Returns the due deliveries, and the keys of those that were damaged on disk. */
    due(account: string, url: string, now: number, limit: number, except: readonly string[]) {
      const left = new Set(except);
      const due: { found: QueuedDelivery[]; damaged: number[] } = { found: [], damaged: [] };
      // Those in `except` are in flight and so few; skipping them in the index is cheaper than listing them in SQL.
      for (const row of dueRows.iterate(account, url, now, limit + left.size)) {
        if (due.found.length >= limit) break;
        if (!isWholeDelivery(row)) due.damaged.push(number(row, 'key'));
        else if (!left.has(text(row, 'id'))) due.found.push(toDelivery(row));
      }
      return due;
    },
    overdue: ({ account, url }: EndpointName, before: number, now: number, limit: number) =>
      overdue.all(before, now, account, url, limit).filter(isWholeDelivery).map(toDelivery),
    /** Returns the key of each endpoint with waiting deliveries, and the earliest due time. */
    firstDue() {
      return first.all().flatMap((row): [number, number][] => {
        const due = numberOrNull(row, 'due');
        return due === null ? [] : [[number(row, 'key'), due]];
      });
    },
  };
}

function createFigures(db: DatabaseSync) {
  const oldest = db.prepare(
    'SELECT min(budget_from) AS since FROM deliveries INDEXED BY deliveries_since WHERE state = 0',
  );
  const kept = db.prepare('SELECT memory FROM time WHERE key = 1');
  const newest = db.prepare('SELECT created_at FROM deliveries ORDER BY key DESC LIMIT 1');
  const ended = db.prepare(
    'SELECT state, count(*) AS n FROM deliveries INDEXED BY deliveries_ended WHERE state > 0 GROUP BY state',
  );
  const behind = db.prepare(`SELECT sum((SELECT count(*) FROM deliveries INDEXED BY deliveries_due
    WHERE endpoint = e.key AND state = 0 AND due_at = ${BEHIND})) AS n FROM endpoints e`);
  return {
    /** Counts deliveries behind others, in one pass over an index, which took `ms` milliseconds. */
    behind() {
      const began = performance.now();
      return { counts: numberOrNull(behind.get() ?? {}, 'n') ?? 0, ms: performance.now() - began };
    },
    /** Returns when the oldest waiting delivery began to wait, milliseconds since 1970; null if none waits. */
    oldest: () => numberOrNull(oldest.get() ?? {}, 'since'),
    lastTime(): LastTime {
      const [memory, row] = [kept.get(), newest.get()];
      return { memory: memory ? text(memory, 'memory') : null, newest: row ? number(row, 'created_at') : null };
    },
    /** Counts ended deliveries by state in one pass over an index, which took `ms` milliseconds. */
    ended() {
      const began = performance.now();
      const counts = tableOf(ENDED_STATES, () => 0);
      for (const row of ended.all()) {
        const state = DELIVERY_STATES[number(row, 'state')];
        if (state && state !== 'waiting') counts[state] = number(row, 'n');
      }
      return { counts, ms: performance.now() - began };
    },
  };
}

function createLookups(db: DatabaseSync) {
  const one = db.prepare(`${DELIVERY_ROW} WHERE d.id = ?`);
  const attempts = db.prepare(
    `SELECT a.*, t.detail FROM deliveries d JOIN attempts a ON a.delivery = d.key
    LEFT JOIN details t ON t.key = ${detailKey('a.delivery', 'a.n')} AND t.n = a.n WHERE d.id = ? ORDER BY a.n`,
  );
  return {
    delivery(id: string) {
      const row = one.get(id);
      return row && toDelivery(row);
    },
    attempts: (deliveryId: string) => attempts.all(deliveryId).map(toAttempt),
  };
}

function createHookQueries(db: DatabaseSync) {
  const all = db.prepare('SELECT key, id, account, url FROM hooks WHERE gone = 0');
  const pending = db.prepare(PENDING);
  const batch = db.prepare('SELECT 1 FROM batches INDEXED BY batches_left WHERE hook = ? AND open > 0 LIMIT 1');
  const tallies = db.prepare(`${TALLY} WHERE gone = 0 AND (batches > 0 OR error IS NOT NULL)`);
  const inBatch = db.prepare(
    'SELECT e.id FROM deliveries d JOIN events e INDEXED BY events_frozen ON e.batch = d.key WHERE d.id = ?',
  );
  const stage = db.prepare(`SELECT e.batch IS NULL OR d.state = ${stateCode('waiting')} AS is_left
    FROM hooks h JOIN events e ON e.hook = h.key LEFT JOIN deliveries d ON d.key = e.batch
    WHERE h.id = ? AND e.id = ?`);
  const pendingOf = (row: SqlRow, limit: number) => toPending(pending.get(number(row, 'key'), limit) ?? {});
  return {
    pending: (limit: number) =>
      all
        .all()
        .map((row) => ({ webhook: text(row, 'id'), pending: pendingOf(row, limit) }))
        .filter(({ pending: { events } }) => events > 0),
    hooks: (): Hook[] =>
      all
        .all()
        .filter((row) => pendingOf(row, 1).events > 0 || batch.get(number(row, 'key')))
        .map((row) => ({ id: text(row, 'id'), account: text(row, 'account'), url: text(row, 'url') })),
    tallies: () => tallies.all().map(toTally),
    inBatch: (delivery: string) => inBatch.all(delivery).map((row) => text(row, 'id')),
    stage(webhook: string, event: string): EventStage {
      const row = stage.get(webhook, event);
      return !row ? 'unknown' : row['is_left'] === 1 ? 'left' : 'ended';
    },
  };
}

/** A message from the disk: intact, or with the reason why its body is lost. */
type Found =
  | { readonly kind: 'whole'; readonly message: Message; readonly body: Body }
  | { readonly kind: 'damaged'; readonly reason: string };

const DAMAGED: Found = { kind: 'damaged', reason: 'its row was damaged on disk' };

/** Creates the queries about messages. `blobs` is the folder of large bodies. */
function createMessageQueries(db: DatabaseSync, blobs: string) {
  const one = db.prepare(
    `SELECT m.*, v.verdicts, v.sum AS verdicts_sum, s.scan, s.sum AS scan_sum FROM messages m
    LEFT JOIN verdicts v ON v.message = m.key LEFT JOIN scans s ON s.message = m.key WHERE m.id = ?`,
  );
  const envelopes = db.prepare(
    `SELECT id, received_at, deliveries, envelope, trace, size, blob, sha256, crc, sum FROM messages
    WHERE id IN (SELECT value FROM json_each(?))`,
  );
  const starts = db.prepare(
    `SELECT id, blob, substr(bytes, 1, ${START_BYTES}) AS start FROM messages
    WHERE id IN (SELECT value FROM json_each(?))`,
  );
  const sound = new Set<string>(); // blobs that were read and found intact
  return {
    message(id: string) {
      const row = one.get(id);
      return row && (isWhole(row) ? toFound(row, blobs, sound) : DAMAGED);
    },
    envelopes: (ids: readonly string[]): [id: string, Pick<Message, 'envelope'> & { size: number }][] =>
      envelopes
        .all(JSON.stringify(ids))
        .filter(isWhole)
        .map((row) => [text(row, 'id'), { envelope: toMessage(row).envelope, size: number(row, 'size') }]),
    summaryFields: (ids: readonly string[]): [id: string, fields: string][] =>
      starts.all(JSON.stringify(ids)).flatMap((row) => {
        const name = textOrNull(row, 'blob');
        const start = name === null ? row['start'] : startOfBlob(`${blobs}/${name}`, START_BYTES);
        return start instanceof Uint8Array ? [[text(row, 'id'), summaryFields(start)]] : [];
      }),
    blobNames: (): { readonly name: string; readonly messageId: string; readonly size: number }[] =>
      db
        .prepare('SELECT id, blob, size FROM messages WHERE blob IS NOT NULL')
        .all()
        .map((row) => ({ name: text(row, 'blob'), messageId: text(row, 'id'), size: number(row, 'size') })),
  };
}

/** Whether a row is intact. Rows of older versions have no checksum; they must at least parse. */
function isWhole(row: SqlRow): boolean {
  try {
    const sum = numberOrNull(row, 'sum');
    if (sum === null) toMessage(row);
    return (
      sum === null ||
      sum ===
        sumOf({
          id: text(row, 'id'),
          receivedAt: number(row, 'received_at'),
          deliveries: number(row, 'deliveries'),
          envelope: text(row, 'envelope'),
          trace: text(row, 'trace'),
          size: number(row, 'size'),
          crc: numberOrNull(row, 'crc'),
          blob: textOrNull(row, 'blob'),
          sha256: textOrNull(row, 'sha256'),
        })
    );
  } catch (error) {
    if (error instanceof TypeError || error instanceof SyntaxError || error instanceof RangeError) return false;
    throw error;
  }
}

/** Checks the body against its checksum, since SQLite does not notice a changed byte in it. */
function toFound(row: SqlRow, blobs: string, sound: Set<string>): Found {
  const size = number(row, 'size');
  const name = textOrNull(row, 'blob');
  const scan = toScan(row);
  const message = { ...toMessage(row), ...(scan && { scan }) };
  if (name === null) {
    const bytes = row['bytes'];
    if (!(bytes instanceof Uint8Array) || bytes.byteLength !== size || crc32(bytes) !== row['crc']) {
      return { kind: 'damaged', reason: 'its bytes were damaged on disk' };
    }
    return { kind: 'whole', message, body: { kind: 'memory', bytes } };
  }
  const path = `${blobs}/${name}`;
  const sha256 = text(row, 'sha256');
  const reason = sound.has(name) && existsSync(path) ? null : blobFault(path, size, sha256);
  if (reason !== null) return { kind: 'damaged', reason };
  if (sound.size > 10_000) sound.clear();
  sound.add(name);
  return { kind: 'whole', message, body: { kind: 'file', path, size, sha256 } };
}

/** Reports inside the common transaction. */
export type Reporting = ReturnType<typeof createReporting>;

/** Creates the reporting on the writer's connection. */
export function createReporting(db: DatabaseSync) {
  const insert = db.prepare('INSERT INTO reports (id, body) VALUES (?, ?) ON CONFLICT DO NOTHING');
  const remove = db.prepare('DELETE FROM reports WHERE id = ?');
  return {
    /** Does nothing if the id exists: its settlement was repeated because the first answer was lost. */
    keepReport: ({ id, body }: SendReport) => {
      insert.run(id, body);
    },
    reported(ids: readonly string[]) {
      for (const id of ids) remove.run(id);
    },
  };
}

/** Creates the queries about reports on the reader's connection. */
function createReportQueries(db: DatabaseSync) {
  const oldest = db.prepare('SELECT id, body FROM reports ORDER BY key LIMIT ?');
  return {
    reports: (limit: number): SendReport[] =>
      oldest.all(limit).map((row) => ({ id: text(row, 'id'), body: text(row, 'body') })),
  };
}
