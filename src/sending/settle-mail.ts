import { classifyReply } from '../mail/bounce.ts';
import { isFinal, type MailAttempt, type Settled } from '../queue/settle.ts';
import type { Happening } from './reporter.ts';

// What is told of attempts at mail going out.

const DAY = 24 * 3_600_000;

/** What is to be told of an attempt: every deferral here, however often. */
export function toHappening(attempt: MailAttempt, { outcome }: Pick<Settled, 'outcome'>): Happening {
  if (outcome === 'failed') return isFinal(attempt) ? toBounce(attempt) : toExpiry(wordsOf(attempt));
  const places = attempt.kind === 'answered' ? { source_ip: attempt.source, destination_ip: attempt.address } : {};
  return { kind: outcome === 'delivered' ? 'send' : 'deferral', detail: { diag: wordsOf(attempt), ...places } };
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

/** RFC 3463: 4.4.1, no answer from host. */
function wordsOf(attempt: MailAttempt): string {
  return attempt.kind === 'answered' ? `${attempt.code} ${attempt.diag}` : `451 4.4.1 ${attempt.reason}`;
}
