import { parseAddressList } from '../mail/address-list.ts';
import { correspondentsOf } from '../mail/author.ts';
import { firstValue, type HeaderField } from '../mail/headers.ts';
import { type ReturnedMessage, readBlocks, readText, valueOf } from './bounce-message.ts';

/** What a delivery status notification (RFC 3464) says of one recipient. */
export interface RecipientStatus {
  /** Addresses in lower case, as the report gives them: the one that was mailed, and the one it became on the way. */
  readonly recipients: readonly string[];
  readonly action: 'failed' | 'delayed' | 'delivered' | 'relayed' | 'expanded';
  /** RFC 3463, `5.1.1`. */
  readonly status: string;
  /** `smtp;550 5.1.1 …`; the status alone when there is no diagnostic code. */
  readonly diag: string;
}

const TYPES = new Set(['message/delivery-status', 'message/global-delivery-status']);
/** A report on one message of ours has one recipient, or those that it was forwarded to. */
const MOST_BLOCKS = 100;
const ACTIONS = {
  failed: 'failed',
  failure: 'failed',
  delayed: 'delayed',
  delivered: 'delivered',
  relayed: 'relayed',
  expanded: 'expanded',
} as const;

/** The recipients of a delivery status notification; undefined when the mail is none. */
export function parseDsn(mail: ReturnedMessage): readonly RecipientStatus[] | undefined {
  const leaf = mail.leaves.find(({ type }) => TYPES.has(type));
  if (!leaf) return undefined;
  const found = readBlocks(leaf.bytes(), MOST_BLOCKS)
    .map(toStatus)
    .filter((status) => status !== undefined);
  return found.length === 0 ? undefined : found;
}

function toStatus(fields: readonly HeaderField[]): RecipientStatus | undefined {
  const recipients = ['original-recipient', 'final-recipient']
    .map((name) => addressOf(firstValue(fields, name)))
    .filter((address) => address !== '');
  const status = /\b([245]\.\d{1,3}\.\d{1,3})\b/.exec(firstValue(fields, 'status') ?? '')?.[1];
  const action = actionOf(firstValue(fields, 'action'), status);
  // The first block is about the message, and names none (RFC 3464 section 2.2); some software has no empty line before
  // the next.
  if (recipients.length === 0 || action === undefined) return undefined;
  const diagnostic = diagnosticOf(firstValue(fields, 'diagnostic-code') ?? '');
  const known = status ?? (action === 'failed' ? '5.0.0' : action === 'delayed' ? '4.0.0' : '2.0.0');
  return { recipients, action, status: known, diag: diagnostic === '' ? known : diagnostic };
}

function actionOf(text: string | undefined, status: string | undefined): RecipientStatus['action'] | undefined {
  const word = /^[a-z]+/.exec((text ?? '').trim().toLowerCase())?.[0] ?? '';
  const known: Readonly<Record<string, RecipientStatus['action']>> = ACTIONS;
  if (Object.hasOwn(known, word)) return known[word];
  // Without the field that must be there, the status is all that is left to believe.
  if (status === undefined) return undefined;
  return status.startsWith('5') ? 'failed' : status.startsWith('4') ? 'delayed' : 'delivered';
}

/** `rfc822; jo@example.com`, in any spelling that is about. */
function addressOf(value: string | undefined): string {
  const text = (value ?? '').replace(/^[^;]*;/, '').trim();
  return (parseAddressList(text).mailboxes[0]?.address ?? text).toLowerCase();
}

/** The type in lower case and no space behind it: the form in which consumers know a diagnosis. */
function diagnosticOf(value: string): string {
  const text = value.trim();
  const typed = /^([\w-]+)\s*;\s*(.*)$/s.exec(text);
  const words = (typed?.[2] ?? text).trim();
  return words === '' ? '' : `${(typed?.[1] ?? 'smtp').toLowerCase()};${words}`;
}

/** What a bounce says that is not written in the format of RFC 3464. */
interface PlainBounce {
  readonly action: 'failed' | 'delayed';
  /** `5.1.1` when the text names one, else null. */
  readonly status: string | null;
  /** `smtp;` and the line that says why. */
  readonly diag: string;
}

// Who sends bounces. A person's vacation notice may come with the null reverse-path too, so the envelope says nothing
// here.
const SENDER =
  /\b(?:mailer-?daemon|postmaster|mail delivery (?:sub)?system|mail delivery service|mail administrator|system administrator|mailsystem|mmdf|mdaemon|qmail)\b|\bdaemon@/i;
const SUBJECT =
  /\b(?:undeliver(?:able|ed)|delivery (?:failure|failed|status|problem|unsuccessful)|failure notice|returned (?:mail|to sender)|mail (?:delivery )?(?:failed|failure|error|system error)|non[- ]?delivery|could not (?:be delivered|send message)|nondeliverable|message you sent blocked|delayed \d+ hours|delivery delayed|warning: (?:message|could not send))/i;
