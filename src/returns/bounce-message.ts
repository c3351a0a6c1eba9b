import { pattern } from '../base/pattern.ts';
import { addressFieldsOf } from '../mail/addresses/author.ts';
import { returnedKindOf } from '../mail/automated.ts';
import { type Bounce, classifyReply } from '../mail/bounce.ts';
import { firstValue } from '../mail/mime/headers.ts';
import { parseDsn, parsePlainBounce, type RecipientStatus, reasonGiven } from './bounce-report.ts';
import { headerText, type ReturnedMessage, readBlocks, readReturned } from './returned-message.ts';

/** The classification of a returned message, before the original message is looked up. */
export type ReturnClassification =
  /** Delivery failed (the classifier decides whether permanently), or is delayed. */
  | { readonly kind: 'failed' | 'delayed'; readonly diag: string; readonly bounce: Bounce }
  /** `original`: the parts of the original message that the report includes. */
  | { readonly kind: 'spam'; readonly diag: string; readonly original: string }
  | { readonly kind: 'unsub'; readonly original: string }
  /** Nothing is recorded; `why` is for the log. */
  | { readonly kind: 'nothing'; readonly why: string };

/** Feedback types that are complaints, and those that are opt-outs (RFC 5965 section 7.3 and its early drafts). */
const COMPLAINTS = new Set(['', 'abuse', 'fraud', 'virus', 'other', 'complaint', 'spam']);
const OPT_OUTS = new Set(['opt-out', 'opt-out-list']);

/**
 * Classifies a message to a mailbox of the return domain. `email` is the original recipient, if known: a report may
 * also mention addresses it was forwarded to. `sender` is the reverse-path, '' for that of bounces. Pure and bounded:
 * untrusted input is scanned once.
 */
export function classifyReturned(
  to: 'bounce' | 'unsub' | 'complaints',
  bytes: Buffer,
  { email, sender }: { readonly email: string | null; readonly sender: string },
): ReturnClassification {
  const mail = readReturned(bytes);
  if (!mail) return { kind: 'nothing', why: 'the message exceeds a structural limit' };
  const feedback = parseFeedback(mail);
  if (feedback) return classifyFeedback(feedback);
  const statuses = parseDsn(mail);
  if (statuses)
    return to === 'bounce'
      ? classifyDsn(mail, statuses, email)
      : { kind: 'nothing', why: 'a delivery report to the wrong address' };
  if (to === 'complaints') return classifyAttached(mail, sender);
  // Any other message to this address is a request to unsubscribe, written by hand or by a mail program's button.
  if (to === 'unsub') return { kind: 'unsub', original: '' };
  return classifyText(mail, sender);
}

function classifyFeedback({ type, userAgent, original }: FeedbackReport): ReturnClassification {
  if (OPT_OUTS.has(type)) return { kind: 'unsub', original };
  if (!COMPLAINTS.has(type)) return { kind: 'nothing', why: `feedback of type ${type.slice(0, 40)}` };
  return { kind: 'spam', diag: [type || 'complaint', userAgent].filter((word) => word !== '').join(' by '), original };
}

function classifyAttached(mail: ReturnedMessage, sender: string): ReturnClassification {
  const kind = kindOf(mail, sender);
  const attached = kind === undefined || kind === 'bounce' ? parseAttached(mail) : undefined;
  return attached ? classifyFeedback(attached) : { kind: 'nothing', why: 'not a report' };
}

function classifyDsn(
  mail: ReturnedMessage,
  statuses: readonly RecipientStatus[],
  email: string | null,
): ReturnClassification {
  const own = statuses.find(({ recipients }) => email !== null && recipients.includes(email.toLowerCase()));
  const worst =
    own ??
    statuses.find(({ action }) => action === 'failed') ??
    statuses.find(({ action }) => action === 'delayed') ??
    statuses[0];
  if (worst?.action !== 'failed' && worst?.action !== 'delayed')
    return { kind: 'nothing', why: `delivery report: ${worst?.action ?? 'nobody'}` };
  // A report that quotes no reply states its reason in the text for people.
  if (!/[a-z]/i.test(worst.diag)) {
    const given = reasonGiven(mail);
    if (classifyReply(0, given.diag).rule !== 'unclear') return toFailure(worst.action, worst.status, given.diag);
  }
  return toFailure(worst.action, worst.status, worst.diag);
}

