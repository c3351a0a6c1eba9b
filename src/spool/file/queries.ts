import type { DatabaseSync } from 'node:sqlite';
import type { Hook, HookTally, Pending } from '../event-types.ts';
import type { AttemptRecord, DeliveryState, LastTime, QueuedDelivery, Selection } from '../types.ts';
import { PENDING, toPending } from './batching.ts';
import { createMessageQueries, type MessageQueries } from './messages.ts';
import { createReportQueries, type ReportQueries } from './reporting.ts';
import { DELIVERY, isWholeDelivery, number, numberOrNull, type SqlRow, text, toAttempt, toDelivery } from './rows.ts';
import { STATES } from './schema.ts';
import { toCondition } from './selection.ts';
import { TALLY, toTally } from './tallying.ts';

/** What is due; and the numbers of deliveries that were damaged on the disk. */
export interface Due {
  readonly found: QueuedDelivery[];
  readonly damaged: number[];
}

/** What the reader thread answers. Everything here is short: long scans come in windows of numbers `from` to `to`. */
export interface Queries extends MessageQueries, ReportQueries {
  due(account: string, url: string, now: number, limit: number, except: readonly string[]): Due;
  /** The number of each endpoint that has something waiting, with the time the first of it is due. */
  firstDue(): [key: number, dueAt: number][];
  /** From when the oldest that waits has waited, milliseconds since 1970; null when none does. */
  oldest(): number | null;
  /** What was kept of the time, and when the last delivery was accepted; null when there is none. */
  lastTime(): LastTime;
  /** How many ended, by state: one pass over an index, which took so many milliseconds. */
  ended(): { readonly counts: Record<Exclude<DeliveryState, 'waiting'>, number>; readonly ms: number };
  delivery(id: string): QueuedDelivery | undefined;
  attempts(deliveryId: string): AttemptRecord[];
  /** First and last number of a delivery. */
  span(): [first: number, last: number];
  list(selection: Selection, limit: number, from: number, to: number): QueuedDelivery[];
  count(selection: Selection, from: number, to: number): Record<DeliveryState, number>;
  keys(selection: Selection, from: number, to: number): number[];
  /** The time before which delivered ones are too many for `bytes`; 0 when all have room. */
  deliveredLimit(bytes: number): number;
  /** Webhooks with pending events, counted up to `limit` each. */
  pending(limit: number): { readonly webhook: string; readonly pending: Pending }[];
  /** Webhooks with pending events, or with batches that may still go out. */
  hooks(): Hook[];
  tallies(): HookTally[];
}

/** The questions that the queue file is asked, over one connection. `blobs` is the folder of large bodies. */
export function createQueries(db: DatabaseSync, blobs: string): Queries {
  return Object.freeze({
    ...createScheduling(db),
    ...createFigures(db),
    ...createLookups(db),
    ...createMessageQueries(db, blobs),
    ...createScans(db),
    ...createHookQueries(db),
    ...createReportQueries(db),
  });
}

function createScheduling(db: DatabaseSync) {
  const dueRows = db.prepare(`${DELIVERY} WHERE d.endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?)
    AND d.state = 0 AND d.due_at <= ? ORDER BY d.due_at, d.key LIMIT ?`);
  const first = db.prepare(
    `SELECT key, (SELECT min(due_at) FROM deliveries WHERE endpoint = e.key AND state = 0) AS due FROM endpoints e`,
  );
  return {
    due(account: string, url: string, now: number, limit: number, except: readonly string[]) {
      const left = new Set(except);
      const due: Due = { found: [], damaged: [] };
      // Those in `except` are in flight and so few; walking over them in the index is cheaper than naming them in SQL.
      for (const row of dueRows.iterate(account, url, now, limit + left.size)) {
        if (due.found.length >= limit) break;
        if (!isWholeDelivery(row)) due.damaged.push(number(row, 'key'));
        else if (!left.has(text(row, 'id'))) due.found.push(toDelivery(row));
      }
      return due;
    },
    firstDue() {
      return first.all().flatMap((row): [number, number][] => {
        const due = numberOrNull(row, 'due');
        return due === null ? [] : [[number(row, 'key'), due]];
      });
    },
  };
}

