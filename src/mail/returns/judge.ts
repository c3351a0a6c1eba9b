import { type Bounce, classifyReply } from '../bounce.ts';
import { type FeedbackReport, parseAttached, parseFeedback } from './arf.ts';
import { autoReplyKind } from './auto-reply.ts';
import { parseDsn, type RecipientStatus } from './dsn.ts';
import { parsePlainBounce } from './plain-bounce.ts';
import { type Returned, readReturned } from './returned.ts';

/** What a mail that came back says, before anybody asks which message it is about. */
export type Judgement =
  /** Delivery failed, for now or for good (that is for the classifier), or is not done yet. */
  | { readonly kind: 'failed' | 'delayed'; readonly diag: string; readonly bounce: Bounce }
  /** `original`: what is left of the message that it is about. */
  | { readonly kind: 'spam'; readonly diag: string; readonly original: string }
  | { readonly kind: 'unsub'; readonly original: string }
  /** Nothing is recorded; why, in words for the log. */
  | { readonly kind: 'nothing'; readonly why: string };

/** Types of feedback that are complaints, and those that ask to be taken off (RFC 5965 section 7.3 and its first drafts). */
const COMPLAINTS = new Set(['', 'abuse', 'fraud', 'virus', 'other', 'complaint', 'spam']);
const OPT_OUTS = new Set(['opt-out', 'opt-out-list']);

/**
 * Says what came to a mailbox of the return domain. `email` is whom the message was sent to, as far as it is known: a report may
 * speak of others too, whom it was forwarded to. Pure and bounded: whatever a stranger writes is looked at once.
 */
export function judge(to: 'bounce' | 'unsub' | 'complaints', bytes: Buffer, email: string | null): Judgement {
  const mail = readReturned(bytes);
  if (!mail) return { kind: 'nothing', why: 'the mail breaks a limit of its form' };
  const feedback = parseFeedback(mail);
  if (feedback) return judgeFeedback(feedback);
  const statuses = parseDsn(mail);
  if (statuses)
    return to === 'bounce'
      ? judgeDsn(statuses, email)
      : { kind: 'nothing', why: 'a delivery report to the wrong address' };
  if (to === 'complaints') return judgeAttached(mail);
  // Whatever else is written there is what the address is for, by hand or by a mail program at the press of a button.
  if (to === 'unsub') return { kind: 'unsub', original: '' };
  return judgeText(mail);
}

function judgeFeedback({ type, userAgent, original }: FeedbackReport): Judgement {
  if (OPT_OUTS.has(type)) return { kind: 'unsub', original };
  if (!COMPLAINTS.has(type)) return { kind: 'nothing', why: `feedback of the type ${type.slice(0, 40)}` };
  return { kind: 'spam', diag: [type || 'complaint', userAgent].filter((word) => word !== '').join(' by '), original };
}

function judgeAttached(mail: Returned): Judgement {
  const attached = autoReplyKind(mail) === undefined ? parseAttached(mail) : undefined;
  return attached ? judgeFeedback(attached) : { kind: 'nothing', why: 'no report' };
}

function judgeDsn(statuses: readonly RecipientStatus[], email: string | null): Judgement {
  const own = statuses.find(({ recipients }) => email !== null && recipients.includes(email.toLowerCase()));
  const worst =
    own ??
    statuses.find(({ action }) => action === 'failed') ??
    statuses.find(({ action }) => action === 'delayed') ??
    statuses[0];
  if (worst?.action !== 'failed' && worst?.action !== 'delayed')
    return { kind: 'nothing', why: `delivery report: ${worst?.action ?? 'nobody'}` };
  return toFailure(worst.action, worst.status, worst.diag);
}

function judgeText(mail: Returned): Judgement {
  // Bounces call themselves auto-replied too (RFC 3834 allows it), so they are looked for first.
  const bounce = parsePlainBounce(mail);
  if (bounce && autoReplyKind(mail) !== 'challenge') return toFailure(bounce.action, bounce.status, bounce.diag);
  return { kind: 'nothing', why: autoReplyKind(mail) ?? 'no bounce that we know' };
}

const ENHANCED = /(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.])/;

/** The code in the diagnosis is that of the server that refused; the one beside it may be the reporter's own. */
function toFailure(kind: 'failed' | 'delayed', status: string | null, diag: string): Judgement {
  const text = status === null || ENHANCED.test(diag.slice(0, 1000)) ? diag : `${status} ${diag}`;
  return { kind, diag, bounce: classifyReply(codeOf(diag, status), text) };
}

/** The reply code that the diagnosis quotes, else the one that goes with its class. */
function codeOf(diag: string, status: string | null): number {
  const [, first, quoted] =
    /^[\w-]+;\s*([45]\d\d)\b|\b(?:said|reply|response|error|was):?\s+([45]\d\d)\b/i.exec(diag) ?? [];
  const said = first ?? quoted;
  if (said !== undefined) return Number(said);
  return status?.startsWith('4') ? 450 : 550;
}
