import type { AttemptResult } from '../webhooks/types.ts';
import type { AttemptRecord, DeliveryState, QueuedDelivery, Settlement } from './delivery.ts';

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
// Failed attempts after which a delivery may be parked: a deployment is over by then, and one bad answer proves nothing.
const PARK_AFTER = 4;
// The longest that Retry-After is believed.
const LONGEST_RETRY_AFTER = 6 * HOUR;

export interface Budget {
  /** How long the delivery has been tried, in milliseconds of our own running time (see wall.ts). */
  readonly age: number;
  /** Age at which it is given up. */
  readonly limit: number;
  /** False while the clock is not to be trusted, and shortly after a start: then nothing is given up. */
  readonly mayEnd: boolean;
}

export interface Attempted {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts' | 'parked'>;
  readonly result: AttemptResult;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  readonly budget: Budget;
  /** Whether other deliveries to the same endpoint have passed of late. */
  readonly othersPass: boolean;
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

/** Says what an attempt means for its delivery and its endpoint. Any 2xx is success, everything else is tried again until the time is over. */
export function settle(attempted: Attempted): Settled {
  const { delivery, result, now } = attempted;
  const attempt = toRecord(result, now);
  const base = { deliveryId: delivery.id, attempt, at: now, parked: delivery.parked };
  if (isSuccess(result)) {
    return { outcome: 'delivered', settlement: { ...base, state: 'delivered', dueAt: now }, wait: 0, lesson: passed };
  }
  const asked =
    result.kind === 'answered' ? Math.min(readRetryAfter(result.retryAfter, now) ?? 0, LONGEST_RETRY_AFTER) : 0;
  const parked = delivery.parked || shouldPark(attempted);
  const lesson = lessonOf(result, parked, asked);
  const { age, limit, mayEnd } = attempted.budget;
  if (mayEnd && age >= limit) {
    return { outcome: 'failed', settlement: { ...base, parked, state: 'dead', dueAt: now }, wait: 0, lesson };
  }
  const own = gap(delivery.attempts + 1, parked, delivery.parked) * (1 + JITTER * attempted.jitter);
  // The last attempt is made when the time is over and not hours later.
  const rest = Math.max(limit - age, own);
  const wait = Math.round(Math.min(Math.max(own, asked), rest));
  return { outcome: 'deferred', settlement: { ...base, parked, state: 'waiting', dueAt: now + wait }, wait, lesson };
}

/** The end of a delivery that was not attempted: given up because its time ran out while its endpoint was away, gone from the spool, or put off. */
export function settleUnattempted(
  deliveryId: string,
  state: Exclude<DeliveryState, 'delivered'>,
  parked: boolean,
  now: number,
): Settlement {
  return { deliveryId, attempt: null, state, dueAt: now, parked, at: now };
}

/** The longest that a delivery can have been told to wait; a due time beyond it was written by a clock that was wrong. */
export function longestWait(delivery: Pick<QueuedDelivery, 'parked' | 'lastStatus' | 'attempts'>): number {
  if (delivery.parked) return PARKED_GAP * (1 + JITTER);
  if (delivery.lastStatus !== null) return LONGEST_RETRY_AFTER;
  return gap(Math.max(1, delivery.attempts), false, false) * (1 + JITTER);
}

const passed: Lesson = { kind: 'passed', aside: false, strained: false, leaveAlone: 0 };

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

function shouldPark({ delivery, result, othersPass }: Attempted): boolean {
  if (!othersPass || delivery.attempts + 1 < PARK_AFTER) return false;
  // No connection is nothing that a message could cause.
  return result.kind === 'answered' || result.connected;
}

/** Milliseconds until the next attempt after so many of a mail going out; `jitter` in [0, 1). */
export function mailGap(attempts: number, jitter: number): number {
  return gap(attempts, false, false) * (1 + JITTER * jitter);
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

/** Milliseconds that `Retry-After` asks to wait (RFC 9110 section 10.2.3: seconds, or a date); undefined when it says nothing usable. */
export function readRetryAfter(value: string | null, now: number): number | undefined {
  if (value === null) return undefined;
  const text = value.trim();
  if (/^\d{1,10}$/.test(text)) return Number(text) * 1000;
  // Only the forms that begin with the name of a day; Date.parse alone takes nearly anything, "-5" included.
  const date = /^[A-Z][a-z]{2,8},? /.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(date) ? undefined : Math.max(0, date - now);
}
