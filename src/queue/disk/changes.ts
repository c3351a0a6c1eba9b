import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import { frozen } from '../../base/frozen.ts';
import type { SqlRow } from '../../base/sqlite.ts';
import type { Delivery, Settlement } from '../delivery.ts';
import type { HookTally } from '../events.ts';
import { createBatchChanges, createHookChanges, createTallying } from './batches.ts';
import { createCopyMarking } from './copied.ts';
import { createLeasing } from './leases.ts';
import type { Endpoints } from './open-file.ts';
import { createPurging } from './purging.ts';
import { createReporting, type Reporting } from './queries.ts';
import { createScanKeeping } from './scans.ts';
import {
  BEHIND,
  detailKey,
  KEPT_ATTEMPTS,
  kindCode,
  number,
  OPEN_CODES,
  stateCode,
  taskCode,
  whole,
} from './schema.ts';
import { type Sequences, sequenceOf } from './sequences.ts';
import { sumOf, sumOfDelivery } from './sums.ts';

/** A message as its row stores it: with the bytes, or with the name and SHA-256 of its blob. */
export interface MessageRow {
  readonly id: string;
  readonly receivedAt: number;
  readonly envelope: string;
  readonly trace: string;
  readonly size: number;
  readonly bytes: Uint8Array | null;
  readonly crc: number | null;
  readonly blob: string | null;
  readonly sha256: string | null;
  /** JSON; null if not computed yet. */
  readonly verdicts: string | null;
  /** JSON; null if not scanned yet. */
  readonly scan: string | null;
}

/** Whether a message was written: not if its id exists already. The bytes are returned to the caller. */
export interface Accepted {
  readonly written: boolean;
  /** The ids of deliveries that wait behind others. */
  readonly behind: readonly string[];
  readonly bytes: Uint8Array | null;
}

/** The operations of the writer thread on the file; each runs inside the common transaction. */
export type Changes = ReturnType<typeof createChanges>;

const KEEP_VERDICTS = `INSERT INTO verdicts (message, verdicts, sum) SELECT key, ?, ? FROM messages WHERE key = ?
  ON CONFLICT DO UPDATE SET verdicts = excluded.verdicts, sum = excluded.sum`;

/** The shared parts of several changes. */
export interface ChangeParts {
  readonly endpoints: Endpoints;
  readonly sequences: Sequences;
}

/** Creates the changes on the writer's connection. `nextKey` allocates `count` keys and returns the first. */
export function createChanges(
  db: DatabaseSync,
  { endpoints, sequences }: ChangeParts,
  nextKey: (count: number) => number,
) {
  const check = db.prepare(`UPDATE meta SET value = ? WHERE name = 'checked'`);
  const time = db.prepare(
    'INSERT INTO time (key, memory) VALUES (1, ?) ON CONFLICT DO UPDATE SET memory = excluded.memory',
  );
  const ending = createEnding(db, { endpoints, sequences });
  const reporting = createReporting(db);
  const accepting = createAccepting(db, { endpoints, sequences }, nextKey);
  return frozen({
    accept(row: MessageRow, deliveries: readonly Delivery[]): Accepted {
      const written = accepting(row, deliveries);
      return { written: written !== undefined, behind: written?.behind ?? [], bytes: row.bytes };
    },
    restore: createRestoring(db, endpoints),
    /** Also stores the verdicts, if the attempt computed any. */
    settle: createSettling(db, { endpoints, sequences }, reporting),
    ...createScanKeeping(db),
    ...createCopyMarking(db),
    ...createLeasing(db, endpoints, sequences),
    reported: reporting.reported,
    keepEndpoint: endpoints.keep,
    check: (at: number) => {
      check.run(whole(at));
    },
    keepTime: (memory: string) => {
      time.run(memory);
    },
    ...ending,
    ...createPurging(db, { endpoints, sequences }),
    ...createBatchChanges(db, accepting),
    ...createHookChanges(db, ending),
  });
}

const INSERT_MESSAGE = `INSERT INTO messages
  (key, id, received_at, deliveries, envelope, trace, size, blob, sha256, crc, bytes, sum)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`;

