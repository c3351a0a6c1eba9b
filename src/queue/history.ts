import type { EndpointName } from './delivery.ts';
import type { Reader } from './disk/reader.ts';

// What became of the attempts at one endpoint, from those that the queue keeps.

/** What an endpoint answered, or why it did not: one entry for all answers that look alike. */
export interface AttemptAnswer {
  /** Null when no answer came. */
  readonly status: number | null;
  readonly error: string | null;
  /** How the answer began, with `#` for every word that has a digit in it. */
  readonly text: string;
  /** A delivery that got it. */
  readonly example: string;
}

/** Attempts of a range of deliveries: when each began, how long it took, and the number of its answer. */
export interface AttemptWindow {
  /** How many there were, before those that shared a POST were taken for one. */
  readonly count: number;
  readonly at: Float64Array;
  readonly ms: Float64Array;
  readonly answer: Int32Array;
  readonly answers: readonly AttemptAnswer[];
}

/** Attempts of a time. A POST that several deliveries shared is one of them. */
export interface AttemptFigures {
  readonly attempts: number;
  /** Answered with 2xx. */
  readonly ok: number;
  /** The time that half of them took at most, and 95 in a hundred; null when there were none. */
  readonly p50: number | null;
  readonly p95: number | null;
}

export interface EndpointHistory {
  readonly hour: AttemptFigures;
  readonly day: AttemptFigures;
  /** The last attempts, the oldest first. */
  readonly strip: readonly (Pick<AttemptAnswer, 'status' | 'error'> & { readonly at: number; readonly ms: number })[];
  /** Failures before successes, and what came most often first. */
  readonly answers: readonly (AttemptAnswer & { readonly count: number; readonly lastAt: number })[];
  /** There are more attempts than were looked at. */
  readonly sampled: boolean;
}

/** Attempts that are looked at, and the deliveries of the host among which they are looked for. */
const MOST_ATTEMPTS = 10_000;
const MOST_DELIVERIES = 1_000_000;
/** Deliveries looked at in one question: some milliseconds. */
const WINDOW = 20_000;

const STRIP = 100;
const MOST_ANSWERS = 50;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

interface Attempt {
  readonly at: number;
  readonly ms: number;
  readonly answer: AttemptAnswer;
}

/** Reads the attempts of the newest deliveries for an endpoint, in steps that others can come between. */
export async function readHistory(
  { read }: Pick<Reader, 'read'>,
  { account, url }: EndpointName,
  now: number,
): Promise<EndpointHistory> {
  const [first, last] = await read('span');
  const end = Math.max(first, last - MOST_DELIVERIES + 1);
  const attempts: Attempt[] = [];
  let left = MOST_ATTEMPTS;
  let to = last;
  for (; to >= end && left > 0; to -= WINDOW) {
    const window = await read('attemptsAt', account, url, left, Math.max(end, to - WINDOW + 1), to);
    left -= window.count;
    attempts.push(...toAttempts(window));
  }
  attempts.sort((a, b) => b.at - a.at);
  return { ...toHistory(attempts, now), sampled: left <= 0 || end > first };
}

function toAttempts({ at, ms, answer, answers }: AttemptWindow): Attempt[] {
  const found: Attempt[] = [];
  for (const [i, began] of at.entries()) {
    const said = answers[answer[i] ?? -1];
    if (said) found.push({ at: began, ms: ms[i] ?? 0, answer: said });
  }
  return found;
}

/** The newest first. */
function toHistory(attempts: readonly Attempt[], now: number): Omit<EndpointHistory, 'sampled'> {
  return {
    hour: toFigures(attempts, now - HOUR),
    day: toFigures(attempts, now - DAY),
    strip: attempts
      .slice(0, STRIP)
      .reverse()
      .map(({ at, ms, answer: { status, error } }) => ({ at, ms, status, error })),
    answers: toAnswers(attempts),
  };
}

function toFigures(attempts: readonly Attempt[], since: number): AttemptFigures {
  const end = attempts.findIndex(({ at }) => at < since);
  const chosen = end < 0 ? attempts : attempts.slice(0, end);
  const times = Float64Array.from(chosen, ({ ms }) => ms).sort();
  const ok = chosen.filter(({ answer }) => isSuccess(answer)).length;
  return { attempts: chosen.length, ok, p50: rank(times, 0.5), p95: rank(times, 0.95) };
}

/** The nearest rank: the smallest time that so large a share did not exceed. */
function rank(sorted: Float64Array, share: number): number | null {
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? null;
}

function toAnswers(attempts: readonly Attempt[]): EndpointHistory['answers'] {
  const counted = new Map<string, AttemptAnswer & { count: number; readonly lastAt: number }>();
  for (const { at, answer } of attempts) {
    const key = `${answer.status}\n${answer.error}\n${answer.text}`;
    const known = counted.get(key);
    if (known) known.count++;
    else counted.set(key, { ...answer, count: 1, lastAt: at });
  }
  return [...counted.values()]
    .sort((a, b) => Number(isSuccess(a)) - Number(isSuccess(b)) || b.count - a.count)
    .slice(0, MOST_ANSWERS);
}

function isSuccess({ status }: Pick<AttemptAnswer, 'status'>): boolean {
  return status !== null && status >= 200 && status < 300;
}
