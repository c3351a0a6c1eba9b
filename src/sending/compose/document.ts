import { isAscii } from 'node:buffer';
import { isAuthor, type SoleAuthor, soleAuthorOf, UnclearAuthor } from '../../mail/addresses/author.ts';
import { toMailDate } from '../../mail/addresses/envelope.ts';
import {
  applyChanges,
  encodeBase64,
  encodeQuotedPrintable,
  type FieldSpan,
  findFields,
  fitsLines,
  type Replacement,
  setField,
  toContentType,
  toCrlf,
} from '../../mail/compose/fields.ts';
import { toPlainText } from '../../mail/compose/plain-text.ts';
import { encodedValue, type HeaderFacts, needSmtpUtf8, sendableChanges } from '../../mail/compose/sendable.ts';
import { decodeWords, firstValue, parseHeaders, parseStructured } from '../../mail/mime/headers.ts';
import {
  encodingOf,
  encodingWord,
  leavesOf,
  mediaTypeOf,
  type Part,
  scanStructure,
} from '../../mail/mime/structure.ts';
import { decodeTransfer, type TransferEncoding } from '../../mail/mime/transfer.ts';
import type { ComposeJob } from '../types.ts';
import type { Personalization } from './compose.ts';
import { fromField, toField, toTextPart } from './draft.ts';

const NOTHING = Buffer.alloc(0);
/** Fields for Postern only, and those that only the final server may write (RFC 5321 section 4.4). */
const REMOVED = /^(?:x-mc-.*|bcc|resent-bcc|return-path)$/;
/** Nothing inside these may change, because they are signed or encrypted. */
const SEALED = new Set(['multipart/signed', 'multipart/encrypted']);
const MBOX_LINE = /^From (?![ \t]*:)/;

/**
 * Composes a complete MIME document for one recipient; everything unaffected stays byte for byte. Throws
 * `RenderedTooLong`.
 */
export function composeDocument(raw: Buffer, job: ComposeJob, personal: Personalization): Buffer {
  const whole = toCrlf(raw);
  // A leading mbox "From " line is not a field, and would end the header that we prepend.
  const start = MBOX_LINE.test(whole.toString('latin1', 0, 10)) ? whole.indexOf('\n') + 1 : 0;
  const bytes = whole.subarray(start);
  const { fields, end } = findFields(bytes, 0);
  const headless = fields[0]?.name === ''; // no header at all
  const scan = scanStructure(bytes);
  const facts: HeaderFacts = {
    charset: () => bodyCharset(scan.root),
    utf8: needSmtpUtf8(job.recipient, job.outgoing.sender),
  };
  const mended = headless ? [] : sendableChanges(bytes, fields, facts);
  const author = headless ? undefined : authorOf(Buffer.concat(applyChanges(bytes.subarray(0, end), mended)));
  const added = Buffer.from(addedFields(headless ? [] : fields, author, job, personal).join(''));
  if (headless) return Buffer.concat([added, Buffer.from('\r\n'), bytes]);
  const header = headerChanges(bytes, fields, mended, author, job, personal);
  const parts = scan.breach === undefined ? partChanges(bytes, scan.root, job, personal) : [];
  const sendable = scan.breach === undefined ? sendablePartHeaders(bytes, scan.root, facts) : [];
  // Fields that were rewritten for their part are sendable.
  const anew = new Set(parts.filter((change) => change.end > change.start).map((change) => change.start));
  const changes = [...parts, ...[...header, ...sendable].filter((change) => !anew.has(change.start))];
  const pieces = [added, ...applyChanges(bytes, changes)];
  if (end === undefined) pieces.push(Buffer.from(bytes.at(-1) === 0x0a || bytes.length === 0 ? '\r\n' : '\r\n\r\n'));
  return Buffer.concat(pieces);
}

/** The author of a document; undefined if it has no From. Throws `UnclearAuthor`. */
function authorOf(header: Buffer): SoleAuthor | undefined {
  const author = soleAuthorOf(header);
  if (!('unclear' in author)) return author;
  if (author.missing) return undefined;
  throw new UnclearAuthor(author.unclear);
}

function addedFields(
  fields: readonly FieldSpan[],
  author: SoleAuthor | undefined,
  job: ComposeJob,
  personal: Personalization,
): string[] {
  const has = (name: string) => fields.some((field) => field.name === name);
  const { sender, fromName } = job.outgoing;
  return [
    ...(has('list-unsubscribe') ? [] : personal.listUnsubscribe.map(([name, value]) => toField(name, value))),
    ...(author && isAuthor(author, sender) ? [] : [fromField(personal.fillLine(fromName ?? ''), sender)]),
    ...(has('date') ? [] : [toField('Date', toMailDate(job.at))]),
    ...(has('message-id') ? [] : [toField('Message-ID', personal.messageId)]),
  ];
}

