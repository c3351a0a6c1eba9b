import type { DatabaseSync } from 'node:sqlite';
import { frozen } from '../../base/frozen.ts';
import type { SqlRow } from '../../base/sqlite.ts';
import type { QueuedDelivery, Settlement } from '../delivery.ts';
import { BEHIND, DELIVERY_ROW, number, textOrNull, toDelivery, whole } from './schema.ts';

// The order of deliveries in a sequence (decision 0060). They go out one after another, by their keys: the first that
// waits is due, and the others are due after every date, so that neither a lane nor a pulling consumer finds them. The
// end of the first makes the next one due in the same transaction, so that a crash cannot break the order.

/** The turns on the writer's connection, with the changes of the open transaction. */
export type Sequences = ReturnType<typeof createSequences>;

/** The first delivery of every sequence without a due one. */
const STUCK = `SELECT min(key) AS key FROM deliveries INDEXED BY deliveries_sequence
  WHERE state = 0 AND sequence IS NOT NULL GROUP BY sequence HAVING min(due_at) = ${BEHIND}`;

export function createSequences(db: DatabaseSync) {
  const IN_ORDER = 'FROM deliveries INDEXED BY deliveries_sequence WHERE sequence = ? AND state = 0';
  const first = db.prepare(`SELECT key, due_at ${IN_ORDER} ORDER BY key LIMIT 1`);
  const before = db.prepare(`SELECT key, due_at, attempts ${IN_ORDER} AND key < ?`);
  const after = db.prepare(`SELECT key, due_at, attempts ${IN_ORDER} AND key > ? ORDER BY key`);
  const release = db.prepare('UPDATE deliveries SET due_at = ?1, ended_at = ?1 WHERE key = ?2');
  const leave = db.prepare('UPDATE deliveries SET sequence = NULL, held_since = NULL WHERE key = ?');
  const putBack = db.prepare(`UPDATE deliveries SET due_at = ${BEHIND}, held_since = NULL WHERE key = ?`);
  const keepFailure = db.prepare('UPDATE deliveries SET held_since = ? WHERE key = ?');
  const stuck = db.prepare(STUCK);
  const one = db.prepare(`${DELIVERY_ROW} WHERE d.key = ? AND d.state = 0 AND d.due_at < ${BEHIND}`);
  let news = new Set<number>();

  const isBehind = (row: SqlRow): boolean => number(row, 'due_at') === BEHIND;

  function makeDue(key: number, now: number): void {
    release.run(whole(now), key);
    news.add(key);
  }

  /** A delivery of the sequence no longer waits: the first of the others is due. */
  function advance(sequence: string | null, now: number): void {
    const row = sequence === null ? undefined : first.get(sequence);
    if (row && isBehind(row)) makeDue(number(row, 'key'), now);
  }

  /** Makes another one due in place of the first, unless one already is. */
  function tryNext(sequence: string, key: number, now: number): void {
    for (const row of after.iterate(sequence, key)) {
      if (!isBehind(row)) return;
      if (number(row, 'attempts') === 0) return makeDue(number(row, 'key'), now);
    }
  }

  /** Takes earlier deliveries that failed out of the sequence. */
  function overtake(sequence: string, key: number, now: number): void {
    for (const row of before.all(sequence, key)) {
      // A replayed one that was not attempted since has not failed.
      if (number(row, 'attempts') === 0) continue;
      if (isBehind(row)) release.run(whole(now), number(row, 'key'));
      leave.run(number(row, 'key'));
      news.add(number(row, 'key'));
    }
  }

  return frozen({
    /** When a delivery that begins to wait now is due: at `due`, unless others of its sequence wait. */
    dueOf: (sequence: string | null, due: number) => (sequence !== null && first.get(sequence) ? BEHIND : due),
    advance,
    /**
     * Settles an attempt. delivered: earlier ones that had failed leave the sequence and continue alone · waiting: if
     * it is the first and has failed for too long, the next untried one becomes due; if it was tried in place of the
     * first, it waits behind that again, and the result is true.
     */
    settled(
      sequence: string | null,
      key: number,
      { state, at, failure }: Pick<Settlement, 'state' | 'at' | 'failure'>,
    ) {
      if (sequence === null) return false;
      if (state === 'delivered') overtake(sequence, key, at);
      const row = state === 'waiting' ? first.get(sequence) : undefined;
      const isFirst = row !== undefined && number(row, 'key') === key;
      if (row && !isFirst) putBack.run(key);
      if (!isFirst) advance(sequence, at);
      else if (failure) {
        keepFailure.run(whole(failure.since), key);
        if (failure.isOver) tryNext(sequence, key, at);
      }
      return row !== undefined && !isFirst;
    },
    /** Makes the first of each sequence due if none is: its predecessor may have been lost with damaged pages. */
    mend(now: number) {
      for (const row of stuck.all()) release.run(whole(now), number(row, 'key'));
    },
    /** Returns the deliveries that became due, and those that left their sequence, since the last commit. */
    commit(): readonly QueuedDelivery[] {
      if (news.size === 0) return [];
      const rows = [...news].map((key) => one.get(key)).filter((row) => row !== undefined);
      news = new Set();
      return rows.map(toDelivery);
    },
    rollback() {
      news = new Set();
    },
  });
}

/** The sequence of a row; null if it is in none. */
export const sequenceOf = (row: SqlRow): string | null => textOrNull(row, 'sequence');
