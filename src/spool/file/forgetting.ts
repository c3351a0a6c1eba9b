import type { DatabaseSync } from 'node:sqlite';
import type { Endpoints } from './endpoints.ts';
import { number, type SqlRow, text, textOrNull } from './rows.ts';

/** What ended before these times is forgotten. */
export interface Bounds {
  readonly deliveredBefore: number;
  readonly deadBefore: number;
}

/** What a step of forgetting did: deliveries, and the blob files that no row names any more. */
export interface Forgotten {
  readonly deliveries: number;
  readonly blobs: readonly string[];
  /** There is more to do. */
  readonly more: boolean;
}

/** Removing what has ended, in steps small enough to share a commit with new mail. */
export interface Forgetting {
  purge(bounds: Bounds, limit: number): Forgotten;
  /** Takes messages back whose acceptance was never answered. */
  unaccept(ids: readonly string[]): void;
}

/** Free pages above which some are given back to the disk: a quarter of the file, and 64 MiB. */
const SPARE_PAGES = 16_384;
/** Rows of events that one step forgets at most, unless a single batch has more. */
const MOST_EVENTS = 2000;
const VACUUM_STEP = 256;

/** A dropped delivery is not kept as long as a dead one: an operator did not want it. */
const ENDED = [
  [1, 'deliveredBefore'],
  [2, 'deadBefore'],
  [3, 'deliveredBefore'],
] as const;

/** Forgetting over the writer's connection. A message stays as long as any of its deliveries. */
export function createForgetting(db: DatabaseSync, endpoints: Endpoints): Forgetting {
  const ended =
    db.prepare(`SELECT d.key, d.message, coalesce(b.events, 0) AS events FROM deliveries d INDEXED BY deliveries_ended
    LEFT JOIN batches b ON b.message = d.key WHERE d.state = ? AND d.state > 0 AND d.ended_at < ? ORDER BY d.ended_at LIMIT ?`);
  const removeAttempts = db.prepare('DELETE FROM attempts WHERE delivery = ?');
  const removeDelivery = db.prepare('DELETE FROM deliveries WHERE key = ?');
  const bare = db.prepare(`SELECT m.key, m.blob FROM messages m WHERE m.key = ?
    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.key BETWEEN m.key AND m.key + m.deliveries - 1)`);
  const removeVerdicts = db.prepare('DELETE FROM verdicts WHERE message = ?');
  const removeMessage = db.prepare('DELETE FROM messages WHERE key = ?');
  const removeBatch = db.prepare('DELETE FROM batches WHERE message = ?');
  const removeEvents = db.prepare('DELETE FROM events WHERE batch = ?');
  const removeHooks = db.prepare(
    'DELETE FROM hooks WHERE gone = 1 AND NOT EXISTS (SELECT 1 FROM batches WHERE hook = hooks.key)',
  );
  const parts = db.prepare(`SELECT m.id, d.key, d.message, d.endpoint, d.state FROM messages m
    JOIN deliveries d ON d.key BETWEEN m.key AND m.key + m.deliveries - 1 WHERE m.id = ?`);

  const forget = (rows: readonly SqlRow[]): string[] => {
    for (const row of rows) {
      removeAttempts.run(number(row, 'key'));
      removeDelivery.run(number(row, 'key'));
    }
    return [...new Set(rows.map((row) => number(row, 'message')))].flatMap((message) => {
      const row = bare.get(message);
      if (!row) return [];
      removeVerdicts.run(message);
      removeMessage.run(message);
      if (removeBatch.run(message).changes !== 0) removeEvents.run(message);
      return textOrNull(row, 'blob') === null ? [] : [text(row, 'blob')];
    });
  };
  return {
    purge(bounds, limit) {
      const found: SqlRow[] = [];
      for (const [state, bound] of ENDED) found.push(...ended.all(state, bounds[bound], limit - found.length));
      const rows = fewEvents(found);
      const blobs = forget(rows);
      removeHooks.run();
      const spare = giveBack(db);
      return { deliveries: rows.length, blobs, more: found.length === limit || rows.length < found.length || spare };
    },
    unaccept(ids) {
      const rows = ids.flatMap((id) => parts.all(id));
      for (const row of rows) if (number(row, 'state') === 0) endpoints.shift(number(row, 'endpoint'), -1);
      forget(rows);
    },
  };
}

/** As many of the deliveries as one step takes: a batch may bring a thousand rows of events along. */
function fewEvents(rows: readonly SqlRow[]): readonly SqlRow[] {
  let events = 0;
  const end = rows.findIndex((row) => (events += number(row, 'events')) > MOST_EVENTS);
  return end === -1 ? rows : rows.slice(0, Math.max(1, end));
}

/** Shortens the file when much of it is free, a little each time. Answers whether it did. */
function giveBack(db: DatabaseSync): boolean {
  const free = Number(db.prepare('PRAGMA freelist_count').get()?.['freelist_count']);
  const pages = Number(db.prepare('PRAGMA page_count').get()?.['page_count']);
  const spare = free > SPARE_PAGES && free > pages / 4;
  if (spare) db.exec(`PRAGMA incremental_vacuum(${VACUUM_STEP})`);
  return spare;
}
