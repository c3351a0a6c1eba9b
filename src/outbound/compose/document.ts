import { parseAddress } from '../../mail/address.ts';
import { soleAuthor } from '../../mail/author.ts';
import { applyChanges, type Change, type FieldSpan, findFields } from '../../mail/compose/fields.ts';
import { toCrlf } from '../../mail/compose/octets.ts';
import { toPlainText } from '../../mail/compose/plain-text.ts';
import { type HeaderField, parseHeaders } from '../../mail/headers.ts';
import { type Part, scanStructure } from '../../mail/structure.ts';
import { toMailDate } from '../../mail/trace.ts';
import { decodeWords } from '../../mail/words.ts';
import type { ComposeJob } from '../types.ts';
import { findLone, withOther } from './alternative.ts';
import { toField } from './mime.ts';
import type { Personal } from './personal.ts';
import { changeTextPart, type Rewrite } from './text-part.ts';

const NOTHING = Buffer.alloc(0);
/** What was said to us alone, and what only the last server may write (RFC 5321 section 4.4). */
const REMOVED = /^(?:x-mc-.*|bcc|resent-bcc|return-path)$/;
/** Not a byte inside of these may change: the signature is over them. */
const SEALED = new Set(['multipart/signed', 'multipart/encrypted']);
const MBOX_LINE = /^From [^:]/;

/** Makes a whole MIME document the message of one recipient; what need not change stays byte for byte. Throws `TooLong`. */
export function composeDocument(raw: Buffer, job: ComposeJob, personal: Personal): Buffer {
  const whole = toCrlf(raw);
  // A line of an mbox file in front is no field, and would end the header that we begin.
  const start = MBOX_LINE.test(whole.toString('latin1', 0, 10)) ? whole.indexOf('\n') + 1 : 0;
  const bytes = whole.subarray(start);
  const { fields, end } = findFields(bytes, 0);
  const headless = fields[0]?.name === ''; // no header at all
  const added = Buffer.from(addedFields(bytes, headless ? [] : fields, job, personal).join(''));
  if (headless) return Buffer.concat([added, Buffer.from('\r\n'), bytes]);
  const scan = scanStructure(bytes);
  const changes = [
    ...headerChanges(bytes, fields, job, personal),
    ...(scan.breach === undefined ? partChanges(bytes, scan.root, job, personal) : []),
  ];
  const pieces = [added, ...applyChanges(bytes, changes)];
  if (end === undefined) pieces.push(Buffer.from(bytes.at(-1) === 0x0a || bytes.length === 0 ? '\r\n' : '\r\n\r\n'));
  return Buffer.concat(pieces);
}

function addedFields(bytes: Buffer, fields: readonly FieldSpan[], job: ComposeJob, personal: Personal): string[] {
  const has = (name: string) => fields.some((field) => field.name === name);
  const { sender, fromName } = job.outgoing;
  return [
    ...(has('list-unsubscribe') ? [] : personal.listUnsubscribe.map(([name, value]) => toField(name, value))),
    ...(has('from') && !isOtherSender(bytes, fields, sender)
      ? []
      : [toField('From', { name: personal.fillLine(fromName ?? ''), address: sender })]),
    ...(has('date') ? [] : [toField('Date', toMailDate(job.at))]),
    ...(has('message-id') ? [] : [toField('Message-ID', personal.messageId)]),
  ];
}

/** Whether the one mailbox in From is certainly not the sender: the account gave another beside the document. */
function isOtherSender(bytes: Buffer, fields: readonly FieldSpan[], sender: string): boolean {
  const author = soleAuthor(fields.filter(({ name }) => name === 'from').flatMap((field) => fieldsIn(bytes, field)));
  const [given, wanted] = [parseAddress(author?.address ?? ''), parseAddress(sender)];
  if (!given || !wanted) return false;
  return given.domain !== wanted.domain || given.mailbox.toLowerCase() !== wanted.mailbox.toLowerCase();
}

