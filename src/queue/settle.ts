import { HOUR_MS, MINUTE_MS } from '../base/clock.ts';
import type { AttemptRecord, LongFailure, QueuedDelivery, Settlement } from './delivery.ts';
import type { DetailText } from './detail.ts';
import type { LeaseEnd } from './disk/leases.ts';
import type { DeliveryState } from './states.ts';

// The consequences of an attempt for its delivery and its endpoint: over HTTP (`settle`), over SMTP (`settleMail`), and
// by a consumer that pulled it (`settleLease`).

/** Why there was no HTTP response. Users see these texts; they never reveal internals. */
export type AttemptError =
  | 'forbidden address'
  | 'host not found'
  | 'DNS failure'
  | 'connection refused'
  | 'connection failed'
  | 'TLS failure'
  | 'timeout'
  | 'connection reset'
  | 'malformed answer';

/** The result of an HTTP attempt. */
export type AttemptResult =
  | {
      readonly kind: 'answered';
      readonly status: number;
      readonly retryAfter: string | null;
      readonly answer: string;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    }
  /** `connected`: whether a connection was made before it failed (for the breaker). */
  | {
      readonly kind: 'unanswered';
      readonly error: AttemptError;
      /** The details, as text: `the certificate of the server has expired`. */
      readonly cause?: string | undefined;
      readonly connected: boolean;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    };

/** The error of an attempt as text, for its record, the log and API answers. */
export function errorOf({ error, cause }: Extract<AttemptResult, { readonly kind: 'unanswered' }>): string {
  return cause === undefined ? error : `${error}: ${cause}`;
}

/** The result of an SMTP attempt: a server's reply to the message, or that no server was reached. */
export type MailAttempt =
  /** `code` is that of the decisive reply, `diag` its text in one line with its enhanced status code. */
  | {
      readonly kind: 'answered';
      readonly code: number;
      readonly diag: string;
      readonly host: string;
      readonly address: string;
      readonly source: string | null;
      readonly tls: boolean;
      /** It was a relay, which may give the message an id of its own. */
      readonly relayed?: boolean;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    }
  /**
   * No server could be reached, or all disconnected before they decided. `permanent`: the domain accepts no mail (it
   * does not exist, or has a null MX).
   */
  | {
      readonly kind: 'unanswered';
      readonly reason: string;
      readonly permanent: boolean;
      /** A server was given the message, and disconnected before it replied. */
      readonly given?: boolean;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    };

/** The result of an attempt for metrics and the log, for both protocols. */
export type AttemptSummary =
  | { readonly kind: 'answered'; readonly status: number; readonly durationMs: number }
  | { readonly kind: 'unanswered'; readonly error: string; readonly durationMs: number };

const SECOND = 1000;

// The retry delays after the first attempt, the second, and so on; the last one repeats. Jitter adds up to a fifth, so
// attempts are at most half an hour apart.
const GAPS = [5 * SECOND, 30 * SECOND, 5 * MINUTE_MS, 15 * MINUTE_MS, 25 * MINUTE_MS];
const JITTER = 0.2;
// A delivery that fails while others to its endpoint pass waits longer: most likely the message is the cause.
const FIRST_PARKED_GAP = HOUR_MS;
const PARKED_GAP = 6 * HOUR_MS;
// Failed attempts after which a delivery may be parked: a deployment is over by then, and one bad response proves
// nothing.
const PARK_AFTER = 4;
// The maximum for Retry-After; a longer one is cut to this.
const LONGEST_RETRY_AFTER = 6 * HOUR_MS;

interface Budget {
  /** How long the delivery has been tried, in milliseconds of running time (base/running-time.ts). */
  readonly age: number;
  /** The age at which it is given up. */
  readonly limit: number;
  /** False while the clock is not trusted, and shortly after a start: nothing is given up then. */
  readonly mayEnd: boolean;
}

/** A delivery that others of its sequence wait behind. */
interface OrderFacts {
  /** Since when it has failed, milliseconds since 1970; undefined: it has not. */
  readonly since: number | undefined;
  /** Milliseconds for which it may fail before another is tried. */
  readonly patience: number;
  /** Whether its endpoint accepts other deliveries. */
  readonly isUp: boolean;
}

/** When an attempt ended. */
interface Occasion {
  /** Milliseconds since 1970. */
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  readonly budget: Budget;
}

