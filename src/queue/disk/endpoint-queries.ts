import type { DatabaseSync } from 'node:sqlite';
import type { SqlRow } from '../../base/sqlite.ts';
import type { AttemptAnswer, AttemptWindow } from '../history.ts';
import { BEHIND, number, numberOrNull, text, textOrNull } from './schema.ts';

/** A position in the order in which deliveries began to wait. */
type SincePosition = readonly [budgetFrom: number, key: number];

/** Characters of an answer that are compared. */
const LONGEST_START = 120;
/** Distinct texts in one window; further answers are grouped without their text. */
const MAX_ANSWERS = 500;

/** Creates the queries over the reader's connection. */
export function createEndpointQueries(db: DatabaseSync) {
  // The smallest key is the oldest delivery, and the index contains it: no rows are read.
  const oldest = db.prepare(`SELECT o.url, d.created_at FROM (
    SELECT url,
      (SELECT min(key) FROM deliveries INDEXED BY deliveries_due WHERE endpoint = e.key AND state = 0) AS first
    FROM json_each(?) u JOIN endpoints e ON e.account = ? AND e.url = u.value) o JOIN deliveries d ON d.key = o.first`);
  const notDue = db.prepare(`SELECT due_at, key FROM deliveries INDEXED BY deliveries_due
    WHERE endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?) AND state = 0 AND (due_at, key) > (?, ?)
    AND due_at < ${BEHIND}
    ORDER BY due_at, key LIMIT ?`);
  // A message has the key of its first delivery.
  const held =
    db.prepare(`SELECT e.account, sum(d.bytes + ifnull(octet_length(m.envelope), 0)) AS bytes FROM deliveries d
    JOIN endpoints e ON e.key = d.endpoint LEFT JOIN messages m ON m.key = d.key
    WHERE d.key BETWEEN ? AND ? AND d.state <> 1 GROUP BY e.account`);
  const attempts = db.prepare(`SELECT d.id, a.at, a.duration, a.status, a.error, a.answer, a.batch
    FROM deliveries d JOIN attempts a ON a.delivery = d.key
    WHERE d.key BETWEEN ? AND ? AND d.endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?)
    ORDER BY d.key DESC LIMIT ?`);
  const AFTER = 'FROM deliveries INDEXED BY deliveries_since WHERE state = 0 AND (budget_from, key) > (?, ?)';
  const positionAfter = db.prepare(`SELECT budget_from, key ${AFTER} ORDER BY budget_from, key LIMIT 1 OFFSET ?`);
  return {
    /**
     * Counts up to `limit` waiting deliveries that began to wait after this position, by endpoint and age: in the first
     * of `since` (milliseconds since 1970, the latest first) that is not after the time at which they began to wait.
     */
    waitingSince(since: readonly number[], [from, key]: SincePosition, limit: number) {
      const last = positionAfter.get(from, key, limit - 1);
      const next: SincePosition | null = last ? [number(last, 'budget_from'), number(last, 'key')] : null;
      const age = `CASE ${since.map((_, i) => `WHEN budget_from >= ? THEN ${i} `).join('')}ELSE ${since.length} END`;
      const counts = db
        .prepare(
          `SELECT e.account, e.url, w.age, w.n, w.parked, w.oldest FROM (
            SELECT endpoint, ${age} AS age, count(*) AS n, sum(parked) AS parked, min(budget_from) AS oldest
            ${AFTER} AND (budget_from, key) <= (?, ?) GROUP BY 1, 2) w JOIN endpoints e ON e.key = w.endpoint`,
        )
        .all(...since, from, key, ...(next ?? [Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER]));
      return {
        counts: counts.map((row) => ({
          account: text(row, 'account'),
          url: text(row, 'url'),
          /** The index in `since`; as many as there are: before all of them. */
          age: number(row, 'age'),
          count: number(row, 'n'),
          parked: number(row, 'parked'),
          oldest: number(row, 'oldest'),
        })),
        /** The position of the last one; null if there are no more. */
        next,
      };
    },
    /** Sums up the bytes of deliveries in this range that were not delivered, with their envelopes. */
    held: (from: number, to: number): { readonly account: string; readonly bytes: number }[] =>
      held.all(from, to).map((row) => ({ account: text(row, 'account'), bytes: number(row, 'bytes') })),
    oldestOf: (account: string, urls: readonly string[]): [url: string, acceptedAt: number][] =>
      oldest.all(JSON.stringify(urls), account).map((row) => [text(row, 'url'), number(row, 'created_at')]),
    /** Returns waiting deliveries that are due after this time, in the order of due time and key. */
    notDue: (
      account: string,
      url: string,
      [dueAt, key]: readonly [dueAt: number, key: number],
      limit: number,
    ): [dueAt: number, key: number][] =>
      notDue.all(account, url, dueAt, key, limit).map((row) => [number(row, 'due_at'), number(row, 'key')]),
    /** Returns the attempts of deliveries with keys in this range, newest deliveries first. */
    attemptsAt: (account: string, url: string, limit: number, from: number, to: number) =>
      toWindow(attempts.iterate(from, to, account, url, limit)),
  };
}

function toWindow(rows: Iterable<SqlRow>): AttemptWindow {
  const answers: AttemptAnswer[] = [];
  const known = new Map<string, number>();
  const shared = new Set<string>();
  const [at, ms, answer]: [number[], number[], number[]] = [[], [], []];
  let count = 0;
  for (const row of rows) {
    count++;
    // A shared POST is recorded with each of its deliveries.
    const batch = textOrNull(row, 'batch');
    if (batch !== null && shared.has(batch)) continue;
    if (batch !== null) shared.add(batch);
    at.push(number(row, 'at'));
    ms.push(number(row, 'duration'));
    answer.push(numberOf(row, known, answers));
  }
  return { count, at: Float64Array.from(at), ms: Float64Array.from(ms), answer: Int32Array.from(answer), answers };
}

/** Returns the index of the answer in `answers`, and adds it if it is new. */
function numberOf(row: SqlRow, known: Map<string, number>, answers: AttemptAnswer[]): number {
  const [status, error] = [numberOrNull(row, 'status'), textOrNull(row, 'error')];
  const line = answers.length < MAX_ANSWERS ? startOf(text(row, 'answer')) : '';
  const key = `${status}\n${error}\n${line}`;
  const found = known.get(key);
  if (found !== undefined) return found;
  known.set(key, answers.length);
  answers.push({ status, error, text: line, example: text(row, 'id') });
  return answers.length - 1;
}

/**
 * The start of an answer, with `#` for each word that contains a digit: numbers, ids and times differ even if the cause
 * is the same. Cuts after the replacement, so that the length of an id does not change the end.
 */
function startOf(answer: string): string {
  const start = answer.slice(0, 2 * LONGEST_START).replace(/[\w-]+/g, (word) => (/\d/.test(word) ? '#' : word));
  return start.slice(0, LONGEST_START).toWellFormed();
}
