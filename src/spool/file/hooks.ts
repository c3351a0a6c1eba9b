import type { DatabaseSync } from 'node:sqlite';
import type { Ending } from './ending.ts';
import { number, text } from './rows.ts';

/** What happens to the events and batches of a webhook as a whole, in steps small enough to share a commit with new mail. */
export interface HookChanges {
  /** A step of forgetting a webhook that was deleted: whether there is more to do, and how many batches were dropped. */
  forgetHook(webhook: string, now: number, limit: number): { readonly more: boolean; readonly batches: number };
  /** Answers how many batches go elsewhere from now on. */
  redirectHook(webhook: string, url: string): number;
  /** A step of dropping pending events that came before a time: how many of which webhook. Nothing: there are none left. */
  expireEvents(before: number, limit: number): { readonly webhook: string; readonly events: number }[];
}

/** The changes over the writer's connection. */
export function createHookChanges(db: DatabaseSync, ending: Pick<Ending, 'drop' | 'redirect'>): HookChanges {
  const find = db.prepare('SELECT key FROM hooks WHERE id = ?');
  const bury = db.prepare('UPDATE hooks SET gone = 1 WHERE key = ?');
  const move = db.prepare('UPDATE hooks SET url = ? WHERE key = ?');
  const all = db.prepare('SELECT key, id FROM hooks');
  const pending = db.prepare(
    'SELECT key, at FROM events INDEXED BY events_pending WHERE hook = ? AND batch IS NULL ORDER BY key LIMIT ?',
  );
  const remove = db.prepare('DELETE FROM events WHERE key = ?');
  const batches = db.prepare(
    'SELECT d.key, d.state FROM batches b INDEXED BY batches_left JOIN deliveries d ON d.key = b.message WHERE b.hook = ? AND b.open > 0',
  );

  const keyOf = (webhook: string): number | undefined => {
    const row = find.get(webhook);
    return row && number(row, 'key');
  };
  /** Pending events are removed oldest first: until the limit, or one that came later. */
  const removePending = (hook: number, before: number, limit: number): number => {
    const rows = pending.all(hook, limit);
    const end = rows.findIndex((row) => number(row, 'at') >= before);
    const over = end === -1 ? rows : rows.slice(0, end);
    for (const row of over) remove.run(number(row, 'key'));
    return over.length;
  };

  return {
    forgetHook(webhook, now, limit) {
      const key = keyOf(webhook);
      if (key === undefined) return { more: false, batches: 0 };
      bury.run(key);
      if (removePending(key, Number.POSITIVE_INFINITY, limit) === limit) return { more: true, batches: 0 };
      const waiting = batches
        .all(key)
        .filter((row) => number(row, 'state') === 0)
        .map((row) => number(row, 'key'));
      return { more: false, batches: ending.drop(waiting, now) };
    },
    redirectHook(webhook, url) {
      const key = keyOf(webhook);
      if (key === undefined) return 0;
      move.run(url, key);
      return ending.redirect(
        batches.all(key).map((row) => number(row, 'key')),
        url,
      );
    },
    expireEvents: (before, limit) =>
      all.all().flatMap((row) => {
        const events = removePending(number(row, 'key'), before, limit);
        return events > 0 ? [{ webhook: text(row, 'id'), events }] : [];
      }),
  };
}