function headerChanges(
  bytes: Buffer,
  fields: readonly FieldSpan[],
  mended: readonly Replacement[],
  author: SoleAuthor | undefined,
  job: ComposeJob,
  personal: Personalization,
): Replacement[] {
  const mendedAt = new Map(mended.map((change) => [change.start, change]));
  const listed = fields.some(({ name }) => name === 'list-unsubscribe');
  // The account named another sender than the document.
  const replaced = author !== undefined && !isAuthor(author, job.outgoing.sender);
  return fields.flatMap((field) => {
    const { name, start, end } = field;
    const removed =
      REMOVED.test(name) || (replaced && name === 'from') || (!listed && name === 'list-unsubscribe-post');
    if (removed) return [{ start, end, bytes: NOTHING }];
    const sendable = mendedAt.get(start);
    const changed =
      name === 'from' && author
        ? writtenFrom(author, sendable !== undefined, personal)
        : name === 'subject' && personal.merges
          ? filledSubject(sendable?.bytes ?? bytes.subarray(start, end), personal)
          : undefined;
    return changed === undefined ? (sendable ? [sendable] : []) : [{ start, end, bytes: Buffer.from(changed) }];
  });
}

/** From with its name merged, and in plain form; undefined if the field stays as it is. `mended`: it cannot stay. */
function writtenFrom(
  { name, address, plain }: SoleAuthor,
  mended: boolean,
  personal: Personalization,
): string | undefined {
  const filled = name !== null && personal.hasTags(name) ? personal.fillLine(name) : (name ?? '');
  return plain && !mended && filled === (name ?? '') ? undefined : fromField(filled, address);
}

function filledSubject(field: Buffer, personal: Personalization): string | undefined {
  const subject = decodeWords(parseHeaders(field)[0]?.value ?? '');
  const filled = subject !== undefined && personal.hasTags(subject) ? personal.fillLine(subject) : subject;
  return filled === undefined || filled === subject ? undefined : toField('Subject', filled);
}

/** The charset that the first text of a message declares; '' if it declares none. */
function bodyCharset(root: Part | undefined): string {
  const text = root && leavesOf(root).find((part) => mediaTypeOf(part).startsWith('text/'));
  return text?.type.params.get('charset')?.trim() ?? '';
}

/** A part and all parts in it, in order; sealed parts only as a whole. */
function* partsOf(root: Part): Generator<Part> {
  const open = [root];
  for (let part = open.pop(); part; part = open.pop()) {
    yield part;
    if (!SEALED.has(part.type.value)) open.push(...part.children.toReversed());
  }
}

/** The changes to headers of parts, except sealed ones. An attached message is one part, and stays unchanged. */
function sendablePartHeaders(bytes: Buffer, root: Part, facts: HeaderFacts): Replacement[] {
  const changes: Replacement[] = [];
  for (const part of partsOf(root)) {
    if (part === root || SEALED.has(part.type.value)) continue;
    const { fields } = findFields(bytes.subarray(0, part.bodyStart), part.headerStart);
    const named = fields.filter(({ name }) => name !== '');
    changes.push(...sendableChanges(bytes, named, facts));
  }
  return changes;
}

/** The changes in all text parts. The pixel goes into the first HTML part. */
function partChanges(bytes: Buffer, root: Part, job: ComposeJob, personal: Personalization): Replacement[] {
  const changes: Replacement[] = [];
  const { autoText, extras } = job.outgoing;
  const loneOf = (asked: boolean | undefined, type: Saying) => (asked === true ? findLone(root, type) : undefined);
  const [onlyText, onlyHtml] = [loneOf(extras?.autoHtml, 'text/plain'), loneOf(autoText, 'text/html')];
  let pixels = 0;
  const rewrite: Rewrite = (text, type) => {
    const filled = personal.fill(text, type);
    return type === 'text/html' ? personal.trackHtml(filled, pixels++ === 0) : personal.trackText(filled);
  };
  for (const part of partsOf(root)) {
    if (part.children.length > 0 || part.type.value.startsWith('multipart/')) continue;
    if (part === onlyText) changes.push(...loneText(bytes, part, job, personal));
    else if (part === onlyHtml) changes.push(...loneHtml(bytes, part, job, personal, pixels++ === 0));
    else changes.push(...changeTextPart(bytes, part, personal.merges || personal.tracks ? rewrite : undefined));
  }
  return changes;
}

/** The changes to a text part that gets an HTML alternative; none if the part cannot be decoded. */
function loneText(bytes: Buffer, part: Part, { id }: ComposeJob, personal: Personalization): Replacement[] {
  let html = '';
  const changes = changeTextPart(bytes, part, (text) => {
    const filled = personal.fill(text, 'text/plain');
    if (filled.trim() !== '') html = personal.trackHtml(personal.toHtml(filled), true).replace(/\r?\n/g, '\r\n');
    return personal.trackText(filled);
  });
  return html === '' ? changes : withOther(bytes, part, changes, { type: 'text/html', text: html }, `=_${id}-html`);
}