/** The values of a message's row. */
function messageValues(key: number, row: MessageRow, deliveries: number): SQLInputValue[] {
  const receivedAt = whole(row.receivedAt);
  const { id, envelope, trace, size, blob, sha256, crc, bytes } = row;
  const sum = sumOf({ ...row, receivedAt, deliveries });
  return [key, id, receivedAt, deliveries, envelope, trace, size, blob, sha256, crc, bytes, sum];
}

/** Writes messages with their deliveries. */
export type Accepting = ReturnType<typeof createAccepting>;

function createAccepting(db: DatabaseSync, { endpoints, sequences }: ChangeParts, nextKey: (count: number) => number) {
  const message = db.prepare(`${INSERT_MESSAGE} ON CONFLICT DO NOTHING`);
  const delivery =
    db.prepare(`INSERT INTO deliveries (key, id, message, endpoint, route, pattern, recipient, bytes, state,
    created_at, due_at, ended_at, budget_from, attempts, posts, parked, sum, kind, task, note, sequence)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, ?, ?, ?, ?, ?)
    ON CONFLICT DO NOTHING`);
  const { keepScan } = createScanKeeping(db);
  const keepVerdicts = db.prepare(KEEP_VERDICTS);
  /** Returns the key of the message; undefined if its id exists already. */
  return (row: MessageRow, deliveries: readonly Delivery[]) => {
    const key = nextKey(deliveries.length);
    const at = whole(row.receivedAt);
    if (message.run(...messageValues(key, row, deliveries.length)).changes === 0) return undefined;
    if (row.verdicts !== null) keepVerdicts.run(row.verdicts, crc32(row.verdicts), key);
    if (row.scan !== null) keepScan(row.id, row.scan);
    const share = Math.ceil(row.size / deliveries.length);
    const behind: string[] = [];
    deliveries.forEach((one, i) => {
      const endpoint = endpoints.keyOf(one);
      const [kind, task] = [kindCode(one.kind), taskCode(one.task)];
      const from = Math.max(at, whole(one.notBefore ?? 0));
      const sequence = one.sequence ?? null;
      const due = one.fate ? from : sequences.dueOf(sequence, from);
      const sum = sumOfDelivery({ ...one, kind, task, message: key, route: one.routeId });
      const written = delivery.run(
        key + i,
        one.id,
        key,
        endpoint,
        one.routeId,
        one.pattern,
        one.recipient,
        share,
        stateCode(one.fate?.state ?? 'waiting'),
        at,
        due,
        whole(one.fate?.at ?? from),
        from,
        sum,
        kind,
        task,
        one.fate?.note ?? null,
        sequence,
      );
      if (written.changes !== 0 && !one.fate) endpoints.shift(endpoint, 1);
      if (due === BEHIND) behind.push(one.id);
    });
    return { key, behind };
  };
}

/** Overwrites the damaged rows of a message and one of its deliveries. Its other deliveries are unchanged. */
function createRestoring(db: DatabaseSync, endpoints: Endpoints) {
  const find = db.prepare('SELECT key, message, endpoint, state FROM deliveries WHERE id = ?');
  const known = db.prepare('SELECT key FROM messages WHERE id = ?');
  const next = db.prepare('SELECT key, message FROM deliveries WHERE key >= ? ORDER BY key');
  const message =
    db.prepare(`${INSERT_MESSAGE} ON CONFLICT (key) DO UPDATE SET id = excluded.id, received_at = excluded.received_at,
    deliveries = excluded.deliveries, envelope = excluded.envelope, trace = excluded.trace, size = excluded.size,
    blob = excluded.blob, sha256 = excluded.sha256, crc = excluded.crc, bytes = excluded.bytes, sum = excluded.sum`);
  const delivery = db.prepare(`UPDATE deliveries
    SET message = ?, endpoint = ?, route = ?, pattern = ?, recipient = ?, kind = ?, task = ?, sum = ? WHERE key = ?`);
  /** How many keys belong to a message; deliveries may have been deleted in between. */
  const countOf = (key: number): number => {
    let last = key;
    for (const row of next.iterate(key)) {
      if (number(row, 'message') !== key) break;
      last = number(row, 'key');
    }
    return last - key + 1;
  };
  return (row: MessageRow, one: Delivery): boolean => {
    const found = find.get(one.id);
    if (!found) return false;
    const key = number(known.get(row.id) ?? { key: number(found, 'message') }, 'key');
    message.run(...messageValues(key, row, countOf(key)));
    const endpoint = endpoints.keyOf(one);
    const [kind, task] = [kindCode(one.kind), taskCode(one.task)];
    const sumOfOne = sumOfDelivery({ ...one, kind, task, message: key, route: one.routeId });
    delivery.run(key, endpoint, one.routeId, one.pattern, one.recipient, kind, task, sumOfOne, number(found, 'key'));
    if (number(found, 'state') === 0) {
      endpoints.shift(number(found, 'endpoint'), -1);
      endpoints.shift(endpoint, 1);
    }
    return true;
  };
}

