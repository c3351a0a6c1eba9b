import { type Bounce, classifyReply } from '../mail/bounce.ts';
import { decoderOfText } from '../mail/charset.ts';
import { asciiParameter, firstValue, type HeaderField, parseHeaders } from '../mail/headers.ts';
import { mediaTypeOf, type Part, scanStructure } from '../mail/structure.ts';
import { decodeTransfer, toTransferEncoding } from '../mail/transfer.ts';
import { parseDsn, parsePlainBounce, type RecipientStatus } from './bounce-report.ts';

/** A mail that came back, as far as it is needed to say what it is. */
export interface ReturnedMessage {
  readonly fields: readonly HeaderField[];
  /** Parts that are no multiparts, in their order. */
  readonly leaves: readonly Leaf[];
  /** The parameter `report-type` of a multipart/report (RFC 6522), lower case; '' for everything else. */
  readonly reportType: string;
}

/** A part with its body, which is decoded when it is asked for. */
interface Leaf {
  /** Media type in lower case; text/plain when nothing is said (RFC 2045 section 5.2). */
  readonly type: string;
  readonly bytes: () => Buffer;
}

/** Characters of a text that are looked at; what a bounce has to say stands at its beginning. */
const LONGEST_TEXT = 64 * 1024;
const LONGEST_LINE = 998;

/**
 * Reads the bytes of a mail that came back; undefined when it breaks a cap that no sane message does
 * (mail/outgoing.ts).
 */
function readReturned(bytes: Buffer): ReturnedMessage | undefined {
  const scan = scanStructure(bytes);
  if (scan.breach !== undefined) return undefined;
  const { root } = scan;
  const leaves = leavesOf(root).map((part) => toLeaf(bytes, part));
  const report = root.type.value === 'multipart/report' ? asciiParameter(root.type, 'report-type') : '';
  return { fields: root.fields, leaves, reportType: report.toLowerCase() };
}

/**
 * The value of a field of the mail itself, '' when there is none; as long as a line may be (RFC 5322 section 2.1.1), so
 * that no pattern takes long over it.
 */
export function valueOf({ fields }: ReturnedMessage, name: string): string {
  return (firstValue(fields, name) ?? '').slice(0, LONGEST_LINE).trim();
}

/**
 * The text that a person would read first, at most 64 Ki characters, LF line ends; HTML without its tags when there is
 * nothing else.
 */
export function readText({ leaves }: ReturnedMessage): string {
  const leaf = leaves.find(({ type }) => type === 'text/plain') ?? leaves.find(({ type }) => type === 'text/html');
  if (!leaf) return '';
  const text = leaf.bytes().subarray(0, LONGEST_TEXT).toString('utf8').replaceAll('\r\n', '\n');
  return leaf.type === 'text/html' ? withoutTags(text) : text;
}

/** The header section of a message, or of what stands in for one, as text of at most 64 KiB. */
export function headerText(bytes: Buffer): string {
  const start = bytes.subarray(0, LONGEST_TEXT).toString('latin1').replaceAll('\r\n', '\n').trimStart();
  const end = start.indexOf('\n\n');
  return end === -1 ? start : start.slice(0, end);
}

/** Blocks of fields with an empty line between, as reports are written (RFC 3464 section 2.1); at most `most`. */
export function readBlocks(bytes: Buffer, most: number): HeaderField[][] {
  const text = bytes.subarray(0, LONGEST_TEXT).toString('latin1').replaceAll('\r\n', '\n');
  const blocks: HeaderField[][] = [];
  for (const block of text.split(/\n[ \t]*(?=\n)/)) {
    const fields = parseHeaders(Buffer.from(block.replace(/^\n+/, ''), 'latin1'));
    if (fields.length > 0) blocks.push(fields);
    if (blocks.length === most) break;
  }
  return blocks;
}

function leavesOf(part: Part): Part[] {
  if (!part.type.value.startsWith('multipart/')) return [part];
  return part.children.flatMap(leavesOf);
}

function toLeaf(bytes: Buffer, part: Part): Leaf {
  const type = mediaTypeOf(part);
  const charset = asciiParameter(part.type, 'charset');
  return {
    type,
    bytes() {
      const decoded = decodeTransfer(
        bytes.subarray(part.bodyStart, part.bodyEnd),
        toTransferEncoding(firstValue(part.fields, 'content-transfer-encoding')),
      );
      return type.startsWith('text/') ? Buffer.from(decoderOfText(charset, () => [decoded])(decoded, true)) : decoded;
    },
  };
}

/** One pass, so that a text of nothing but `<` costs no more than another. */
function withoutTags(html: string): string {
  let text = '';
  for (let at = 0; at < html.length; ) {
    const open = html.indexOf('<', at);
    if (open === -1) return text + html.slice(at);
    text += `${html.slice(at, open)} `;
    const close = html.indexOf('>', open);
    if (close === -1) return text;
    at = close + 1;
  }
  return text;
}

/** What a mail that came back says, before anybody asks which message it is about. */
export type Judgement =
  /** Delivery failed, for now or for good (that is for the classifier), or is not done yet. */
  | { readonly kind: 'failed' | 'delayed'; readonly diag: string; readonly bounce: Bounce }
  /** `original`: what is left of the message that it is about. */
  | { readonly kind: 'spam'; readonly diag: string; readonly original: string }
  | { readonly kind: 'unsub'; readonly original: string }
  /** Nothing is recorded; why, in words for the log. */
  | { readonly kind: 'nothing'; readonly why: string };

