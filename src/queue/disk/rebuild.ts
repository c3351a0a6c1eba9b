import { rmSync } from 'node:fs';
import type { DatabaseSync } from 'node:sqlite';
import { kindOf, LOST } from './faults.ts';
import { type Folder, keepAside, stageReplacement } from './folder.ts';
import { fillKinds } from './kinds.ts';
import { connect, lacksKinds, makeTables, OPEN_CODES, stateCode, TABLE_KEYS, text } from './schema.ts';

/** The counts of messages and deliveries salvaged into a new queue file. */
export interface Rebuilt {
  readonly messages: number;
  readonly deliveries: number;
  /** Waiting deliveries whose message could not be read; they are dead now. */
  readonly lostMessages: number;
  /** Messages without any delivery left; they are only in the damaged file. */
  readonly lostDeliveries: number;
  /** The path of the damaged file, null if none was kept. */
  readonly aside: string | null;
}

const RANGE = 20_000;

/**
 * Writes everything readable in `old` (null: nothing) into a new file and appoints it. After a failed sync the kernel
 * no longer reports the true state of the old file, so that is never written again.
 */
export function rebuild(old: DatabaseSync | null, folder: Folder, now: number, aside: boolean): Rebuilt {
  for (const end of ['', '-journal', '-wal', '-shm']) rmSync(folder.part + end, { force: true });
  const made = connect(folder.part);
  try {
    makeTables(made);
  } finally {
    made.close();
  }
  const counts = old
    ? copyAll(old, folder.part, now)
    : { messages: 0, deliveries: 0, lostMessages: 0, lostDeliveries: 0 };
  const kept = aside ? keepAside(folder, now) : null;
  stageReplacement(folder);
  return { ...counts, aside: kept };
}

function copyAll(old: DatabaseSync, part: string, now: number) {
  old.prepare('ATTACH ? AS fresh').run(part);
  try {
    // The new file is synced as a whole at the end; until then nothing depends on it.
    old.exec('PRAGMA fresh.journal_mode = MEMORY; PRAGMA fresh.synchronous = OFF');
    for (const [table, key] of TABLE_KEYS) copyTable(old, table, key);
    if (lacksKinds(old)) fillKinds(old, 'fresh');
    return mend(old, now);
  } finally {
    old.exec('DETACH fresh');
  }
}

/** Copies a table. A file of an older version has fewer columns, and may lack the table. */
function copyTable(db: DatabaseSync, table: string, key: string): void {
  const columns = db
    .prepare('SELECT name FROM pragma_table_info(?, ?)')
    .all(table, 'main')
    .map((row) => text(row, 'name'));
  if (columns.length === 0) return;
  const names = columns.join(', ');
  const copy = db.prepare(
    `INSERT OR IGNORE INTO fresh.${table} (${names})
    SELECT ${names} FROM main.${table} NOT INDEXED WHERE ${key} BETWEEN ? AND ?`,
  );
  const last = lastKey(db, table, key);
  const range = (from: number, to: number): void => {
    try {
      copy.run(from, to);
    } catch (error) {
      // Invalid data that SQLite takes for a row violates a constraint (misuse).
      if (kindOf(error) !== 'damaged' && kindOf(error) !== 'misuse') throw error;
      if (from === to) return;
      const middle = Math.floor((from + to) / 2);
      range(from, middle);
      range(middle + 1, to);
    }
  };
  for (let from = 0; from <= last; from += RANGE) range(from, Math.min(from + RANGE - 1, last));
}

/** Returns the largest key of a table; asks related tables too, because the page that holds it may be damaged. */
function lastKey(db: DatabaseSync, table: string, key: string): number {
  const questions = [
    `SELECT max(${key}) AS last FROM main.${table}`,
    'SELECT max(key) AS last FROM main.messages',
    'SELECT max(key) AS last FROM main.deliveries',
    `SELECT key AS last FROM main.deliveries INDEXED BY deliveries_due WHERE state = 0
    ORDER BY endpoint DESC, due_at DESC LIMIT 1`,
    'SELECT key AS last FROM main.messages INDEXED BY sqlite_autoindex_messages_1 ORDER BY id DESC LIMIT 1',
    'SELECT max(key) AS last FROM main.events INDEXED BY events_pending WHERE batch IS NULL',
  ];
  let last = 0;
  for (const question of questions) {
    try {
      last = Math.max(last, Number(db.prepare(question).get()?.['last'] ?? 0));
    } catch (error) {
      if (kindOf(error) !== 'damaged') throw error;
    }
  }
  return last + RANGE;
}

/** Makes the new file consistent: deliveries without message, batch or endpoint are dead, other orphans are deleted. */
function mend(db: DatabaseSync, now: number) {
  db.exec(`INSERT OR IGNORE INTO fresh.endpoints (key, account, url)
    SELECT DISTINCT endpoint, '', 'lost:' || endpoint FROM fresh.deliveries
    WHERE endpoint NOT IN (SELECT key FROM fresh.endpoints)`);
  const bury = (what: string, where: string) =>
    Number(
      db
        .prepare(
          `UPDATE fresh.deliveries SET state = ${stateCode('dead')}, ended_at = ?, note = ?
          WHERE state = 0 AND ${where}`,
        )
        .run(now, LOST + what).changes,
    );
  const lostMessages =
    bury('its events were damaged on disk', 'kind = 1 AND message NOT IN (SELECT message FROM fresh.batches)') +
    bury('its row was damaged on disk', 'message NOT IN (SELECT key FROM fresh.messages)') +
    bury(
      'its endpoint was damaged on disk',
      `endpoint IN (SELECT key FROM fresh.endpoints WHERE url LIKE 'lost:%' AND account = '')`,
    );
  const lostDeliveries = Number(
    db.prepare('DELETE FROM fresh.messages WHERE key NOT IN (SELECT message FROM fresh.deliveries)').run().changes,
  );
  db.exec(`DELETE FROM fresh.batches WHERE message NOT IN (SELECT key FROM fresh.messages);
    DELETE FROM fresh.events
      WHERE hook NOT IN (SELECT key FROM fresh.hooks) OR batch NOT IN (SELECT message FROM fresh.batches);
    UPDATE fresh.batches SET open = coalesce((SELECT
      CASE WHEN d.state = 0 AND d.parked = 0 THEN 1 WHEN d.state IN (${OPEN_CODES.join(', ')}) THEN 2 ELSE 0 END
      FROM fresh.deliveries d WHERE d.key = message), 0)`);
  const count = (table: string) => Number(db.prepare(`SELECT count(*) AS n FROM fresh.${table}`).get()?.['n']);
  return { messages: count('messages'), deliveries: count('deliveries'), lostMessages, lostDeliveries };
}