export interface AttemptFacts extends Occasion {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts' | 'parked'>;
  readonly result: AttemptResult;
  /** Whether other deliveries to the same endpoint passed recently. */
  readonly othersPass: boolean;
  /** Set if the delivery is in a sequence. */
  readonly order?: OrderFacts | undefined;
  /** The status by which the receiver ends the delivery; null or absent: none. */
  readonly stop?: number | null;
  /** The id of the POST if it was shared: others may have caused its failure, so it never ends a delivery. */
  readonly batch?: string | undefined;
}

/** The evidence of an attempt about the endpoint. `present`: it is up, and its reply was about one recipient. */
export interface Lesson {
  readonly kind: 'passed' | 'failed' | 'unanswered' | 'gone' | 'present';
  /** The failure is about the message, not the endpoint. */
  readonly aside: boolean;
  /** The endpoint is at its limit (no answer in time, 429, 502, 503, 504): send fewer at a time. */
  readonly strained: boolean;
  /** Milliseconds for which it asked for a pause (Retry-After); 0 if it did not. */
  readonly leaveAlone: number;
  /** The message may be the cause of the failure: the endpoint had it, or was getting it. */
  readonly suspect?: boolean;
}

export interface Settled {
  readonly outcome: 'delivered' | 'deferred' | 'failed';
  readonly settlement: Settlement;
  /** Milliseconds until the next attempt; 0 if there is none. */
  readonly wait: number;
  readonly lesson: Lesson;
}

/**
 * Returns the consequences of an HTTP attempt for its delivery and its endpoint. Any 2xx is success, `stop` ends
 * the delivery, everything else is retried until the time budget is used up.
 */
export function settle(attempted: AttemptFacts): Settled {
  const { delivery, result, now, batch } = attempted;
  const brief = isSuccess(result) && delivery.attempts === 0;
  const attempt = {
    ...toRecord(result, now),
    ...(batch !== undefined && { batch }),
    ...(result.detail && { detail: result.detail(brief) }),
  };
  const base = { deliveryId: delivery.id, attempt, at: now, parked: delivery.parked };
  if (isSuccess(result)) {
    return { outcome: 'delivered', settlement: { ...base, state: 'delivered', dueAt: now }, wait: 0, lesson: passed };
  }
  const asked =
    result.kind === 'answered' ? Math.min(readRetryAfter(result.retryAfter, now) ?? 0, LONGEST_RETRY_AFTER) : 0;
  const parked = delivery.parked || shouldPark(attempted);
  const lesson = lessonOf(result, parked, asked);
  const { age, limit, mayEnd } = attempted.budget;
  if (result.kind === 'answered' && result.status === attempted.stop && batch === undefined) {
    return { outcome: 'failed', settlement: { ...base, state: 'dead', dueAt: now }, wait: 0, lesson: present };
  }
  if (mayEnd && age >= limit && batch === undefined) {
    return { outcome: 'failed', settlement: { ...base, parked, state: 'dead', dueAt: now }, wait: 0, lesson };
  }
  const failure = attempted.order && failureOf(attempted.order, lesson.suspect === true, now);
  const parkedGap = delivery.parked ? PARKED_GAP : FIRST_PARKED_GAP;
  const usual = (parked ? parkedGap : gap(delivery.attempts + 1)) * (1 + JITTER * attempted.jitter);
  const own = soonEnough(usual, failure, attempted.order, now);
  // The last attempt is made at the end of the time budget, not hours later.
  const rest = Math.max(limit - age, own);
  const wait = Math.round(Math.min(Math.max(own, asked), rest));
  const next = { ...base, parked, state: 'waiting', dueAt: now + wait } as const;
  return { outcome: 'deferred', settlement: failure ? { ...next, failure } : next, wait, lesson };
}

/**
 * The failing time of a delivery that may be the cause itself. Outages of its endpoint do not count, so that the order
 * is kept during them. After the time is over, it begins again.
 */
function failureOf({ since = Number.POSITIVE_INFINITY, patience, isUp }: OrderFacts, isSuspect: boolean, now: number) {
  return isUp && isSuspect ? longFailure(since, patience, now) : { since: now, isOver: false };
}

