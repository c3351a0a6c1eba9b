import { DAY_MS, HOUR_MS } from '../base/clock.ts';
import type { EndpointName } from './delivery.ts';
import type { Reader } from './disk/reader.ts';

// Statistics of the attempts at one endpoint, from those that the queue keeps.

/** A group of similar answers of an endpoint, or of failures to get one. */
export interface AttemptAnswer {
  /** Null without an answer. */
  readonly status: number | null;
  readonly error: string | null;
  /** The start of the answer, with `#` for each word that contains a digit. */
  readonly text: string;
  /** The id of a delivery with this answer. */
  readonly example: string;
}

/** The attempts of a range of deliveries: when each began, how long it took, and the index of its answer. */
export interface AttemptWindow {
  /** The number of rows; several deliveries may share a POST. */
  readonly count: number;
  readonly at: Float64Array;
  readonly ms: Float64Array;
  readonly answer: Int32Array;
  readonly answers: readonly AttemptAnswer[];
}

/** The attempts of a period. A POST that several deliveries share counts once. */
export type AttemptFigures = Readonly<ReturnType<typeof toFigures>>;

export type EndpointHistory = Readonly<Awaited<ReturnType<typeof readHistory>>>;

/** The limits of a scan: attempts of the endpoint, and deliveries of the host among which they are searched. */
const MAX_ATTEMPTS = 10_000;
const MAX_DELIVERIES = 1_000_000;
/** Deliveries searched in one query: a few milliseconds, or some tens if they are not in the page cache. */
const WINDOW = 5000;

/** The latest attempts, and groups of answers, in the history of an endpoint. */
export const MAX_RECENT = 100;
export const MAX_ANSWERS = 50;

/** Attempts as columns, because there may be ten thousand. */
interface Attempts {
  readonly at: number[];
  readonly ms: number[];
  readonly answer: AttemptAnswer[];
}

/** Reads the attempts of the newest deliveries to an endpoint, in steps between which other queries can run. */
export async function readHistory({ read }: Pick<Reader, 'read'>, { account, url }: EndpointName, now: number) {
  const [first, last] = await read('span');
  const end = Math.max(first, last - MAX_DELIVERIES + 1);
  const attempts: Attempts = { at: [], ms: [], answer: [] };
  let left = MAX_ATTEMPTS;
  for (let to = last; to >= end && left > 0; to -= WINDOW) {
    const window = await read('attemptsAt', account, url, left, Math.max(end, to - WINDOW + 1), to);
    left -= window.count;
    add(attempts, window);
  }
  return {
    hour: toFigures(attempts, now - HOUR_MS),
    day: toFigures(attempts, now - DAY_MS),
    /** The last attempts, oldest first. */
    recent: toRecent(attempts),
    answers: toAnswers(attempts),
    /** Whether there may be attempts that were not read. */
    sampled: left <= 0 || end > first,
  };
}

function add(attempts: Attempts, { at, ms, answer, answers }: AttemptWindow): void {
  for (const [i, number] of answer.entries()) {
    const said = answers[number];
    if (!said) continue;
    attempts.at.push(at[i] ?? 0);
    attempts.ms.push(ms[i] ?? 0);
    attempts.answer.push(said);
  }
}

function toFigures({ at, ms, answer }: Attempts, since: number) {
  const isSince = (_: unknown, i: number) => (at[i] ?? 0) >= since;
  const times = Float64Array.from(ms.filter(isSince)).sort();
  const ok = answer.filter(isSince).filter(isSuccess).length;
  return {
    attempts: times.length,
    /** Answered with 2xx. */
    ok,
    /** The median and the 95th percentile of their durations; null if there were none. */
    p50: rank(times, 0.5),
    p95: rank(times, 0.95),
  };
}

/** The percentile by nearest rank. */
function rank(sorted: Float64Array, share: number): number | null {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null;
}

function toRecent({ at, ms, answer }: Attempts) {
  const from = Float64Array.from(at).sort().at(-MAX_RECENT) ?? 0;
  return at
    .flatMap((began, i) => {
      const { status = null, error = null } = answer[i] ?? {};
      return began < from ? [] : [{ at: began, ms: ms[i] ?? 0, status, error }];
    })
    .sort((a, b) => a.at - b.at)
    .slice(-MAX_RECENT);
}

/** Failures before successes, each by frequency. */
function toAnswers({ at, answer }: Attempts) {
  // Each window has its own entry for the same answer.
  const merged = new Map<string, AttemptAnswer & { readonly count: number; readonly lastAt: number }>();
  for (const [i, said] of answer.entries()) {
    const key = `${said.status}\n${said.error}\n${said.text}`;
    const known = merged.get(key) ?? { ...said, count: 0, lastAt: 0 };
    const lastAt = at[i] ?? 0;
    const newer = lastAt > known.lastAt ? { ...said, lastAt } : known;
    merged.set(key, { ...newer, count: known.count + 1 });
  }
  return [...merged.values()]
    .sort((a, b) => Number(isSuccess(a)) - Number(isSuccess(b)) || b.count - a.count)
    .slice(0, MAX_ANSWERS);
}

function isSuccess({ status }: Pick<AttemptAnswer, 'status'>): boolean {
  return status !== null && status >= 200 && status < 300;
}