/** The same for an HTML part that gets a text alternative. */
function loneHtml(
  bytes: Buffer,
  part: Part,
  { id }: ComposeJob,
  personal: Personalization,
  withPixel: boolean,
): Replacement[] {
  let text = '';
  const changes = changeTextPart(bytes, part, (html) => {
    const filled = personal.fill(html, 'text/html');
    text = personal.trackText(toPlainText(filled)).replace(/\r?\n/g, '\r\n');
    return personal.trackHtml(filled, withPixel);
  });
  return text === '' ? changes : withOther(bytes, part, changes, { type: 'text/plain', text }, `=_${id}-text`);
}

const LINE_END = Buffer.from('\r\n');
const ABOUT_THE_BODY = /^content-/i;
const EIGHT_BIT = /^content-transfer-encoding[ \t]*:[ \t\r\n]*(8bit|binary)/im;

/** The media type of a readable part. */
type Saying = 'text/plain' | 'text/html';

/**
 * The only readable part, if it has the wanted type: the other alternative is made from it. Undefined if there is none,
 * or part of the message is sealed.
 */
function findLone(root: Part, wanted: Saying): Part | undefined {
  let found: Part | undefined;
  for (const part of partsOf(root)) {
    if (SEALED.has(part.type.value)) return undefined;
    if (part.children.length > 0 || isFile(part)) continue;
    const type = mediaTypeOf(part);
    if (type === wanted) found ??= part;
    else if (isSaying(type)) return undefined;
  }
  return found;
}

const isSaying = (type: string): type is Saying => type === 'text/html' || type === 'text/plain';

function isFile({ fields }: Part): boolean {
  const disposition = parseStructured(firstValue(fields, 'content-disposition') ?? '').value;
  return disposition !== '' && disposition !== 'inline';
}

/** Replaces a part by a multipart/alternative of itself and the generated one. `changes` are those of the part. */
function withOther(
  bytes: Buffer,
  part: Part,
  changes: readonly Replacement[],
  other: { readonly type: Saying; readonly text: string },
  boundary: string,
): Replacement[] {
  const { fields } = findFields(bytes.subarray(0, part.bodyStart), part.headerStart);
  const moved = fields.filter(({ name }) => ABOUT_THE_BODY.test(name));
  const body = changes.find(({ start }) => start === part.bodyStart);
  const inside = changes.filter(
    (change) => change !== body && ABOUT_THE_BODY.test(change.bytes.toString('latin1', 0, 20)),
  );
  const others = changes.filter((change) => change !== body && !inside.includes(change));
  const header = innerHeader(bytes, moved, inside);
  const own = Buffer.concat([header, LINE_END, body?.bytes ?? bytes.subarray(part.bodyStart, part.bodyEnd)]);
  const made = toTextPart(other.type, other.text);
  const isMime =
    part.parent !== undefined || others.length > 0 || firstValue(part.fields, 'mime-version') !== undefined;
  const at = moved[0]?.start ?? part.headerStart;
  return [
    ...others,
    { start: at, end: at, bytes: outerHeader(boundary, header, isMime) },
    ...moved.map(({ start, end }) => ({ start, end, bytes: NOTHING })),
    // Plainest first (RFC 2046 section 5.1.4).
    {
      start: part.bodyStart,
      end: part.bodyEnd,
      bytes: other.type === 'text/html' ? join(boundary, own, made) : join(boundary, made, own),
    },
  ];
}

/** The Content fields of the part, with its changes applied. */
function innerHeader(bytes: Buffer, moved: readonly FieldSpan[], inside: readonly Replacement[]): Buffer {
  return Buffer.concat([
    ...moved.map(
      (span) => inside.find((change) => isOver(change, span))?.bytes ?? bytes.subarray(span.start, span.end),
    ),
    ...inside.filter((change) => !moved.some((span) => isOver(change, span))).map((change) => change.bytes),
  ]);
}

/** The Content fields of the multipart. `inner`: those of the original part. */
function outerHeader(boundary: string, inner: Buffer, isMime: boolean): Buffer {
  const encoding = EIGHT_BIT.exec(inner.toString('latin1'))?.[1];
  return Buffer.from(
    [
      `Content-Type: multipart/alternative; boundary="${boundary}"\r\n`,
      ...(encoding === undefined ? [] : [`Content-Transfer-Encoding: ${encoding}\r\n`]),
      ...(isMime ? [] : ['MIME-Version: 1.0\r\n']),
    ].join(''),
  );
}