function headerChanges(bytes: Buffer, fields: readonly FieldSpan[], job: ComposeJob, personal: Personal): Change[] {
  const foreign = isOtherSender(bytes, fields, job.outgoing.sender);
  const listed = fields.some(({ name }) => name === 'list-unsubscribe');
  const fill: Readonly<Record<string, typeof filledSubject>> = personal.merges
    ? { subject: filledSubject, from: filledFrom }
    : {};
  return fields.flatMap((field) => {
    const { name, start, end } = field;
    const removed = REMOVED.test(name) || (foreign && name === 'from') || (!listed && name === 'list-unsubscribe-post');
    if (removed) return [{ start, end, bytes: NOTHING }];
    const changed = Object.hasOwn(fill, name) ? fill[name]?.(bytes, field, personal) : undefined;
    return changed === undefined ? [] : [{ start, end, bytes: Buffer.from(changed) }];
  });
}

function filledSubject(bytes: Buffer, field: FieldSpan, personal: Personal): string | undefined {
  const subject = decodeWords(valueOf(bytes, field));
  const filled = subject !== undefined && personal.hasTags(subject) ? personal.fillLine(subject) : subject;
  return filled === undefined || filled === subject ? undefined : toField('Subject', filled);
}

function filledFrom(bytes: Buffer, field: FieldSpan, personal: Personal): string | undefined {
  const mailbox = soleAuthor(fieldsIn(bytes, field));
  if (!mailbox?.name || !personal.hasTags(mailbox.name)) return undefined;
  const name = personal.fillLine(mailbox.name);
  return name === mailbox.name ? undefined : toField('From', { name, address: mailbox.address });
}

/** In one line, folds taken out. */
function valueOf(bytes: Buffer, field: FieldSpan): string {
  return fieldsIn(bytes, field)[0]?.value ?? '';
}

function fieldsIn(bytes: Buffer, { start, end }: FieldSpan): HeaderField[] {
  return parseHeaders(bytes.subarray(start, end));
}

/** The changes in all text parts. The pixel stands in the first HTML part. */
function partChanges(bytes: Buffer, root: Part, job: ComposeJob, personal: Personal): Change[] {
  const changes: Change[] = [];
  const { autoText, extras } = job.outgoing;
  const loneOf = (asked: boolean | undefined, type: 'text/plain' | 'text/html') =>
    asked === true ? findLone(root, type, SEALED) : undefined;
  const [onlyText, onlyHtml] = [loneOf(extras?.autoHtml, 'text/plain'), loneOf(autoText, 'text/html')];
  let pixels = 0;
  const rewrite: Rewrite = (text, type) => {
    const filled = personal.fill(text, type);
    return type === 'text/html' ? personal.trackHtml(filled, pixels++ === 0) : personal.trackText(filled);
  };
  const open = [root];
  for (let part = open.pop(); part; part = open.pop()) {
    if (SEALED.has(part.type.value)) continue;
    open.push(...part.children.toReversed());
    if (part.children.length > 0 || part.type.value.startsWith('multipart/')) continue;
    if (part === onlyText) changes.push(...loneText(bytes, part, job, personal));
    else if (part === onlyHtml) changes.push(...loneHtml(bytes, part, job, personal, pixels++ === 0));
    else changes.push(...changeTextPart(bytes, part, personal.merges || personal.tracks ? rewrite : undefined));
  }
  return changes;
}

/** The changes in the text part of a message that gets HTML besides; a part that cannot be read gets none. */
function loneText(bytes: Buffer, part: Part, { id }: ComposeJob, personal: Personal): Change[] {
  let html = '';
  const changes = changeTextPart(bytes, part, (text) => {
    const filled = personal.fill(text, 'text/plain');
    if (filled.trim() !== '') html = personal.trackHtml(personal.toHtml(filled), true).replace(/\r?\n/g, '\r\n');
    return personal.trackText(filled);
  });
  return html === '' ? changes : withOther(bytes, part, changes, { type: 'text/html', text: html }, `=_${id}-html`);
}

/** The same for the HTML of a message that gets a text besides. */
function loneHtml(bytes: Buffer, part: Part, { id }: ComposeJob, personal: Personal, withPixel: boolean): Change[] {
  let text = '';
  const changes = changeTextPart(bytes, part, (html) => {
    const filled = personal.fill(html, 'text/html');
    text = personal.trackText(toPlainText(filled)).replace(/\r?\n/g, '\r\n');
    return personal.trackHtml(filled, withPixel);
  });
  return text === '' ? changes : withOther(bytes, part, changes, { type: 'text/plain', text }, `=_${id}-text`);
}