function createSettling(db: DatabaseSync, { endpoints, sequences }: ChangeParts, { keepReport }: Reporting) {
  const find =
    db.prepare(`SELECT key, deliveries.message, endpoint, state, attempts, posts, sequence, b.hook FROM deliveries
    LEFT JOIN batches b ON b.message = key WHERE id = ?`);
  const update = db.prepare(
    `UPDATE deliveries SET state = ?, due_at = ?, ended_at = ?, parked = ?, attempts = ?, posts = ?, note = NULL
    WHERE key = ?`,
  );
  const note = db.prepare('UPDATE deliveries SET posts = ?, note = NULL WHERE key = ?');
  const attempt = db.prepare(
    'INSERT INTO attempts (delivery, n, at, duration, status, error, answer, batch) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
  );
  const detailed = db.prepare(
    `INSERT OR REPLACE INTO details (key, n, detail) VALUES (${detailKey('?1', '?2')}, ?2, ?3)`,
  );
  const shorten = db.prepare('DELETE FROM attempts WHERE delivery = ? AND n <= ?');
  const keep = db.prepare(KEEP_VERDICTS);
  const tallying = createTallying(db);
  /** `tally`: the new counts of its webhook, for a batch of events. `behind`: it waits behind another now. */
  return (settlement: Settlement, verdicts: string | null): { tally: HookTally | null; behind: boolean } => {
    const { deliveryId, attempt: made, state, dueAt, parked, at, report, forget } = settlement;
    // The attempt is recorded even if the delivery was changed meanwhile.
    if (report) keepReport(report);
    const row = find.get(deliveryId);
    if (!row) return { tally: null, behind: false };
    if (verdicts !== null) keep.run(verdicts, crc32(verdicts), number(row, 'message'));
    const key = number(row, 'key');
    const posts = number(row, 'posts') + (made ? 1 : 0);
    if (made) {
      const { at: began, durationMs, status, error, answer, batch = null, detail } = made;
      attempt.run(key, posts, whole(began), durationMs, status, error, answer, batch);
      if (detail !== undefined) detailed.run(key, posts, detail);
      if (posts > KEPT_ATTEMPTS) shorten.run(key, posts - KEPT_ATTEMPTS);
    }
    const open = number(row, 'state') === 0;
    let behind = false;
    if (open) {
      const attempts = number(row, 'attempts') + (made ? 1 : 0);
      const ended = state === 'waiting' ? dueAt : forget ? 0 : at;
      update.run(stateCode(state), whole(dueAt), whole(ended), parked ? 1 : 0, attempts, posts, key);
      if (state !== 'waiting') endpoints.shift(number(row, 'endpoint'), -1);
      behind = sequences.settled(sequenceOf(row), key, settlement);
    } else if (made) note.run(posts, key);
    const isBatch = row['hook'] !== null;
    return { behind, tally: isBatch ? tallying.settled(key, number(row, 'endpoint'), settlement, open) : null };
  };
}

/** The operations of operators and the API on deliveries, by key. */
export type Ending = ReturnType<typeof createEnding>;

