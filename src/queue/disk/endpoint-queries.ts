import type { DatabaseSync } from 'node:sqlite';
import type { AttemptAnswer, AttemptWindow } from '../history.ts';
import { number, numberOrNull, type SqlRow, text, textOrNull } from './schema.ts';

/** What the reader answers about single endpoints. */
export interface EndpointQueries {
  /** Those of these URLs of an account that have something waiting, and when the oldest of it was accepted. */
  oldestOf(account: string, urls: readonly string[]): [url: string, acceptedAt: number][];
  /** Of what waits for an endpoint, that which is due after this time and number, in this order. */
  notDue(
    account: string,
    url: string,
    after: readonly [dueAt: number, key: number],
    limit: number,
  ): [dueAt: number, key: number][];
  /** Attempts of its deliveries of these numbers, the newest deliveries first. */
  attemptsAt(account: string, url: string, limit: number, from: number, to: number): AttemptWindow;
}

/** Characters of an answer by which it is told from others. */
const LONGEST_START = 120;
/** Answers told apart in one window; what comes beyond that has no text. */
const MOST_ANSWERS = 500;

/** Questions over the reader's connection. */
export function createEndpointQueries(db: DatabaseSync): EndpointQueries {
  // The smallest number is the oldest, and the index has it without a look at the rows.
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
    // A POST that several deliveries shared stands with each of them.
    const batch = textOrNull(row, 'batch');
    if (batch !== null && shared.has(batch)) continue;
    if (batch !== null) shared.add(batch);
    at.push(number(row, 'at'));
    ms.push(number(row, 'duration'));
    answer.push(numberOf(row, known, answers));
  }
  return { count, at: Float64Array.from(at), ms: Float64Array.from(ms), answer: Int32Array.from(answer), answers };
}

/** The number of the answer in `answers`, which gets it when it is new. */
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
 * The start of an answer, with `#` for every word that has a digit in it: numbers, ids and times differ where the cause
 * is the same. Twice as much is read, so that a longer id does not bring another end.
 */
function startOf(answer: string): string {
  const start = answer.slice(0, 2 * LONGEST_START).replace(/[\w-]+/g, (word) => (/\d/.test(word) ? '#' : word));
  return start.slice(0, LONGEST_START).toWellFormed();
}