/** The failing time of a delivery that has just failed. Setting the clock back does not extend it. */
export function longFailure(since: number, patience: number, now: number): LongFailure {
  const isOver = now - since >= patience;
  return { since: isOver ? now : Math.min(since, now), isOver };
}

/** Shortens the wait to the end of the patience, because the next of the sequence is tried only after that failure. */
function soonEnough(
  gap: number,
  failure: LongFailure | undefined,
  order: Pick<OrderFacts, 'patience'> | undefined,
  now: number,
): number {
  return failure && order ? Math.min(gap, failure.since + order.patience - now) : gap;
}

/** An SMTP attempt, for `settleMail`. */
interface MailAttempted extends Occasion {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts'>;
  readonly attempt: MailAttempt;
}

/**
 * Returns the consequences of an SMTP attempt: 2xx is delivered, 5xx fails at once, everything else is retried until
 * the time budget is used up (RFC 5321 section 4.5.4.1: four to five days).
 */
export function settleMail({ delivery, attempt, now, jitter, budget }: MailAttempted): Settled {
  const base = { deliveryId: delivery.id, attempt: toMailRecord(attempt, now), at: now, parked: false };
  const lesson = lessonOfMail(attempt);
  const end = (outcome: 'delivered' | 'failed', state: 'delivered' | 'dead'): Settled => ({
    outcome,
    settlement: { ...base, state, dueAt: now },
    wait: 0,
    lesson,
  });
  if (attempt.kind === 'answered' && attempt.code >= 200 && attempt.code < 300) return end('delivered', 'delivered');
  if (isFinal(attempt) || (budget.mayEnd && budget.age >= budget.limit)) return end('failed', 'dead');
  const wait = Math.round(gap(delivery.attempts + 1) * (1 + JITTER * jitter));
  return { outcome: 'deferred', settlement: { ...base, state: 'waiting', dueAt: now + wait }, wait, lesson };
}

/** A consumer's report on a leased delivery. `status`: the response of the consumer's own receiver, if any. */
export type LeaseOutcome =
  | { readonly kind: 'acknowledged' }
  | {
      readonly kind: 'refused';
      readonly status: number | null;
      readonly reason: string;
      /** Milliseconds until it is due again; undefined: as after a failed POST. */
      readonly delay: number | undefined;
    };

/** The end of a lease, for `settleLease`. */
interface LeaseFacts extends Occasion {
  /** `attempts` includes the one of the lease. */
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts'>;
  /** The number of the attempt. */
  readonly n: number;
  readonly outcome: LeaseOutcome;
  /** Set if it is in a sequence. */
  readonly order: Omit<OrderFacts, 'isUp'> | undefined;
  /** The status by which the receiver ends the delivery; null: none. */
  readonly stop: number | null;
}

/**
 * Returns the consequences of a consumer's report: acknowledged is delivered, everything else is due again until the
 * time budget is used up. An acknowledgement is recorded as a POST answered with 200.
 */
export function settleLease({ delivery, n, outcome, now, jitter, budget, order, stop }: LeaseFacts): {
  readonly outcome: Settled['outcome'];
  readonly end: LeaseEnd;
} {
  const base = { deliveryId: delivery.id, n, at: now, dueAt: now };
  if (outcome.kind === 'acknowledged')
    return {
      outcome: 'delivered',
      end: { ...base, state: 'delivered', status: 200, error: null, answer: 'acknowledged' },
    };
  const { status, delay } = outcome;
  const reason = outcome.reason.slice(0, SHOWN);
  const told =
    status === null ? { error: reason || 'refused by the consumer', answer: '' } : { error: null, answer: reason };
  if ((status !== null && status === stop) || (budget.mayEnd && budget.age >= budget.limit))
    return { outcome: 'failed', end: { ...base, ...told, state: 'dead', status } };
  const failure = order && failureOf({ ...order, isUp: true }, true, now);
  const usual = gap(delivery.attempts) * (1 + JITTER * jitter);
  const wait = delay ?? Math.round(soonEnough(usual, failure, order, now));
  const next = { ...base, ...told, state: 'waiting', dueAt: now + wait, status } as const;
  return { outcome: 'deferred', end: failure ? { ...next, failure } : next };
}

/** Whether another SMTP attempt would have the same result. */
export function isFinal(attempt: MailAttempt): boolean {
  return attempt.kind === 'answered' ? attempt.code >= 500 : attempt.permanent;
}