function join(boundary: string, first: Buffer, second: Buffer): Buffer {
  const delimiter = Buffer.from(`--${boundary}\r\n`);
  return Buffer.concat([delimiter, first, LINE_END, delimiter, second, LINE_END, Buffer.from(`--${boundary}--\r\n`)]);
}

function isOver(change: Replacement, span: FieldSpan): boolean {
  return change.start === span.start && change.end === span.end;
}

/** Rewrites the text of a part; returns the same text if nothing changes. */
type Rewrite = (text: string, type: Saying) => string;

interface TextPart {
  readonly part: Part;
  readonly type: string;
  readonly charset: string;
  readonly encoding: TransferEncoding;
  readonly body: Buffer;
}

const IDENTITIES = new Set(['', '7bit', '8bit', 'binary']);
const UTF8 = new Set(['utf-8', 'utf8']);
const ASCII = new Set(['', 'us-ascii', 'ascii']);
const LONE_BREAK = /(?<!\r)\n|\r(?!\n)/;
/** Charsets that are not supersets of ASCII. */
const NOT_ASCII = /^(?:utf-16|ucs-2|unicode|iso-2022|csiso2022|hz-gb)/;

/**
 * The changes to a text part: its text as `rewrite` returns it, and its encoding if that must follow or lines exceed
 * the SMTP limit. A part with an unknown charset or encoding, or with bytes invalid in its charset, stays byte for
 * byte.
 */
function changeTextPart(bytes: Buffer, part: Part, rewrite: Rewrite | undefined): Replacement[] {
  const text = readTextPart(bytes, part);
  if (!text) return [];
  const rewritten = rewrite && rewriteText(text, rewrite);
  if (rewritten) return written(bytes, text, rewritten.bytes, rewritten.charset);
  return fitsLines(text.body) ? [] : written(bytes, text, decodeTransfer(text.body, text.encoding), undefined);
}

function readTextPart(bytes: Buffer, part: Part): TextPart | undefined {
  const type = mediaTypeOf(part);
  const encoding = encodingOf(part);
  const unknown = encoding === 'uuencode' || (encoding === 'identity' && !IDENTITIES.has(encodingWord(part)));
  if (!type.startsWith('text/') || unknown) return undefined;
  const charset = (part.type.params.get('charset') ?? '').trim().toLowerCase();
  return { part, type, charset, encoding, body: bytes.subarray(part.bodyStart, part.bodyEnd) };
}

/** Undefined if nothing changes. `charset` is the one to declare; undefined: keep the declared one. */
function rewriteText(
  { part, type, charset, encoding, body }: TextPart,
  rewrite: Rewrite,
): { bytes: Buffer; charset: string | undefined } | undefined {
  if (!isSaying(type) || isFile(part)) return undefined;
  const text = decode(decodeTransfer(body, encoding), charset);
  const changed = text === undefined ? undefined : rewrite(text, type);
  if (text === undefined || changed === undefined || changed === text) return undefined;
  // Merged values get the line endings of the text around them.
  const bytes = Buffer.from(LONE_BREAK.test(text) ? changed : changed.replace(/\r\n?|\n/g, '\r\n'));
  const stays =
    UTF8.has(charset) ||
    (isAscii(bytes) && !NOT_ASCII.test(charset)) ||
    (ASCII.has(charset) && !isAscii(body) && encoding === 'identity');
  return { bytes, charset: stays ? undefined : 'utf-8' };
}

/** Decodes text; undefined if the bytes are invalid in that charset. */
function decode(bytes: Buffer, charset: string): string | undefined {
  try {
    return new TextDecoder(ASCII.has(charset) ? 'utf-8' : charset, { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The new body of a part, in its old encoding if possible, and the header fields that change. */
function written(
  bytes: Buffer,
  { part, type, encoding, body }: TextPart,
  content: Buffer,
  charset: string | undefined,
): Replacement[] {
  const changes: Replacement[] = [];
  const { fields } = findFields(bytes.subarray(0, part.bodyStart), part.headerStart);
  const set = (name: string, value: string) => changes.push(setField(fields, part.headerStart, name, value));
  if (charset !== undefined) {
    const contentType = toContentType(type, part.type, charset);
    set('Content-Type', encodedValue('Content-Type', contentType) ?? contentType);
  }
  // New 8-bit bytes would need a declaration, and a server that accepts them.
  const plain = encoding === 'identity' && fitsLines(content) && (isAscii(content) || !isAscii(body));
  if (encoding === 'identity' && !plain) set('Content-Transfer-Encoding', 'quoted-printable');
  if (changes.length > 0 && part.parent === undefined && firstValue(part.fields, 'mime-version') === undefined)
    set('MIME-Version', '1.0');
  const encoded = plain ? content : encoding === 'base64' ? encodeBase64(content) : encodeQuotedPrintable(content);
  return [...changes, { start: part.bodyStart, end: part.bodyEnd, bytes: encoded }];
}
