import type { DatabaseSync } from 'node:sqlite';
import { pragma, type SqlRow } from '../../base/sqlite.ts';
import { ENDED_STATES, STATES } from '../states.ts';
import type { ChangeParts } from './changes.ts';
import { detailKeys, number, stateCode, text, textOrNull } from './schema.ts';
import { sequenceOf } from './sequences.ts';

// Deletes rows of deliveries that ended long ago, and of messages that were never confirmed.

/** Deliveries that ended before these times are deleted. */
interface Bounds {
  readonly deliveredBefore: number;
  readonly deadBefore: number;
}

/** The file is shortened when more pages are free than this (64 MiB) and than a quarter of the file. */
const SPARE_PAGES = 16_384;
/** Event rows deleted in one step, unless a single batch has more. */
const MAX_EVENTS = 2000;
const VACUUM_STEP = 256;

const BOUNDS = { delivered: 'deliveredBefore', dead: 'deadBefore' } as const;
const ENDED = ENDED_STATES.map((state) => [stateCode(state), BOUNDS[STATES[state].kept]] as const);

/** Deletes ended deliveries, in steps that share a commit with new mail. A message goes with its last delivery. */
export function createPurging(db: DatabaseSync, { endpoints, sequences }: ChangeParts) {
  const ended =
    db.prepare(`SELECT d.key, d.message, coalesce(b.events, 0) AS events FROM deliveries d INDEXED BY deliveries_ended
    LEFT JOIN batches b ON b.message = d.key WHERE d.state = ? AND d.state > 0 AND d.ended_at < ?
    ORDER BY d.ended_at LIMIT ?`);
  const removeAttempts = db.prepare('DELETE FROM attempts WHERE delivery = ?');
  const removeDetails = db.prepare(`DELETE FROM details WHERE key ${detailKeys('?1')}`);
  const removeDelivery = db.prepare('DELETE FROM deliveries WHERE key = ?');
  const bare = db.prepare(`SELECT m.key, m.blob FROM messages m WHERE m.key = ?
    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.key BETWEEN m.key AND m.key + m.deliveries - 1)`);
  const removeVerdicts = db.prepare('DELETE FROM verdicts WHERE message = ?');
  const removeScan = db.prepare('DELETE FROM scans WHERE message = ?');
  const removeMessage = db.prepare('DELETE FROM messages WHERE key = ?');
  const removeBatch = db.prepare('DELETE FROM batches WHERE message = ?');
  const removeEvents = db.prepare('DELETE FROM events WHERE batch = ?');
  const removeHooks = db.prepare(
    'DELETE FROM hooks WHERE gone = 1 AND NOT EXISTS (SELECT 1 FROM batches WHERE hook = hooks.key)',
  );
  const parts = db.prepare(`SELECT m.id, d.key, d.message, d.endpoint, d.state, d.sequence FROM messages m
    JOIN deliveries d ON d.key BETWEEN m.key AND m.key + m.deliveries - 1 WHERE m.id = ?`);

  const forget = (rows: readonly SqlRow[]): string[] => {
    for (const row of rows) {
      removeAttempts.run(number(row, 'key'));
      removeDetails.run(number(row, 'key'));
      removeDelivery.run(number(row, 'key'));
    }
    return [...new Set(rows.map((row) => number(row, 'message')))].flatMap((message) => {
      const row = bare.get(message);
      if (!row) return [];
      removeVerdicts.run(message);
      removeScan.run(message);
      removeMessage.run(message);
      if (removeBatch.run(message).changes !== 0) removeEvents.run(message);
      return textOrNull(row, 'blob') === null ? [] : [text(row, 'blob')];
    });
  };
  return {
    /** Returns the deliveries deleted, the blob files without a row now, and whether there is more to do. */
    purge(bounds: Bounds, limit: number) {
      const found: SqlRow[] = [];
      for (const [state, bound] of ENDED) found.push(...ended.all(state, bounds[bound], limit - found.length));
      const rows = fewEvents(found);
      const blobs = forget(rows);
      removeHooks.run();
      const spare = giveBack(db);
      return { deliveries: rows.length, blobs, more: found.length === limit || rows.length < found.length || spare };
    },
    /** Takes back messages whose acceptance was never confirmed. */
    unaccept(ids: readonly string[], now: number) {
      const rows = ids.flatMap((id) => parts.all(id));
      for (const row of rows) if (number(row, 'state') === 0) endpoints.shift(number(row, 'endpoint'), -1);
      forget(rows);
      for (const row of rows) sequences.advance(sequenceOf(row), now);
    },
  };
}

/** Limits the deliveries to one step: a batch may include a thousand event rows. */
function fewEvents(rows: readonly SqlRow[]): readonly SqlRow[] {
  let events = 0;
  const end = rows.findIndex((row) => (events += number(row, 'events')) > MAX_EVENTS);
  return end === -1 ? rows : rows.slice(0, Math.max(1, end));
}

/** Shortens the file by a small step if much of it is free. Returns whether it did. */
function giveBack(db: DatabaseSync): boolean {
  const [free, pages] = [Number(pragma(db, 'freelist_count')), Number(pragma(db, 'page_count'))];
  const spare = free > SPARE_PAGES && free > pages / 4;
  if (spare) db.exec(`PRAGMA incremental_vacuum(${VACUUM_STEP})`);
  return spare;
}
