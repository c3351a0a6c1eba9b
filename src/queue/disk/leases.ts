import type { DatabaseSync } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { SqlRow } from '../../base/sqlite.ts';
import type { AttemptRecord, EndpointName, Settlement } from '../delivery.ts';
import { longFailure } from '../settle.ts';
import type { Endpoints } from './open-file.ts';
import { KEPT_ATTEMPTS, number, numberOrNull, stateCode, toAttempt, whole } from './schema.ts';
import { type Sequences, sequenceOf } from './sequences.ts';

// Leases of deliveries that their consumer pulls. A lease is stored as the due time of its delivery and an attempt
// without a result, so it survives a restart, and a delivery whose consumer died is due again when the lease ends.

/**
 * The beginning and the end of a lease. An earlier lease that ran out is a failure: after `patience` milliseconds of
 * them the next of a sequence is tried.
 */
export interface LeaseTimes {
  readonly now: number;
  readonly until: number;
  readonly patience: number;
}

/** A delivery that a consumer holds, as attempt `n`; that number also counts attempts before a replay. */
export interface Leased {
  readonly id: string;
  readonly n: number;
  /** The attempt of the lease before it, if that ran out. */
  readonly ranOut: AttemptRecord | null;
}

/** The end of a lease: the consumer's report on attempt `n`, and its consequences. */
export interface LeaseEnd
  extends Pick<Settlement, 'deliveryId' | 'state' | 'dueAt' | 'at' | 'failure'>,
    Pick<AttemptRecord, 'status' | 'error' | 'answer'> {
  readonly n: number;
}

/** The result of a lease until its consumer reports one: it must also be true if that never happens. */
const OPEN = 'not acknowledged';
const RAN_OUT = 'lease ran out';

/** Creates the leasing on the writer's connection. */
export function createLeasing(db: DatabaseSync, endpoints: Endpoints, turns: Sequences) {
  const due =
    db.prepare(`SELECT d.key, d.posts, d.sequence, d.held_since FROM deliveries d JOIN endpoints e ON e.key = d.endpoint
    WHERE d.id = ? AND d.state = 0 AND d.due_at <= ? AND e.account = ? AND e.url = ?`);
  const take = db.prepare(`UPDATE deliveries SET due_at = ?1, ended_at = ?1, attempts = attempts + 1, posts = posts + 1,
    parked = 0, note = NULL WHERE key = ?2`);
  const begin = db.prepare(`INSERT INTO attempts (delivery, n, at, duration, status, error, answer)
    VALUES (?, ?, ?, ?, NULL, '${OPEN}', '')`);
  const shorten = db.prepare('DELETE FROM attempts WHERE delivery = ? AND n <= ?');
  const runOut = db.prepare(`UPDATE attempts SET error = '${RAN_OUT}'
    WHERE delivery = ? AND n = ? AND error = '${OPEN}' RETURNING *, NULL AS detail`);
  const held = db.prepare(`SELECT d.key, d.endpoint, d.sequence FROM deliveries d JOIN endpoints e ON e.key = d.endpoint
    WHERE d.id = ? AND d.state = 0 AND d.posts = ? AND e.account = ?`);
  const end = db.prepare(`UPDATE attempts SET duration = max(0, ?1 - at), status = ?2, error = ?3, answer = ?4
    WHERE delivery = ?5 AND n = ?6 AND error = '${OPEN}' RETURNING *, NULL AS detail`);
  const keep = db.prepare(`INSERT INTO verdicts (message, verdicts, sum)
    SELECT m.key, ?1, ?2 FROM deliveries d JOIN messages m ON m.key = d.message WHERE d.id = ?3
    ON CONFLICT DO NOTHING`);
  const settle = db.prepare('UPDATE deliveries SET state = ?, due_at = ?, ended_at = ? WHERE key = ?');

  /** Undefined if it was tried in place of the first of its sequence, and now waits behind that again. */
  function leaseOne(id: string, row: SqlRow, { now, until, patience }: LeaseTimes): Leased | undefined {
    const [key, last] = [number(row, 'key'), number(row, 'posts')];
    const over = runOut.get(key, last);
    const failure = longFailure(numberOrNull(row, 'held_since') ?? Number.POSITIVE_INFINITY, patience, now);
    if (over && turns.settled(sequenceOf(row), key, { state: 'waiting', at: now, failure })) return undefined;
    take.run(until, key);
    begin.run(key, last + 1, now, until - now);
    if (last >= KEPT_ATTEMPTS) shorten.run(key, last + 1 - KEPT_ATTEMPTS);
    return { id, n: last + 1, ranOut: over ? toAttempt(over) : null };
  }

  return {
    lease({ account, url }: EndpointName, ids: readonly string[], times: LeaseTimes): readonly Leased[] {
      const at = { ...times, now: whole(times.now), until: whole(times.until) };
      return ids.flatMap((id) => {
        const row = due.get(id, at.now, account, url);
        return (row && leaseOne(id, row, at)) ?? [];
      });
    },
    keepVerdicts(deliveryId: string, verdicts: string) {
      keep.run(verdicts, crc32(verdicts), deliveryId);
    },
    endLease(account: string, { deliveryId, n, state, dueAt, at, status, error, answer, failure }: LeaseEnd) {
      const row = held.get(deliveryId, n, account);
      // An attempt that a POST made has no lease: its number must not end the delivery.
      const ended = row && end.get(whole(at), status, error, answer, number(row, 'key'), n);
      if (!ended) return null;
      settle.run(stateCode(state), whole(dueAt), whole(state === 'waiting' ? dueAt : at), number(row, 'key'));
      if (state !== 'waiting') endpoints.shift(number(row, 'endpoint'), -1);
      turns.settled(sequenceOf(row), number(row, 'key'), { state, at, failure });
      return toAttempt(ended);
    },
  };
}
