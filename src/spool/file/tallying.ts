import type { DatabaseSync } from 'node:sqlite';
import type { HookTally } from '../event-types.ts';
import type { AttemptRecord, Settlement } from '../types.ts';
import { number, numberOrNull, type SqlRow, text, textOrNull, whole } from './rows.ts';

/** What the writer notes of a batch that was attempted, in the transaction of its settlement. */
export interface Tallying {
  /** Answers the numbers of its webhook; null when the webhook was deleted. `waits`: the delivery was open until now. */
  settled(delivery: number, endpoint: number, settlement: Settlement, waits: boolean): HookTally | null;
}

/** Tallying over the writer's connection. */
export function createTallying(db: DatabaseSync): Tallying {
  const open = db.prepare('UPDATE batches SET open = ? WHERE message = ?');
  // A batch is counted once, however often it is replayed.
  const count = db.prepare('UPDATE batches SET counted = 1 WHERE message = ? AND counted = 0');
  const sent =
    db.prepare(`UPDATE hooks SET batches = batches + 1, events = hooks.events + b.events, sent_at = max(coalesce(sent_at, 0), ?)
    FROM (SELECT hook, events FROM batches WHERE message = ?) b WHERE key = b.hook`);
  const failed = db.prepare(
    'UPDATE hooks SET error = ?, error_at = ? WHERE key = (SELECT hook FROM batches WHERE message = ?)',
  );
  const url = db.prepare('SELECT url FROM endpoints WHERE key = ?');
  const tally = db.prepare(`${TALLY} WHERE gone = 0 AND key = (SELECT hook FROM batches WHERE message = ?)`);
  return {
    settled(delivery, endpoint, { state, parked, attempt, at }, waits) {
      if (waits) open.run(openness(state, parked), delivery);
      if (state === 'delivered') {
        if (count.run(delivery).changes !== 0) sent.run(whole(at), delivery);
      } else if (attempt) {
        failed.run(toErrorText(text(url.get(endpoint) ?? {}, 'url'), attempt), whole(at), delivery);
      }
      const row = tally.get(delivery);
      return row ? toTally(row) : null;
    },
  };
}

function openness(state: Settlement['state'], parked: boolean): number {
  if (state === 'waiting') return parked ? 2 : 1;
  return state === 'dead' ? 2 : 0;
}

/** The words that readers of `last_error` know. */
function toErrorText(url: string, { status, answer, error }: AttemptRecord): string {
  return status === null
    ? `POST to ${url} failed: ${error ?? 'no answer'}`
    : `POST to ${url} failed with ${status}: ${answer}`;
}

/** What `toTally` reads. */
export const TALLY = 'SELECT id, account, url, spool, batches, events, sent_at, error, error_at FROM hooks';

/** A row of `TALLY`. */
export function toTally(row: SqlRow): HookTally {
  return {
    hook: { id: text(row, 'id'), account: text(row, 'account'), url: text(row, 'url') },
    spool: number(row, 'spool').toString(36),
    batches: number(row, 'batches'),
    events: number(row, 'events'),
    sentAt: numberOrNull(row, 'sent_at'),
    error: textOrNull(row, 'error'),
    errorAt: numberOrNull(row, 'error_at'),
  };
}
