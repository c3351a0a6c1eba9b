import type { DatabaseSync, SQLOutputValue } from 'node:sqlite';
import { crc32 } from 'node:zlib';
import type { HookTally } from '../event-types.ts';
import type { Delivery, Settlement } from '../types.ts';
import { type Batching, createBatching } from './batching.ts';
import { createEnding, type Ending } from './ending.ts';
import type { Endpoints } from './endpoints.ts';
import { createForgetting, type Forgetting } from './forgetting.ts';
import { createHookChanges, type HookChanges } from './hooks.ts';
import { createReporting, type Reporting } from './reporting.ts';
import { sumOf, sumOfDelivery } from './row-sum.ts';
import { number, type SqlRow, whole } from './rows.ts';
import { stateCode } from './schema.ts';
import { createTallying } from './tallying.ts';

/** A message as its row holds it: with the bytes, or with the name and SHA-256 of its blob. */
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
}

/** What the writer thread does to the file; each runs inside the common transaction. */
export interface Changes extends Ending, Forgetting, Batching, HookChanges, Pick<Reporting, 'reported'> {
  /** False when a message of this id is there already; then nothing was written. */
  accept(message: MessageRow, deliveries: readonly Delivery[]): boolean;
  /** Keeps the verdicts that the attempt took, if it took any. For a batch of events: the numbers of its webhook afterwards. */
  settle(settlement: Settlement, verdicts: string | null): HookTally | null;
  keepEndpoint(account: string, url: string, memory: string | null): void;
  check(at: number): void;
  keepTime(memory: string): void;
}

/** The history of a delivery is for looking at, not for ever: its last attempts are enough. */
const KEPT_ATTEMPTS = 50;

/** The changes over the writer's connection. `nextKey` gives out `count` numbers and answers the first. */
export function createChanges(db: DatabaseSync, endpoints: Endpoints, nextKey: (count: number) => number): Changes {
  const check = db.prepare(`UPDATE meta SET value = ? WHERE name = 'checked'`);
  const time = db.prepare(
    'INSERT INTO time (key, memory) VALUES (1, ?) ON CONFLICT DO UPDATE SET memory = excluded.memory',
  );
  const ending = createEnding(db, endpoints);
  const reporting = createReporting(db);
  return Object.freeze({
    accept: createAccepting(db, endpoints, nextKey),
    settle: createSettling(db, endpoints, reporting),
    reported: reporting.reported,
    keepEndpoint: (account: string, url: string, memory: string | null) => endpoints.keep(account, url, memory),
    check: (at: number) => {
      check.run(whole(at));
    },
    keepTime: (memory: string) => {
      time.run(memory);
    },
    ...ending,
    ...createForgetting(db, endpoints),
    ...createBatching(db, endpoints, nextKey),
    ...createHookChanges(db, ending),
  });
}

function createAccepting(
  db: DatabaseSync,
  endpoints: Endpoints,
  nextKey: (count: number) => number,
): Changes['accept'] {
  const message =
    db.prepare(`INSERT INTO messages (key, id, received_at, deliveries, envelope, trace, size, blob, sha256, crc, bytes, sum)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`);
  const delivery =
    db.prepare(`INSERT INTO deliveries (key, id, message, endpoint, route, pattern, recipient, bytes, state,
    created_at, due_at, ended_at, budget_from, attempts, posts, parked, sum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, 0, 0, 0, ?)
    ON CONFLICT DO NOTHING`);
  return (row, deliveries) => {
    const key = nextKey(deliveries.length);
    const at = whole(row.receivedAt);
    const { changes } = message.run(
      key,
      row.id,
      at,
      deliveries.length,
      row.envelope,
      row.trace,
      row.size,
      row.blob,
      row.sha256,
      row.crc,
      row.bytes,
      sumOf({ ...row, receivedAt: at, deliveries: deliveries.length }),
    );
    if (changes === 0) return false;
    const share = Math.ceil(row.size / deliveries.length);
    deliveries.forEach((one, i) => {
      const endpoint = endpoints.keyOf(one.account, one.url);
      const from = Math.max(at, whole(one.notBefore ?? 0));
      const sum = sumOfDelivery({ ...one, message: key, route: one.routeId });
      const written = delivery.run(
        key + i,
        one.id,
        key,
        endpoint,
        one.routeId,
        one.pattern,
        one.recipient,
        share,
        at,
        from,
        from,
        from,
        sum,
      );
      if (written.changes !== 0) endpoints.shift(endpoint, 1);
    });
    return true;
  };
}

function createSettling(db: DatabaseSync, endpoints: Endpoints, { keepReport }: Reporting): Changes['settle'] {
  const find =
    db.prepare(`SELECT key, deliveries.message, endpoint, state, attempts, posts, due_at, ended_at, parked, b.hook FROM deliveries
    LEFT JOIN batches b ON b.message = key WHERE id = ?`);
  const update = db.prepare(
    'UPDATE deliveries SET state = ?, due_at = ?, ended_at = ?, parked = ?, attempts = ?, posts = ?, note = NULL WHERE key = ?',
  );
  const attempt = db.prepare(
    'INSERT INTO attempts (delivery, n, at, duration, status, error, answer) VALUES (?, ?, ?, ?, ?, ?, ?)',
  );
  const shorten = db.prepare('DELETE FROM attempts WHERE delivery = ? AND n <= ?');
  const keep = db.prepare(`INSERT INTO verdicts (message, verdicts, sum) SELECT key, ?, ? FROM messages WHERE key = ?
    ON CONFLICT DO UPDATE SET verdicts = excluded.verdicts, sum = excluded.sum`);
  const tallying = createTallying(db);
  return (settlement, verdicts) => {
    const { deliveryId, attempt: made, state, dueAt, parked, at, report, forget } = settlement;
    // What was attempted has happened, whatever became of the delivery meanwhile.
    if (report) keepReport(report);
    const row = find.get(deliveryId);
    if (!row) return null;
    if (verdicts !== null) keep.run(verdicts, crc32(verdicts), number(row, 'message'));
    const key = number(row, 'key');
    const posts = number(row, 'posts') + (made ? 1 : 0);
    if (made) {
      attempt.run(key, posts, whole(made.at), made.durationMs, made.status, made.error, made.answer);
      if (posts > KEPT_ATTEMPTS) shorten.run(key, posts - KEPT_ATTEMPTS);
    }
    const open = number(row, 'state') === 0;
    const attempts = number(row, 'attempts') + (made && open ? 1 : 0);
    if (open) {
      const ended = state === 'waiting' ? dueAt : forget ? 0 : at;
      update.run(stateCode(state), whole(dueAt), whole(ended), parked ? 1 : 0, attempts, posts, key);
      if (state !== 'waiting') endpoints.shift(number(row, 'endpoint'), -1);
    } else if (made) {
      update.run(
        value(row, 'state'),
        value(row, 'due_at'),
        value(row, 'ended_at'),
        value(row, 'parked'),
        attempts,
        posts,
        key,
      );
    }
    return row['hook'] === null ? null : tallying.settled(key, number(row, 'endpoint'), settlement, open);
  };
}

function value(row: SqlRow, name: string): SQLOutputValue {
  return row[name] ?? null;
}
