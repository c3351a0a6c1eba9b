import type { DatabaseSync, SQLInputValue } from 'node:sqlite';
import type { SqlRow } from '../../base/sqlite.ts';
import { tableOf } from '../../base/tables.ts';
import { type DeliveryName, kindsOf, type Selection } from '../delivery.ts';
import { BULK_ACTIONS, type BulkAction, DELIVERY_STATES } from '../states.ts';
import { BEHIND, DELIVERY_ROW, kindCode, number, numberOrNull, stateCode, text, toDelivery } from './schema.ts';

// Selections of deliveries, in windows of keys `from` to `to`, so that each query is short.

/** Some deliveries in the order of their keys, and the key at which to continue. */
export interface Page<T> {
  readonly rows: readonly T[];
  readonly next: number;
}

const NAME = 'SELECT d.key, d.id, e.account, e.url FROM deliveries d JOIN endpoints e ON e.key = d.endpoint';

const toName = (row: SqlRow): DeliveryName => ({
  id: text(row, 'id'),
  account: text(row, 'account'),
  url: text(row, 'url'),
});

/** Creates the queries on the reader's connection. */
export function createSelectionQueries(db: DatabaseSync) {
  const span = db.prepare(
    `SELECT min(key) AS first, max(key) AS last
    FROM (SELECT min(key) AS key FROM deliveries UNION ALL SELECT max(key) FROM deliveries)`,
  );
  const newest = db.prepare(
    `SELECT ended_at, bytes FROM deliveries INDEXED BY deliveries_ended WHERE state = 1 AND state > 0
    ORDER BY ended_at DESC`,
  );
  const within = (selection: Selection, from: number, to: number) => {
    const { sql, values } = toCondition(selection);
    return { where: `WHERE d.key BETWEEN ? AND ? AND ${sql}`, values: [from, to, ...values] };
  };
  const pageOf = <T>(
    columns: string,
    toRow: (row: SqlRow) => T,
    { where, values }: ReturnType<typeof within>,
    limit: number,
    to: number,
  ): Page<T> => {
    const rows = db.prepare(`${columns} ${where} ORDER BY d.key LIMIT ?`).all(...values, limit);
    const last = rows.at(-1);
    return { rows: rows.map(toRow), next: (last && rows.length === limit ? number(last, 'key') : to) + 1 };
  };
  return {
    /** Returns the first and last key of deliveries. */
    span(): [number, number] {
      const row = span.get();
      return row ? [numberOrNull(row, 'first') ?? 0, numberOrNull(row, 'last') ?? -1] : [0, -1];
    },
    list(selection: Selection, limit: number, from: number, to: number) {
      const { where, values } = within(selection, from, to);
      return db
        .prepare(`${DELIVERY_ROW} ${where} ORDER BY d.key DESC LIMIT ?`)
        .all(...values, limit)
        .map(toDelivery);
    },
    page: (selection: Selection, limit: number, from: number, to: number) =>
      pageOf(DELIVERY_ROW, toDelivery, within(selection, from, to), limit, to),
    names: (selection: Selection, limit: number, from: number, to: number) =>
      pageOf(NAME, toName, within(selection, from, to), limit, to),
    count(selection: Selection, from: number, to: number) {
      const { where, values } = within(selection, from, to);
      const counts = tableOf(DELIVERY_STATES, () => 0);
      for (const row of db
        .prepare(`SELECT d.state, count(*) AS n FROM deliveries d ${where} GROUP BY d.state`)
        .all(...values)) {
        const state = DELIVERY_STATES[number(row, 'state')];
        if (state) counts[state] += number(row, 'n');
      }
      return counts;
    },
    keys(selection: Selection, from: number, to: number): number[] {
      const { where, values } = within(selection, from, to);
      return db
        .prepare(`SELECT d.key FROM deliveries d ${where} ORDER BY d.key`)
        .all(...values)
        .map((row) => number(row, 'key'));
    },
    /** Returns the time before which delivered ones must be deleted to keep at most `bytes`; 0 if none must. */
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

/** A condition on `deliveries d` with the values of its parameters. */
interface Condition {
  readonly sql: string;
  readonly values: readonly SQLInputValue[];
}

/**
 * The conditions of an action besides the states, so that the count matches the change. A delivery behind another is
 * due when that has ended. A pulled one (its URL is a name and not an address) must not be leased again before its
 * lease ends. Mail that a route without a URL discarded has no destination.
 */
const CHANGEABLE: Readonly<Record<BulkAction, string>> = {
  retry: `d.due_at < ${BEHIND} AND NOT (d.kind IN (${kindsOf('route').map(kindCode).join(', ')}) AND
    EXISTS (SELECT 1 FROM endpoints WHERE key = d.endpoint AND url NOT LIKE '%://%'))`,
  drop: '1',
  replay: `EXISTS (SELECT 1 FROM endpoints WHERE key = d.endpoint AND url <> '')`,
};

/** The route of a delivery, without the number of its URL. */
const ROUTE = `substr(d.route, 1, instr(d.route || '+', '+') - 1)`;

/** Converts a selection to SQL; all external values are bound. */
function toCondition(selection: Selection): Condition {
  const parts: string[] = [];
  const values: SQLInputValue[] = [];
  const add = (sql: string, ...bound: readonly SQLInputValue[]) => {
    parts.push(sql);
    values.push(...bound);
  };
  // A list is bound as one JSON value, so its length is not limited by SQLite's number of parameters.
  const inList = (sql: string, list: readonly (string | number)[] | undefined) => {
    if (list !== undefined) add(`${sql} IN (SELECT value FROM json_each(?))`, JSON.stringify(list));
  };
  inList('d.id', selection.ids);
  inList(ROUTE, selection.routeIds);
  inList('d.route', selection.targetId === undefined ? undefined : [selection.targetId]);
  inList('d.state', selection.states?.map(stateCode));
  inList('d.kind', selection.kinds?.map(kindCode));
  if (selection.account !== undefined)
    add('d.endpoint IN (SELECT key FROM endpoints WHERE account = ?)', selection.account);
  if (selection.url !== undefined) add('d.endpoint IN (SELECT key FROM endpoints WHERE url = ?)', selection.url);
  if (selection.webhook !== undefined)
    add(
      'd.message IN (SELECT b.message FROM batches b JOIN hooks h ON h.key = b.hook WHERE h.id = ?)',
      selection.webhook,
    );
  if (selection.changeable !== undefined) {
    inList('d.state', BULK_ACTIONS[selection.changeable].states.map(stateCode));
    add(CHANGEABLE[selection.changeable]);
  }
  if (selection.recipient !== undefined) add('d.recipient = ?', selection.recipient);
  if (selection.from !== undefined) add('d.created_at >= ?', selection.from);
  if (selection.to !== undefined) add('d.created_at < ?', selection.to);
  return { sql: parts.length === 0 ? '1' : parts.join(' AND '), values };
}
