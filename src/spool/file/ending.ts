import type { DatabaseSync } from 'node:sqlite';
import type { Endpoints } from './endpoints.ts';
import { number, type SqlRow, whole } from './rows.ts';

/** What operators and the API do to deliveries, by their numbers. Each answers how many it changed. */
export interface Ending {
  retry(keys: readonly number[], now: number): number;
  /** Moves what waits and was never attempted to another time. */
  reschedule(keys: readonly number[], at: number): number;
  drop(keys: readonly number[], now: number): number;
  replay(keys: readonly number[], now: number): number;
  redirect(keys: readonly number[], url: string): number;
  /** Gives up what waits of a message whose body is lost. */
  quarantine(messageId: string, note: string, now: number): number;
  /** Gives up what waits, by number or id. */
  bury(which: readonly (number | string)[], note: string, now: number): number;
}

/** Every statement looks at the state again: it may have changed since the numbers were looked up. */
export function createEnding(db: DatabaseSync, endpoints: Endpoints): Ending {
  // What is not to go before a time has its budget from then on, and keeps to that time whoever is impatient.
  const retry =
    db.prepare(`UPDATE deliveries SET due_at = max(?, CASE WHEN attempts = 0 AND budget_from > created_at THEN budget_from ELSE 0 END)
    WHERE key = ? AND state = 0`);
  const reschedule = db.prepare(
    'UPDATE deliveries SET due_at = ?1, ended_at = ?1, budget_from = ?1 WHERE key = ?2 AND state = 0 AND attempts = 0',
  );
  const drop = db.prepare('UPDATE deliveries SET state = 3, ended_at = ? WHERE key = ? AND state = ?');
  const replay =
    db.prepare(`UPDATE deliveries SET state = 0, due_at = ?1, ended_at = ?1, budget_from = ?1, attempts = 0, parked = 0, note = NULL
    WHERE key = ?2 AND state > 0`);
  const where = db.prepare('SELECT endpoint, state FROM deliveries WHERE key = ?');
  const redirect = db.prepare('UPDATE deliveries SET endpoint = ? WHERE key = ? AND state IN (0, 2)');
  const lost = db.prepare(
    'SELECT d.key FROM messages m JOIN deliveries d ON d.key BETWEEN m.key AND m.key + m.deliveries - 1 WHERE m.id = ? AND d.state = 0',
  );
  const keyOf = db.prepare('SELECT key FROM deliveries WHERE id = ?');
  const bury = db.prepare('UPDATE deliveries SET state = 2, ended_at = ?, note = ? WHERE key = ? AND state = 0');
  const opened = db.prepare('UPDATE batches SET open = ? WHERE message = ?');

  /** Runs `change` for each number that is still there and answers how often it did something. */
  const each = (keys: readonly number[], change: (key: number, endpoint: number, state: number) => boolean) => {
    let count = 0;
    for (const key of keys) {
      const row = where.get(key);
      if (row && change(key, number(row, 'endpoint'), number(row, 'state'))) count++;
    }
    return count;
  };
  const shifted = (changed: boolean, key: number, endpoint: number, more: number) => {
    if (changed) {
      endpoints.shift(endpoint, more);
      opened.run(more > 0 ? 1 : 0, key);
    }
    return changed;
  };

  const buryAll = (rows: readonly SqlRow[], note: string, now: number) =>
    each(
      rows.map((row) => number(row, 'key')),
      (key, endpoint) => shifted(bury.run(whole(now), note, key).changes !== 0, key, endpoint, -1),
    );

  return {
    retry: (keys, now) => each(keys, (key) => retry.run(whole(now), key).changes !== 0),
    reschedule: (keys, at) => each(keys, (key) => reschedule.run(whole(at), key).changes !== 0),
    drop: (keys, now) =>
      each(
        keys,
        (key, endpoint, state) =>
          (state === 0 || state === 2) &&
          shifted(drop.run(whole(now), key, state).changes !== 0, key, endpoint, state === 0 ? -1 : 0),
      ),
    replay: (keys, now) =>
      each(keys, (key, endpoint) => shifted(replay.run(whole(now), key).changes !== 0, key, endpoint, 1)),
    redirect: (keys, url) =>
      each(keys, (key, endpoint, state) => {
        const account = endpoints.accountOf(endpoint);
        if (account === undefined) return false;
        const target = endpoints.keyOf(account, url);
        if (target === endpoint || redirect.run(target, key).changes === 0) return false;
        if (state === 0) {
          endpoints.shift(endpoint, -1);
          endpoints.shift(target, 1);
        }
        return true;
      }),
    quarantine: (messageId, note, now) => buryAll(lost.all(messageId), note, now),
    bury: (which, note, now) =>
      buryAll(
        which
          .map((one) => (typeof one === 'number' ? { key: one } : keyOf.get(one)))
          .filter((row) => row !== undefined),
        note,
        now,
      ),
  };
}