/**
 * The address has a token of ours, so mail to it is about our message: a bounce, unless it is an automatic reply or
 * written by a person. A person has a reverse-path, a bounce has none (RFC 5321 section 4.5.5).
 */
function classifyText(mail: ReturnedMessage, sender: string): ReturnClassification {
  const kind = kindOf(mail, sender);
  if (kind === 'challenge' || kind === 'receipt') return { kind: 'nothing', why: kind };
  const isBounce = kind === 'bounce' || (sender === '' && !kind);
  // Bounces may also be marked auto-replied (RFC 3834 allows it), so they are checked first.
  const bounce = parsePlainBounce(mail) ?? (isBounce ? reasonGiven(mail) : undefined);
  if (bounce) return toFailure(bounce.action, bounce.status, bounce.diag);
  return { kind: 'nothing', why: kind ?? 'not a recognized bounce' };
}

const ENHANCED = /(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?![\d.])/;

/** The code in the diagnosis comes from the refusing server; the separate status may be the reporter's own. */
function toFailure(kind: 'failed' | 'delayed', status: string | null, diag: string): ReturnClassification {
  const text = status === null || ENHANCED.test(diag.slice(0, 1000)) ? diag : `${status} ${diag}`;
  return { kind, diag, bounce: classifyReply(codeOf(diag, status), text) };
}

/** The reply code quoted in the diagnosis, else the default of its class; 0: none is known. */
function codeOf(diag: string, status: string | null): number {
  const [, first, quoted] =
    /^[\w-]+;\s*([45]\d\d)\b|\b(?:said|reply|response|error|was):?\s+([45]\d\d)\b/i.exec(diag) ?? [];
  const said = first ?? quoted;
  if (said !== undefined) return Number(said);
  return status?.startsWith('4') ? 450 : 0;
}

const kindOf = ({ fields }: ReturnedMessage, sender: string) =>
  returnedKindOf({ fields, author: addressFieldsOf(fields).from, mailFrom: sender });

/** A complaint (RFC 5965), or a message forwarded by hand as one. */
type FeedbackReport = ReturnType<typeof toReport>;

const REPORT = 'message/feedback-report';
const ORIGINAL = pattern()`
  ^(?:message/rfc822|message/global|text/rfc822-headers|text/rfc822|message/rfc822-headers|message/global-headers)$
`;
const QUOTED = ['original-mail-from', 'original-rcpt-to', 'removal-recipient', 'original-envelope-id'];
const MAX_BLOCKS = 4;

/** Parses a feedback report; undefined if it is not one. Redacted fields are simply missing. */
function parseFeedback(mail: ReturnedMessage): FeedbackReport | undefined {
  const leaf = mail.leaves.find(({ type }) => type === REPORT);
  return leaf && toReport(mail, readBlocks(leaf.bytes(), MAX_BLOCKS).flat());
}

/** Parses a report that only attaches the message (Microsoft's JMRP, mail to abuse@). Undefined if none is attached. */
function parseAttached(mail: ReturnedMessage): FeedbackReport | undefined {
  return mail.leaves.some(({ type }) => ORIGINAL.test(type)) ? toReport(mail, []) : undefined;
}

function toReport(mail: ReturnedMessage, fields: Parameters<typeof firstValue>[0]) {
  const quoted = fields.filter(({ name }) => QUOTED.includes(name.toLowerCase())).map(({ value }) => value);
  const originals = mail.leaves.filter(({ type }) => ORIGINAL.test(type)).map((leaf) => headerText(leaf.bytes()));
  return {
    /** `abuse`, `fraud`, `virus`, `not-spam`, `auth-failure` …; empty if the message was only attached. */
    type: (firstValue(fields, 'feedback-type') ?? '').trim().toLowerCase(),
    userAgent: firstValue(fields, 'user-agent') ?? '',
    /** Of the original: its header section, and report fields that quote its envelope. */
    // Header folding may have split a token.
    original: [...quoted, ...originals.map((text) => text.replaceAll(/\n[ \t]+/g, ' '))].join('\n'),
  };
}