/** Every statement checks the state again: it may have changed since the keys were read. */
function createEnding(db: DatabaseSync, { endpoints, sequences }: ChangeParts) {
  // The budget of a delivery with a chosen send time begins at that time; a retry does not make it earlier. A delivery
  // behind another is due when that has ended.
  const retry = db.prepare(`UPDATE deliveries
    SET due_at = max(?, CASE WHEN attempts = 0 AND budget_from > created_at THEN budget_from ELSE 0 END)
    WHERE key = ? AND state = 0 AND due_at < ${BEHIND}`);
  const reschedule = db.prepare(
    'UPDATE deliveries SET due_at = ?1, ended_at = ?1, budget_from = ?1 WHERE key = ?2 AND state = 0 AND attempts = 0',
  );
  const drop = db.prepare(
    `UPDATE deliveries SET state = ${stateCode('dropped')}, ended_at = ?, note = coalesce(?, note)
      WHERE key = ? AND state = ?`,
  );
  const replay =
    db.prepare(`UPDATE deliveries SET state = 0, due_at = ?3, ended_at = ?1, budget_from = ?1, attempts = 0,
    parked = 0, note = NULL, held_since = NULL WHERE key = ?2 AND state > 0`);
  const where = db.prepare('SELECT endpoint, state, sequence FROM deliveries WHERE key = ?');
  const redirect = db.prepare(
    `UPDATE deliveries SET endpoint = ? WHERE key = ? AND state IN (${OPEN_CODES.join(', ')})`,
  );
  const lost = db.prepare(
    `SELECT d.key FROM messages m JOIN deliveries d ON d.key BETWEEN m.key AND m.key + m.deliveries - 1
    WHERE m.id = ? AND d.state = 0`,
  );
  const keyOf = db.prepare('SELECT key FROM deliveries WHERE id = ?');
  const bury = db.prepare(
    `UPDATE deliveries SET state = ${stateCode('dead')}, ended_at = ?, note = ? WHERE key = ? AND state = 0`,
  );
  const opened = db.prepare('UPDATE batches SET open = ? WHERE message = ?');

  /** Runs `change` for each key that still exists, and returns the endpoints of those that it changed. */
  const each = (
    keys: readonly number[],
    change: (key: number, endpoint: number, state: number, sequence: string | null) => boolean,
  ) => {
    const changed: number[] = [];
    for (const key of keys) {
      const row = where.get(key);
      if (!row) continue;
      const endpoint = number(row, 'endpoint');
      if (change(key, endpoint, number(row, 'state'), sequenceOf(row))) changed.push(endpoint);
    }
    return changed;
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
      (key, endpoint, _, sequence) => {
        const buried = shifted(bury.run(whole(now), note, key).changes !== 0, key, endpoint, -1);
        sequences.advance(sequence, now);
        return buried;
      },
    ).length;

  return {
    /** These three return the endpoint of each changed delivery; the others, the number of changed deliveries. */
    retry: (keys: readonly number[], now: number): readonly number[] =>
      each(keys, (key) => retry.run(whole(now), key).changes !== 0),
    reschedule: (keys: readonly number[], at: number) =>
      each(keys, (key) => reschedule.run(whole(at), key).changes !== 0).length,
    drop: (keys: readonly number[], now: number, note?: string): readonly number[] =>
      each(keys, (key, endpoint, state, sequence) => {
        const dropped =
          OPEN_CODES.includes(state) &&
          shifted(drop.run(whole(now), note ?? null, key, state).changes !== 0, key, endpoint, state === 0 ? -1 : 0);
        sequences.advance(sequence, now);
        return dropped;
      }),
    replay: (keys: readonly number[], now: number): readonly number[] =>
      each(
        keys,
        (key, endpoint, _, sequence) =>
          // Mail that a route without a URL discarded has no destination.
          endpoints.byKey(endpoint)?.url !== '' &&
          shifted(replay.run(whole(now), key, sequences.dueOf(sequence, whole(now))).changes !== 0, key, endpoint, 1),
      ),
    redirect: (keys: readonly number[], url: string) =>
      each(keys, (key, endpoint, state) => {
        const from = endpoints.byKey(endpoint);
        if (from === undefined) return false;
        const target = endpoints.keyOf({ ...from, url });
        if (target === endpoint || redirect.run(target, key).changes === 0) return false;
        if (state === 0) {
          endpoints.shift(endpoint, -1);
          endpoints.shift(target, 1);
        }
        return true;
      }).length,
    /** Gives up the waiting deliveries of a message whose body is lost. */
    quarantine: (messageId: string, note: string, now: number) => buryAll(lost.all(messageId), note, now),
    /** Gives up waiting deliveries, by key or id. */
    bury: (which: readonly (number | string)[], note: string, now: number) =>
      buryAll(
        which
          .map((one) => (typeof one === 'number' ? { key: one } : keyOf.get(one)))
          .filter((row) => row !== undefined),
        note,
        now,
      ),
  };
}