/** Returns an SMTP attempt in the form of metrics and the log. */
export function summaryOf(attempt: MailAttempt): AttemptSummary {
  const { durationMs } = attempt;
  if (attempt.kind === 'unanswered') return { kind: 'unanswered', error: attempt.reason, durationMs };
  return { kind: 'answered', status: attempt.code, durationMs };
}

/** No server, or 421 (RFC 5321 section 3.8), is about the destination; other refusals are about the recipient. */
function lessonOfMail(attempt: MailAttempt): Lesson {
  if (attempt.kind === 'unanswered') return attempt.permanent ? present : { ...away, suspect: attempt.given ?? false };
  if (attempt.code === 421) return away;
  return attempt.code < 300 ? passed : present;
}

/** Characters of a response kept in the history. */
const SHOWN = 512;

function toMailRecord(attempt: MailAttempt, now: number): AttemptRecord {
  const { durationMs } = attempt;
  const base = { at: now - durationMs, durationMs, ...(attempt.detail && { detail: attempt.detail(false) }) };
  if (attempt.kind === 'unanswered')
    return { ...base, status: null, error: attempt.reason.slice(0, SHOWN), answer: '' };
  return { ...base, status: attempt.code, error: null, answer: attempt.diag.slice(0, SHOWN) };
}

/** A settlement without an attempt: it expired while its endpoint was down, was lost, or is put off. */
export function settleUnattempted(
  deliveryId: string,
  state: Exclude<DeliveryState, 'delivered'>,
  parked: boolean,
  now: number,
): Settlement {
  return { deliveryId, attempt: null, state, dueAt: now, parked, at: now };
}

/** Returns the longest delay that a delivery can have been given; a due time beyond it was written by a wrong clock. */
export function longestWait(delivery: Pick<QueuedDelivery, 'parked' | 'lastStatus' | 'attempts'>): number {
  if (delivery.parked) return PARKED_GAP * (1 + JITTER);
  if (delivery.lastStatus !== null) return LONGEST_RETRY_AFTER;
  return gap(Math.max(1, delivery.attempts)) * (1 + JITTER);
}

const passed: Lesson = { kind: 'passed', aside: false, strained: false, leaveAlone: 0 };
const present: Lesson = { ...passed, kind: 'present' };
const away: Lesson = { ...passed, kind: 'unanswered', strained: true };

function lessonOf(result: AttemptResult, parked: boolean, leaveAlone: number): Lesson {
  if (result.kind === 'unanswered') {
    // A message may cause a hang or a reset; a failed connection is never caused by a message.
    return {
      kind: 'unanswered',
      aside: parked && result.connected,
      strained: result.error === 'timeout',
      leaveAlone: 0,
      suspect: result.connected,
    };
  }
  if (result.status === 410) return { kind: 'gone', aside: false, strained: false, leaveAlone };
  const strained = [429, 502, 503, 504].includes(result.status);
  // A proxy answers 502 or 504 for an application that a message crashed.
  return { kind: 'failed', aside: parked && !strained, strained, leaveAlone, suspect: result.status !== 429 };
}

function shouldPark({ delivery, result, othersPass }: AttemptFacts): boolean {
  if (!othersPass || delivery.attempts + 1 < PARK_AFTER) return false;
  // A message cannot cause a failed connection.
  return result.kind === 'answered' || result.connected;
}

const gap = (attempts: number): number => GAPS[Math.min(attempts, GAPS.length) - 1] ?? 25 * MINUTE_MS;

export function isSuccess(result: AttemptResult): boolean {
  return result.kind === 'answered' && result.status >= 200 && result.status < 300;
}

function toRecord(result: AttemptResult, now: number): AttemptRecord {
  const { durationMs } = result;
  const at = now - durationMs;
  if (result.kind === 'answered') return { at, durationMs, status: result.status, error: null, answer: result.answer };
  return { at, durationMs, status: null, error: errorOf(result), answer: '' };
}

/** Milliseconds that `Retry-After` asks to wait (RFC 9110 section 10.2.3); undefined if it is unusable. */
export function readRetryAfter(value: string | null, now: number): number | undefined {
  if (value === null) return undefined;
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  // Only forms that begin with the name of a day; Date.parse alone accepts nearly anything, "-5" included.
  const date = /^[A-Z][a-z]{2,8},? /.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
