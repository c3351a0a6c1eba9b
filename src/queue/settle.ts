import type { AttemptRecord, DeliveryState, QueuedDelivery, Settlement } from './delivery.ts';
import type { DetailText } from './detail.ts';

// What an attempt means for its delivery and its endpoint: over HTTP (`settle`) and over SMTP (`settleMail`).

/** Why no answer came over HTTP. This vocabulary is shown to users; internals never are. */
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

/** What an attempt over HTTP brought. */
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
      readonly connected: boolean;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    };

/** What an attempt over SMTP brought: what a server said to the message, or that none was reached. */
export type MailAttempt =
  /** `code` is that of the reply that decided, `diag` its text in one line with its enhanced code. */
  | {
      readonly kind: 'answered';
      readonly code: number;
      readonly diag: string;
      readonly host: string;
      readonly address: string;
      readonly source: string | null;
      readonly tls: boolean;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    }
  /**
   * No server could be reached or all broke off before they decided. `permanent`: the domain takes no mail (no such
   * domain, null MX).
   */
  | {
      readonly kind: 'unanswered';
      readonly reason: string;
      readonly permanent: boolean;
      readonly durationMs: number;
      readonly detail?: DetailText | undefined;
    };

/** What metrics and the log say of an attempt over either. */
export type AttemptSummary =
  | { readonly kind: 'answered'; readonly status: number; readonly durationMs: number }
  | { readonly kind: 'unanswered'; readonly error: string; readonly durationMs: number };

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

// After the first attempt, the second, and so on; the last for ever. Jitter adds up to a fifth, so attempts are at most
// half an hour apart.
const GAPS = [5 * SECOND, 30 * SECOND, 5 * MINUTE, 15 * MINUTE, 25 * MINUTE];
const JITTER = 0.2;
// A delivery that fails while others to its endpoint pass waits longer, for it is most likely the message.
const FIRST_PARKED_GAP = HOUR;
const PARKED_GAP = 6 * HOUR;
// Failed attempts after which a delivery may be parked: a deployment is over by then, and one bad answer proves
// nothing.
const PARK_AFTER = 4;
// The longest that Retry-After is believed.
const LONGEST_RETRY_AFTER = 6 * HOUR;

interface Budget {
  /** How long the delivery has been tried, in milliseconds of our own running time (base/running-time.ts). */
  readonly age: number;
  /** Age at which it is given up. */
  readonly limit: number;
  /** False while the clock is not to be trusted, and shortly after a start: then nothing is given up. */
  readonly mayEnd: boolean;
}

export interface AttemptFacts {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts' | 'parked'>;
  readonly result: AttemptResult;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  readonly budget: Budget;
  /** Whether other deliveries to the same endpoint have passed of late. */
  readonly othersPass: boolean;
  /** The id of the POST, when others shared it: its failure may be theirs, and nothing is given up for it. */
  readonly batch?: string | undefined;
}

/** What the endpoint learns from an attempt; `present`: it is there, and what it said was about one recipient. */
export interface Lesson {
  readonly kind: 'passed' | 'failed' | 'unanswered' | 'gone' | 'present';
  /** The failure speaks of the message and not of the endpoint. */
  readonly aside: boolean;
  /** The endpoint is at its limit (no answer in time, 429, 502, 503, 504): fewer at a time. */
  readonly strained: boolean;
  /** Milliseconds that it asked to be left alone; 0 when it did not. */
  readonly leaveAlone: number;
}

export interface Settled {
  readonly outcome: 'delivered' | 'deferred' | 'failed';
  readonly settlement: Settlement;
  /** Milliseconds until the next attempt; 0 when there is none. */
  readonly wait: number;
  readonly lesson: Lesson;
}

/**
 * Says what an attempt means for its delivery and its endpoint. Any 2xx is success, everything else is tried again
 * until the time is over.
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
  if (mayEnd && age >= limit && batch === undefined) {
    return { outcome: 'failed', settlement: { ...base, parked, state: 'dead', dueAt: now }, wait: 0, lesson };
  }
  const own = gap(delivery.attempts + 1, parked, delivery.parked) * (1 + JITTER * attempted.jitter);
  // The last attempt is made when the time is over and not hours later.
  const rest = Math.max(limit - age, own);
  const wait = Math.round(Math.min(Math.max(own, asked), rest));
  return { outcome: 'deferred', settlement: { ...base, parked, state: 'waiting', dueAt: now + wait }, wait, lesson };
}

/** An attempt over SMTP, for `settleMail`. */
interface MailAttempted {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts'>;
  readonly attempt: MailAttempt;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  readonly budget: Budget;
}

