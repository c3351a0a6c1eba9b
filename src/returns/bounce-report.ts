import { pattern } from '../base/pattern.ts';
import { parseAddressList } from '../mail/addresses/address-list.ts';
import { addressFieldsOf } from '../mail/addresses/author.ts';
import { looksLikeBounce } from '../mail/automated.ts';
import { decodePayloads } from '../mail/mime/charset.ts';
import { decodeWords, firstValue, type HeaderField } from '../mail/mime/headers.ts';
import { type ReturnedMessage, readBlocks, readText, valueOf } from './returned-message.ts';

/** One recipient's status in a delivery status notification (RFC 3464). */
export interface RecipientStatus {
  /** Addresses in lower case, as reported: the original recipient and the final one. */
  readonly recipients: readonly string[];
  readonly action: 'failed' | 'delayed' | 'delivered' | 'relayed' | 'expanded';
  /** RFC 3463, `5.1.1`. */
  readonly status: string;
  /** `smtp;550 5.1.1 …`; only the status if there is no diagnostic code. */
  readonly diag: string;
}

const TYPES = new Set(['message/delivery-status', 'message/global-delivery-status']);
/** A report on one of our messages has one recipient, or those that it was forwarded to. */
const MAX_BLOCKS = 100;
const ACTIONS = {
  failed: 'failed',
  failure: 'failed',
  expired: 'failed',
  delayed: 'delayed',
  delivered: 'delivered',
  relayed: 'relayed',
  expanded: 'expanded',
} as const;

const DEFAULT_STATUS = {
  failed: '5.0.0',
  delayed: '4.0.0',
  delivered: '2.0.0',
  relayed: '2.0.0',
  expanded: '2.0.0',
} as const;

/** Parses the recipients of a delivery status notification; undefined if it is not one. */
export function parseDsn(mail: ReturnedMessage): readonly RecipientStatus[] | undefined {
  const leaf = mail.leaves.find(({ type }) => TYPES.has(type));
  if (!leaf) return undefined;
  const found = readBlocks(leaf.bytes(), MAX_BLOCKS)
    .map(toStatus)
    .filter((status) => status !== undefined);
  return found.length === 0 ? undefined : found;
}

function toStatus(fields: readonly HeaderField[]): RecipientStatus | undefined {
  const recipients = ['original-recipient', 'final-recipient']
    .map((name) => addressOf(firstValue(fields, name)))
    .filter((address) => address !== '');
  const status = /\b([245]\.\d{1,3}\.\d{1,3})\b/.exec(firstValue(fields, 'status') ?? '')?.[1];
  const said = firstValue(fields, 'action');
  const action = actionOf(said, status);
  // The first block describes the message and has no recipient (RFC 3464 section 2.2); some software omits the empty
  // line before the next.
  if (recipients.length === 0 || action === undefined) return undefined;
  const diagnostic = diagnosticOf(firstValue(fields, 'diagnostic-code') ?? '');
  const known = status ?? (/expired/i.test(said ?? '') ? '4.4.7' : DEFAULT_STATUS[action]);
  return { recipients, action, status: known, diag: diagnostic === '' ? known : diagnostic };
}

function actionOf(text: string | undefined, status: string | undefined): RecipientStatus['action'] | undefined {
  const word = /^[a-z]+/.exec((text ?? '').trim().toLowerCase())?.[0] ?? '';
  const known: Readonly<Record<string, RecipientStatus['action']>> = ACTIONS;
  if (Object.hasOwn(known, word)) return known[word];
  // If the mandatory action is missing, only the status is left.
  if (status === undefined) return undefined;
  return status.startsWith('5') ? 'failed' : status.startsWith('4') ? 'delayed' : 'delivered';
}

/** Parses `rfc822; jo@example.com` and its variants in the wild. */
function addressOf(value: string | undefined): string {
  const text = (value ?? '').replace(/^[^;]*;/, '').trim();
  return (parseAddressList(text).mailboxes[0]?.address ?? text).toLowerCase();
}

/** Domino and others write their texts raw. */
const JAPANESE = /\x1b\$[@B]/;

/** Type in lower case, no space after the semicolon: the form of diagnoses that clients know. */
function diagnosticOf(value: string): string {
  const text = JAPANESE.test(value)
    ? decodePayloads('iso-2022-jp', [Buffer.from(value, 'latin1')]).trim()
    : value.trim();
  const typed = /^([\w-]+)\s*;\s*(.*)$/s.exec(text);
  const words = (typed?.[2] ?? text).trim();
  return words === '' ? '' : `${(typed?.[1] ?? 'smtp').toLowerCase()};${words}`;
}