/**
 * Types of feedback that are complaints, and those that ask to be taken off (RFC 5965 section 7.3 and its first
 * drafts).
 */
const COMPLAINTS = new Set(['', 'abuse', 'fraud', 'virus', 'other', 'complaint', 'spam']);
const OPT_OUTS = new Set(['opt-out', 'opt-out-list']);

/**
 * Says what came to a mailbox of the return domain. `email` is whom the message was sent to, as far as it is known: a
 * report may speak of others too, whom it was forwarded to. Pure and bounded: whatever a stranger writes is looked at
 * once.
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

function judgeAttached(mail: ReturnedMessage): Judgement {
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

function judgeText(mail: ReturnedMessage): Judgement {
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

const SUBJECT =
  /^\W*(?:re:\s*|aw:\s*)?\W*(?:auto(?:matic|mated|-?)? ?(?:re(?:ply|sponse|sponder)|answer)|auto:|out of (?:the )?office|away from (?:my|the) (?:desk|office|mail)|i(?:'m| am) (?:out|away|on (?:vacation|holiday|leave))|on (?:vacation|holiday|leave)|vacation|abwesen|automatische antwort|réponse automatique|absence|respuesta automática|fuera de (?:la )?oficina|risposta automatica|afwezig|autosvar|自動)/iu;
const CHALLENGE =
  /\b(?:confirm (?:that )?your (?:message|email|e-mail|address)|sender verification|verify your (?:message|email address)|challenge|please click (?:here|the link) to (?:confirm|deliver)|your message (?:is|was) (?:held|awaiting)|approve your (?:message|email))\b/i;

/**
 * Why a mail is one of those that programs send by themselves and that say nothing of the delivery; undefined when it
 * is none.
 */
function autoReplyKind(mail: ReturnedMessage): 'receipt' | 'challenge' | 'auto-reply' | undefined {
  // RFC 8098: somebody read it, or deleted it unread
  if (mail.reportType === 'disposition-notification') return 'receipt';
  const has = (name: string) => firstValue(mail.fields, name) !== undefined;
  const subject = valueOf(mail, 'subject');
  if (CHALLENGE.test(subject) || ['x-challenge', 'x-boxtrapper', 'x-spamarrest-speedcode'].some(has))
    return 'challenge';
  // RFC 3834 section 5: everything but `no` was sent by a program.
  const submitted = valueOf(mail, 'auto-submitted').toLowerCase();
  if (submitted !== '' && !submitted.startsWith('no')) return 'auto-reply';
  if (
    [
      'x-autoreply',
      'x-autorespond',
      'x-autoresponder',
      'x-autogenerated',
      'x-ms-exchange-inbox-rules-loop',
      'x-mail-autoreply',
    ].some(has)
  )
    return 'auto-reply';
  if (['auto_reply', 'auto-reply'].includes(valueOf(mail, 'precedence').toLowerCase()) || SUBJECT.test(subject))
    return 'auto-reply';
  return undefined;
}

/** A complaint about a message (RFC 5965), or a message handed in by hand with words about it. */
interface FeedbackReport {
  /** `abuse`, `fraud`, `virus`, `not-spam`, `auth-failure` …; empty when somebody just attached the message. */
  readonly type: string;
  readonly userAgent: string;
  /**
   * Everything that the reporter has left of the original: its header section, and the fields of the report that quote
   * its envelope.
   */
  readonly original: string;
}

const REPORT = 'message/feedback-report';
const ORIGINAL =
  /^(?:message\/rfc822|message\/global|text\/rfc822-headers|text\/rfc822|message\/rfc822-headers|message\/global-headers)$/;
const QUOTED = ['original-mail-from', 'original-rcpt-to', 'removal-recipient', 'original-envelope-id'];
const MOST_BLOCKS = 4;

/** Reads a feedback report; undefined when the mail is none. The fields that a reporter hides are simply not there. */
function parseFeedback(mail: ReturnedMessage): FeedbackReport | undefined {
  const leaf = mail.leaves.find(({ type }) => type === REPORT);
  return leaf && toReport(mail, readBlocks(leaf.bytes(), MOST_BLOCKS).flat());
}

/**
 * Reads a report of those who do not write the format: the message as an attachment, and that is all (the JMRP of
 * Microsoft, people who write to abuse@). Undefined when no message is attached.
 */
function parseAttached(mail: ReturnedMessage): FeedbackReport | undefined {
  return mail.leaves.some(({ type }) => ORIGINAL.test(type)) ? toReport(mail, []) : undefined;
}

function toReport(mail: ReturnedMessage, fields: Parameters<typeof firstValue>[0]): FeedbackReport {
  const quoted = fields.filter(({ name }) => QUOTED.includes(name.toLowerCase())).map(({ value }) => value);
  const originals = mail.leaves.filter(({ type }) => ORIGINAL.test(type)).map((leaf) => headerText(leaf.bytes()));
  return {
    type: (firstValue(fields, 'feedback-type') ?? '').trim().toLowerCase(),
    userAgent: firstValue(fields, 'user-agent') ?? '',
    // A folded header may have cut a token in two.
    original: [...quoted, ...originals.map((text) => text.replaceAll(/\n[ \t]+/g, ' '))].join('\n'),
  };
}