function createFigures(db: DatabaseSync) {
  const oldest = db.prepare(
    'SELECT min(budget_from) AS since FROM deliveries INDEXED BY deliveries_since WHERE state = 0',
  );
  const kept = db.prepare('SELECT memory FROM time WHERE key = 1');
  const newest = db.prepare('SELECT created_at FROM deliveries ORDER BY key DESC LIMIT 1');
  const ended = db.prepare(
    'SELECT state, count(*) AS n FROM deliveries INDEXED BY deliveries_ended WHERE state > 0 GROUP BY state',
  );
  return {
    oldest: () => numberOrNull(oldest.get() ?? {}, 'since'),
    lastTime() {
      const [memory, row] = [kept.get(), newest.get()];
      return { memory: memory ? text(memory, 'memory') : null, newest: row ? number(row, 'created_at') : null };
    },
    ended() {
      const began = performance.now();
      const counts = { delivered: 0, dead: 0, dropped: 0 };
      for (const row of ended.all()) {
        const state = STATES[number(row, 'state')];
        if (state && state !== 'waiting') counts[state] = number(row, 'n');
      }
      return { counts, ms: performance.now() - began };
    },
  };
}

function createLookups(db: DatabaseSync) {
  const one = db.prepare(`${DELIVERY} WHERE d.id = ?`);
  const attempts = db.prepare(
    'SELECT a.* FROM deliveries d JOIN attempts a ON a.delivery = d.key WHERE d.id = ? ORDER BY a.n',
  );
  return {
    delivery(id: string) {
      const row = one.get(id);
      return row && toDelivery(row);
    },
    attempts: (deliveryId: string) => attempts.all(deliveryId).map(toAttempt),
  };
}

function createHookQueries(db: DatabaseSync) {
  const all = db.prepare('SELECT key, id, account, url FROM hooks WHERE gone = 0');
  const pending = db.prepare(PENDING);
  const batch = db.prepare('SELECT 1 FROM batches INDEXED BY batches_left WHERE hook = ? AND open > 0 LIMIT 1');
  const tallies = db.prepare(`${TALLY} WHERE gone = 0 AND (batches > 0 OR error IS NOT NULL)`);
  const pendingOf = (row: SqlRow, limit: number) => toPending(pending.get(number(row, 'key'), limit) ?? {});
  return {
    pending: (limit: number) =>
      all
        .all()
        .map((row) => ({ webhook: text(row, 'id'), pending: pendingOf(row, limit) }))
        .filter(({ pending: { events } }) => events > 0),
    hooks: () =>
      all
        .all()
        .filter((row) => pendingOf(row, 1).events > 0 || batch.get(number(row, 'key')))
        .map((row) => ({ id: text(row, 'id'), account: text(row, 'account'), url: text(row, 'url') })),
    tallies: () => tallies.all().map(toTally),
  };
}

function createScans(db: DatabaseSync) {
  const span = db.prepare(
    'SELECT min(key) AS first, max(key) AS last FROM (SELECT min(key) AS key FROM deliveries UNION ALL SELECT max(key) FROM deliveries)',
  );
  const newest = db.prepare(
    'SELECT ended_at, bytes FROM deliveries INDEXED BY deliveries_ended WHERE state = 1 AND state > 0 ORDER BY ended_at DESC',
  );
  const within = (selection: Selection, from: number, to: number) => {
    const { sql, values } = toCondition(selection);
    return { where: `WHERE d.key BETWEEN ? AND ? AND ${sql}`, values: [from, to, ...values] };
  };
  return {
    span(): [number, number] {
      const row = span.get();
      return row ? [numberOrNull(row, 'first') ?? 0, numberOrNull(row, 'last') ?? -1] : [0, -1];
    },
    list(selection: Selection, limit: number, from: number, to: number) {
      const { where, values } = within(selection, from, to);
      return db
        .prepare(`${DELIVERY} ${where} ORDER BY d.key DESC LIMIT ?`)
        .all(...values, limit)
        .map(toDelivery);
    },
    count(selection: Selection, from: number, to: number) {
      const { where, values } = within(selection, from, to);
      const counts = { waiting: 0, delivered: 0, dead: 0, dropped: 0 };
      for (const row of db
        .prepare(`SELECT d.state, count(*) AS n FROM deliveries d ${where} GROUP BY d.state`)
        .all(...values)) {
        const state = STATES[number(row, 'state')];
        if (state) counts[state] += number(row, 'n');
      }
      return counts;
    },
    keys(selection: Selection, from: number, to: number) {
      const { where, values } = within(selection, from, to);
      return db
        .prepare(`SELECT d.key FROM deliveries d ${where} ORDER BY d.key`)
        .all(...values)
        .map((row) => number(row, 'key'));
    },
    deliveredLimit(bytes: number) {
      let sum = 0;
      for (const row of newest.iterate()) {
        sum += number(row, 'bytes');
        if (sum > bytes) return number(row, 'ended_at') + 1;
      }
      return 0;
    },
  };
}