/**
 * Says what an attempt over SMTP means: 2xx is delivered, 5xx is over at once, everything else is tried again until the
 * time is over (RFC 5321 section 4.5.4.1: four to five days).
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
  const wait = Math.round(gap(delivery.attempts + 1, false, false) * (1 + JITTER * jitter));
  return { outcome: 'deferred', settlement: { ...base, state: 'waiting', dueAt: now + wait }, wait, lesson };
}

/** Whether no other attempt over SMTP would bring anything else. */
export function isFinal(attempt: MailAttempt): boolean {
  return attempt.kind === 'answered' ? attempt.code >= 500 : attempt.permanent;
}

/** An attempt over SMTP as metrics and the log say it. */
export function summaryOf(attempt: MailAttempt): AttemptSummary {
  const { durationMs } = attempt;
  if (attempt.kind === 'unanswered') return { kind: 'unanswered', error: attempt.reason, durationMs };
  return { kind: 'answered', status: attempt.code, durationMs };
}

/**
 * No server, and 421 (RFC 5321 section 3.8: the service is closing), speak of the destination; other refusals of the
 * recipient.
 */
function lessonOfMail(attempt: MailAttempt): Lesson {
  if (attempt.kind === 'unanswered') return attempt.permanent ? present : away;
  if (attempt.code === 421) return away;
  return attempt.code < 300 ? passed : present;
}

/** The history shows the start of an answer. */
const SHOWN = 512;

function toMailRecord(attempt: MailAttempt, now: number): AttemptRecord {
  const { durationMs } = attempt;
  const base = { at: now - durationMs, durationMs, ...(attempt.detail && { detail: attempt.detail(false) }) };
  if (attempt.kind === 'unanswered')
    return { ...base, status: null, error: attempt.reason.slice(0, SHOWN), answer: '' };
  return { ...base, status: attempt.code, error: null, answer: attempt.diag.slice(0, SHOWN) };
}

/**
 * The end of a delivery that was not attempted: given up because its time ran out while its endpoint was away, gone
 * from the spool, or put off.
 */
export function settleUnattempted(
  deliveryId: string,
  state: Exclude<DeliveryState, 'delivered'>,
  parked: boolean,
  now: number,
): Settlement {
  return { deliveryId, attempt: null, state, dueAt: now, parked, at: now };
}

/**
 * The longest that a delivery can have been told to wait; a due time beyond it was written by a clock that was wrong.
 */
export function longestWait(delivery: Pick<QueuedDelivery, 'parked' | 'lastStatus' | 'attempts'>): number {
  if (delivery.parked) return PARKED_GAP * (1 + JITTER);
  if (delivery.lastStatus !== null) return LONGEST_RETRY_AFTER;
  return gap(Math.max(1, delivery.attempts), false, false) * (1 + JITTER);
}

const passed: Lesson = { kind: 'passed', aside: false, strained: false, leaveAlone: 0 };
const present: Lesson = { ...passed, kind: 'present' };
const away: Lesson = { ...passed, kind: 'unanswered', strained: true };

function lessonOf(result: AttemptResult, parked: boolean, leaveAlone: number): Lesson {
  if (result.kind === 'unanswered') {
    // A parked message may be what makes it hang; that it cannot be connected to has nothing to do with any message.
    return {
      kind: 'unanswered',
      aside: parked && result.connected,
      strained: result.error === 'timeout',
      leaveAlone: 0,
    };
  }
  if (result.status === 410) return { kind: 'gone', aside: false, strained: false, leaveAlone };
  const strained = [429, 502, 503, 504].includes(result.status);
  return { kind: 'failed', aside: parked && !strained, strained, leaveAlone };
}

function shouldPark({ delivery, result, othersPass }: AttemptFacts): boolean {
  if (!othersPass || delivery.attempts + 1 < PARK_AFTER) return false;
  // No connection is nothing that a message could cause.
  return result.kind === 'answered' || result.connected;
}

function gap(attempts: number, parked: boolean, wasParked: boolean): number {
  if (parked) return wasParked ? PARKED_GAP : FIRST_PARKED_GAP;
  return GAPS[Math.min(attempts, GAPS.length) - 1] ?? 25 * MINUTE;
}

function isSuccess(result: AttemptResult): boolean {
  return result.kind === 'answered' && result.status >= 200 && result.status < 300;
}

function toRecord(result: AttemptResult, now: number): AttemptRecord {
  const { durationMs } = result;
  const at = now - durationMs;
  if (result.kind === 'answered') return { at, durationMs, status: result.status, error: null, answer: result.answer };
  return { at, durationMs, status: null, error: result.error, answer: '' };
}

/**
 * Milliseconds that `Retry-After` asks to wait (RFC 9110 section 10.2.3: seconds, or a date); undefined when it says
 * nothing usable.
 */
export function readRetryAfter(value: string | null, now: number): number | undefined {
  if (value === null) return undefined;
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  // Only the forms that begin with the name of a day; Date.parse alone takes nearly anything, "-5" included.
  const date = /^[A-Z][a-z]{2,8},? /.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