// How the software in the field begins; each is enough by itself.
const OPENING = [
  /^\s*hi\. this is the\b[^\n]{0,60}\bqmail/i, // qmail's own format (QSBMF)
  /this message was created automatically by mail delivery software/i, // Exim
  /^\s*delivery to the following recipients? (?:has )?(?:failed|been delayed)/im, // Gmail of old, Windows
  // Exchange, and others
  /your message (?:did not reach|was not delivered to|could not be delivered to|wasn't delivered to)/i,
  /the following addresses had (?:permanent fatal errors|transient non-fatal errors)/i, // sendmail of old
  // Yahoo and relatives of qmail
  /(?:sorry, we were|i wasn't|we were|i'm afraid i wasn't) (?:un)?able to deliver (?:your|the following|this) message/i,
  /was undeliverable to the following recipients?/i,
  /your message cannot be delivered to the following recipients?/i, // Sun
  /recipient'?s mailbox is (?:full|unavailable)/i,
];
const DELAYED =
  /\b(?:has not yet been delivered|will be retried|will continue to (?:be )?(?:try|tried|retry|retried|attempt)|delivery attempts will continue|will keep trying|(?:been|is) delayed|message delayed|transient non-fatal errors|no action is required on your part|do not need to resend|warning message only)\b/i;
// An SMTP reply in the text: the code with an enhanced code behind it is surest, then the enhanced code in brackets,
// then either alone.
const REPLY = /(?:^|[\s:<(#"'])([45]\d\d)[ -]+#?([45]\.\d{1,3}\.\d{1,3})\b[^\n]*/m;
const BRACKETED = /[^\n]*[(<#[]#?([45]\.\d{1,3}\.\d{1,3})[)>\]]?[^\n]*/;
const CODE = /(?:^|[\s:<"'])([45]\d\d)[ :-] ?(?=[^\d\s])[^\n]*/m;
const ENHANCED = /[^\n]*(?:^|[\s:])([45]\.\d{1,3}\.\d{1,3})\b[^\n]*/m;
const WORDS =
  /[^\n]*\b(?:user (?:is )?unknown|unknown user|no such (?:user|recipient|mailbox)|no mailbox here|does not exist|mailbox (?:is )?(?:full|unavailable|disabled|not found)|over ?quota|quota exceeded|account (?:is )?(?:disabled|inactive|suspended)|host (?:or domain name )?not found|unrouteable address|unknown (?:local part|recipient)|not listed in|recipient not found|address rejected|relay(?:ing)? denied|connection (?:timed out|refused)|message (?:is )?too (?:large|big)|blocked|spam)\b[^\n]*/i;
/** Where the copy of what was sent begins; what it says is no diagnosis. */
const COPY =
  /^(?:-+ ?(?:below this line|this is a copy|original message|the body of|message header|returned message|unsent message|enclosed is|copy of)|received: from .{1,200}\n|return-path: <)/im;
const LONGEST_LINE = 1000;
const TEXT = 16 * 1024;

/** Reads a bounce of qmail, Exim, Exchange and others; undefined when the mail does not look like one. */
export function parsePlainBounce(mail: ReturnedMessage): PlainBounce | undefined {
  const text = clipped(readText(mail));
  const subject = valueOf(mail, 'subject');
  if (!isBounce(mail, subject, text)) return undefined;
  const said = reasonOf(text);
  // A bounce that gives no reason at all is not one to act on: the address may be good.
  if (!said) return undefined;
  const delayed = DELAYED.test(text) || /\bdelayed\b/i.test(subject);
  return { action: delayed ? 'delayed' : 'failed', status: said.status, diag: `smtp;${said.line}` };
}

function isBounce(mail: ReturnedMessage, subject: string, text: string): boolean {
  if (OPENING.some((opening) => opening.test(text))) return true;
  const { from } = correspondentsOf(mail.fields);
  const sender = SENDER.test(from ? `${from.name ?? ''} <${from.address}>` : valueOf(mail, 'from'));
  const named = firstValue(mail.fields, 'x-failed-recipients') !== undefined;
  return named || (sender && SUBJECT.test(subject));
}

interface Reason {
  readonly status: string | null;
  readonly line: string;
}

function reasonOf(text: string): Reason | undefined {
  const reply = REPLY.exec(text);
  if (reply) return { status: reply[2] ?? null, line: lineOf(reply[0]) };
  const bracketed = BRACKETED.exec(text) ?? ENHANCED.exec(text);
  if (bracketed) return { status: bracketed[1] ?? null, line: lineOf(bracketed[0]) };
  const code = CODE.exec(text) ?? WORDS.exec(text);
  return code ? { status: null, line: lineOf(code[0]) } : undefined;
}

/** From the code on, without what quoted it. */
function lineOf(match: string): string {
  return match
    .trim()
    .replace(/^[:<>("'#\s-]+/, '')
    .replace(/\s+/g, ' ');
}

/**
 * The beginning of the text, before the copy of what was sent, in lines that no pattern takes long over; lines that are
 * folded by indentation after a reply become one.
 */
function clipped(text: string): string {
  const head = text
    .slice(0, TEXT)
    .split('\n')
    .map((line) => line.slice(0, LONGEST_LINE))
    .join('\n');
  const copy = COPY.exec(head);
  // The copy may stand in front of everything when somebody forwards a bounce; then there is nothing to read.
  return copy ? head.slice(0, copy.index) : head;
}