// Opening phrases of common software; each is sufficient.
const OPENING = [
  /^\s*hi\. this is the\b[^\n]{0,60}\bqmail/i, // qmail's own format (QSBMF)
  /this message was created automatically by mail delivery software/i, // Exim
  /^\s*delivery to the following recipients? (?:has )?(?:failed|been delayed)/im, // older Gmail, Windows
  // Exchange, and others
  /your message (?:did not reach|was not delivered to|could not be delivered to|wasn't delivered to)/i,
  /the following addresses had (?:permanent fatal errors|transient non-fatal errors)/i, // older sendmail
  // Yahoo and qmail derivatives
  /(?:sorry, we were|i wasn't|we were|i'm afraid i wasn't) (?:un)?able to deliver (?:your|the following|this) message/i,
  /was undeliverable to the following recipients?/i,
  /your message cannot be delivered to the following recipients?/i, // Sun
  /recipient'?s mailbox is (?:full|unavailable)/i,
];
const DELAYED = pattern('i')`
  \b(?:has not yet been delivered|will be retried|will continue to (?:be )?(?:try|tried|retry|retried|attempt)
  |delivery attempts will continue|will keep trying|(?:been|is) delayed|message delayed|transient non-fatal errors
  |no action is required on your part|do not need to resend|warning message only)\b
`;
// An SMTP reply in the text, most reliable first: a code with its enhanced code, that in brackets, then either alone.
const REPLY = /(?:^|[\s:<(#"'])([45]\d\d)[ -]+#?([45]\.\d{1,3}\.\d{1,3})\b[^\n]*/m;
const BRACKETED = /[^\n]*[(<#[]#?([45]\.\d{1,3}\.\d{1,3})[)>\]]?[^\n]*/;
const CODE = /(?:^|[\s:<"'])([45]\d\d)[ :-] ?(?=[^\d\s])[^\n]*/m;
const ENHANCED = /[^\n]*(?:^|[\s:])([45]\.\d{1,3}\.\d{1,3})\b[^\n]*/m;
const WORDS = pattern('i')`
  [^\n]*\b(?:user (?:is )?unknown|unknown user|no such (?:user|recipient|mailbox)|no mailbox here|does not exist
  |mailbox (?:is )?(?:full|unavailable|disabled|not found)|over ?quota|quota exceeded
  |account (?:is )?(?:disabled|inactive|suspended)|host (?:or domain name )?not found|illegal host|unrouteable address
  |unknown (?:local part|recipient)|not listed in|recipient not found|address rejected|relay(?:ing)? denied
  |connection (?:timed out|refused)|retry timeout exceeded|multiple retries|giving up|envelope expired
  |message (?:is )?too (?:large|big)|blocked|spam)\b[^\n]*
`;
/** Where the copy of the original message begins; nothing in it is a diagnosis. */
const COPY = pattern('im')`
  ^(?:-+ ?(?:below this line|the header of|this is a copy|original message|the body of|message header|returned message
  |unsent message|enclosed is|copy of)|received: from .{1,200}\n|return-path: <)
`;
const LONGEST_LINE = 1000;
const TEXT = 16 * 1024;
/** Characters of a bounce without a known reason that the event keeps. */
const MAX_WORDS = 300;

/**
 * Parses a plain-text bounce of qmail, Exim, Exchange and others; undefined if it does not look like one. If it states
 * no known reason, its first words are used.
 */
export function parsePlainBounce(mail: ReturnedMessage) {
  return isBounce(mail, clipped(readText(mail))) ? reasonGiven(mail) : undefined;
}

/** The reason in a returned mail of any format. `status`: such as `5.1.1`, if the text has one. */
export function reasonGiven(mail: ReturnedMessage) {
  const text = clipped(readText(mail));
  const said = reasonOf(text);
  const delayed = DELAYED.test(text) || /\bdelayed\b/i.test(decodeWords(valueOf(mail, 'subject')));
  const line = said?.line ?? (lineOf(text.slice(0, MAX_WORDS)) || decodeWords(valueOf(mail, 'subject')));
  return { action: delayed ? 'delayed' : 'failed', status: said?.status ?? null, diag: `smtp;${line}` } as const;
}

function isBounce(mail: ReturnedMessage, text: string): boolean {
  if (OPENING.some((opening) => opening.test(text))) return true;
  const named = firstValue(mail.fields, 'x-failed-recipients') !== undefined;
  return named || looksLikeBounce({ fields: mail.fields, author: addressFieldsOf(mail.fields).from });
}

function reasonOf(text: string) {
  const reply = REPLY.exec(text);
  if (reply) return { status: reply[2] ?? null, line: lineFrom(text, reply) };
  const bracketed = BRACKETED.exec(text) ?? ENHANCED.exec(text);
  const code = CODE.exec(text) ?? WORDS.exec(text);
  // A code on a line of its own (qmail wraps there) leaves its words on the line before.
  if (bracketed && (!code || /[a-z]{3}/i.test(bracketed[0])))
    return { status: bracketed[1] ?? null, line: lineFrom(text, bracketed) };
  return code ? { status: bracketed?.[1] ?? null, line: lineFrom(text, code) } : undefined;
}

/** The line that was found, and the next one if the words are there: `550 <jo@example.net>:`, then `User unknown`. */
function lineFrom(text: string, found: RegExpExecArray): string {
  const [line] = found;
  const rest = text.slice(found.index + line.length, found.index + line.length + LONGEST_LINE);
  return lineOf(/[:>]\s*$/.test(line) ? `${line} ${/^\n([^\n]+)/.exec(rest)?.[1] ?? ''}` : line);
}

/** The line from the code on, without quoting characters. */
function lineOf(match: string): string {
  return match
    .trim()
    .replace(/^[:<>("'#\s-]+/, '')
    .replace(/\s+/g, ' ');
}

/** The text before the copy of the original message, with lines truncated to bound pattern matching. */
function clipped(text: string): string {
  const head = text
    .slice(0, TEXT)
    .split('\n')
    .map((line) => line.slice(0, LONGEST_LINE))
    .join('\n');
  const copy = COPY.exec(head);
  // In a forwarded bounce the copy may come first; then nothing is left to read.
  return copy ? head.slice(0, copy.index) : head;
}
