import { classifyReply } from '../mail/bounce.ts';
import type { AttemptRecord, QueuedDelivery } from '../queue/delivery.ts';
import { type Budget, type Lesson, mailGap, type Settled } from '../queue/settle.ts';
import type { Happening } from './reporter.ts';
import type { MailAttempt } from './types.ts';

export interface MailAttempted {
  readonly delivery: Pick<QueuedDelivery, 'id' | 'attempts'>;
  readonly attempt: MailAttempt;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** In [0, 1). */
  readonly jitter: number;
  readonly budget: Budget;
}

/** What comes of an attempt, and what is to be told of it: every deferral here, however often. */
export interface SettledMail extends Settled {
  readonly happening: Happening;
}

const DAY = 24 * 3_600_000;
/** The history shows the start of an answer. */
const SHOWN = 512;

const PASSED: Lesson = { kind: 'passed', aside: false, strained: false, leaveAlone: 0 };
const PRESENT: Lesson = { kind: 'present', aside: false, strained: false, leaveAlone: 0 };
const AWAY: Lesson = { kind: 'unanswered', aside: false, strained: true, leaveAlone: 0 };

/**
 * Says what an attempt over SMTP means: 2xx is delivered, 5xx is over at once, everything else is tried again until the time
 * is over (RFC 5321 section 4.5.4.1: four to five days).
 */
export function settleMail({ delivery, attempt, now, jitter, budget }: MailAttempted): SettledMail {
  const base = { deliveryId: delivery.id, attempt: toRecord(attempt, now), at: now, parked: false };
  const lesson = lessonOf(attempt);
  if (attempt.kind === 'answered' && attempt.code >= 200 && attempt.code < 300) {
    return {
      outcome: 'delivered',
      settlement: { ...base, state: 'delivered', dueAt: now },
      wait: 0,
      lesson,
      happening: toHappening('send', attempt),
    };
  }
  const { age, limit, mayEnd } = budget;
  const refused = isFinal(attempt);
  if (refused || (mayEnd && age >= limit)) {
    const happening = refused ? toBounce(attempt) : toExpiry(wordsOf(attempt));
    return { outcome: 'failed', settlement: { ...base, state: 'dead', dueAt: now }, wait: 0, lesson, happening };
  }
  const wait = Math.round(mailGap(delivery.attempts + 1, jitter));
  return {
    outcome: 'deferred',
    settlement: { ...base, state: 'waiting', dueAt: now + wait },
    wait,
    lesson,
    happening: toHappening('deferral', attempt),
  };
}

/** What is told of mail whose time was over before anybody took it. */
export function toExpiry(last: string): Happening {
  const diag = `4.4.7 delivery time expired${last === '' ? '' : `; the last answer was: ${last}`}`;
  const { kind, description, bgtools_code: code } = classifyReply(451, '4.4.7');
  return { kind, detail: { diag: `smtp;451 ${diag}`, description, code } };
}

/**
 * Of the deferrals of a message the first is told, and then one a day: readers want to know that it hangs, not each time.
 * `before` is the age of the message at its previous attempt, `age` its age now.
 */
export function tellsDeferral(attempts: number, before: number, age: number): boolean {
  return attempts === 0 || Math.floor(age / DAY) > Math.floor(before / DAY);
}

function isFinal(attempt: MailAttempt): boolean {
  return attempt.kind === 'answered' ? attempt.code >= 500 : attempt.permanent;
}

/** No server, and 421 (RFC 5321 section 3.8: the service is closing), speak of the destination; other refusals of the recipient. */
function lessonOf(attempt: MailAttempt): Lesson {
  if (attempt.kind === 'unanswered') return attempt.permanent ? PRESENT : AWAY;
  if (attempt.code === 421) return AWAY;
  return attempt.code < 300 ? PASSED : PRESENT;
}

function toRecord(attempt: MailAttempt, now: number): AttemptRecord {
  const { durationMs } = attempt;
  const base = { at: now - durationMs, durationMs };
  if (attempt.kind === 'unanswered')
    return { ...base, status: null, error: attempt.reason.slice(0, SHOWN), answer: '' };
  return { ...base, status: attempt.code, error: null, answer: attempt.diag.slice(0, SHOWN) };
}

function toBounce(attempt: MailAttempt): Happening {
  if (attempt.kind === 'answered') {
    const { kind, description, bgtools_code: code } = classifyReply(attempt.code, attempt.diag);
    return { kind, detail: { diag: `smtp;${wordsOf(attempt)}`, description, code } };
  }
  // RFC 3463: 5.1.2, bad destination system address.
  const diag = `5.1.2 ${attempt.reason}`;
  const { kind, description, bgtools_code: code } = classifyReply(550, '5.1.2');
  return { kind, detail: { diag: `smtp;550 ${diag}`, description, code } };
}

function toHappening(kind: 'send' | 'deferral', attempt: MailAttempt): Happening {
  const places = attempt.kind === 'answered' ? { source_ip: attempt.source, destination_ip: attempt.address } : {};
  return { kind, detail: { diag: wordsOf(attempt), ...places } };
}

/** RFC 3463: 4.4.1, no answer from host. */
function wordsOf(attempt: MailAttempt): string {
  return attempt.kind === 'answered' ? `${attempt.code} ${attempt.diag}` : `451 4.4.1 ${attempt.reason}`;
}
