import type { DatabaseSync } from 'node:sqlite';
import type { AttemptAnswer, AttemptWindow } from '../history.ts';
import { number, numberOrNull, type SqlRow, text, textOrNull } from './schema.ts';

/** The queries about single endpoints. */
export interface EndpointQueries {
  /** Returns when the oldest waiting delivery to each of these URLs was accepted; URLs without one are left out. */
  oldestOf(account: string, urls: readonly string[]): [url: string, acceptedAt: number][];
  /** Returns waiting deliveries that are due after this time, in the order of due time and key. */
  notDue(
    account: string,
    url: string,
    after: readonly [dueAt: number, key: number],
    limit: number,
  ): [dueAt: number, key: number][];
  /** Returns the attempts of deliveries with keys in this range, newest deliveries first. */
  attemptsAt(account: string, url: string, limit: number, from: number, to: number): AttemptWindow;
}

/** Characters of an answer that are compared. */
const LONGEST_START = 120;
/** Distinct texts in one window; further answers are grouped without their text. */
const MOST_ANSWERS = 500;

/** Creates the queries over the reader's connection. */
export function createEndpointQueries(db: DatabaseSync): EndpointQueries {
  // The smallest key is the oldest delivery, and the index contains it: no rows are read.
  const oldest = db.prepare(`SELECT o.url, d.created_at FROM (
    SELECT url, (SELECT min(key) FROM deliveries INDEXED BY deliveries_due WHERE endpoint = e.key AND state = 0) AS first
    FROM json_each(?) u JOIN endpoints e ON e.account = ? AND e.url = u.value) o JOIN deliveries d ON d.key = o.first`);
  const notDue = db.prepare(`SELECT due_at, key FROM deliveries INDEXED BY deliveries_due
    WHERE endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?) AND state = 0 AND (due_at, key) > (?, ?)
    ORDER BY due_at, key LIMIT ?`);
  const attempts = db.prepare(`SELECT d.id, a.at, a.duration, a.status, a.error, a.answer, a.batch
    FROM deliveries d JOIN attempts a ON a.delivery = d.key
    WHERE d.key BETWEEN ? AND ? AND d.endpoint = (SELECT key FROM endpoints WHERE account = ? AND url = ?)
    ORDER BY d.key DESC LIMIT ?`);
  return {
    oldestOf: (account, urls) =>
      oldest.all(JSON.stringify(urls), account).map((row) => [text(row, 'url'), number(row, 'created_at')]),
    notDue: (account, url, [dueAt, key], limit) =>
      notDue.all(account, url, dueAt, key, limit).map((row) => [number(row, 'due_at'), number(row, 'key')]),
    attemptsAt: (account, url, limit, from, to) => toWindow(attempts.iterate(from, to, account, url, limit)),
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
  const line = answers.length < MOST_ANSWERS ? startOf(text(row, 'answer')) : '';
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
