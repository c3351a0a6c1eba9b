import { isUtf8 } from 'node:buffer';
import { charsetOfBody } from './charset.ts';
import { firstValue, type HeaderField } from './headers.ts';
import { parseMailboxes } from './mailboxes.ts';
import { parseStructured, type Structured } from './parameters.ts';
import type { FilePart, Mailbox, Parsed, Text } from './parsed.ts';
import type { Part } from './structure.ts';
import { decodeBody, decodeTransfer, type TransferEncoding } from './text.ts';
import { isCleanBase64 } from './transfer.ts';
import { decodeWords } from './words.ts';

/** Thrown inside the walk only: this message is for the library. */
class Uncommon extends Error {}

interface Found { readonly texts: Text[]; flowed: boolean; html: Text | undefined; readonly files: FilePart[] }

const ENCODINGS: ReadonlyMap<string, TransferEncoding> = new Map([
  ['', 'identity'], ['7bit', 'identity'], ['8bit', 'identity'], ['binary', 'identity'],
  ['base64', 'base64'], ['quoted-printable', 'quoted-printable'],
]);
const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/;
const UTF8_PARAMETER = /^utf-8'[^']*'((?:[\w!#$&+.^`{}~-]|%[0-9a-f]{2})*)$/i;
const ASCII = /^[\x00-\x7f]*$/;

/**
 * Reads a message of the common shapes straight from its bytes: text, HTML and files in any nesting of multiparts,
 * in the usual transfer encodings and charsets. Undefined for anything else; test/mail/message-walk.test.ts holds it against mailparser.
 */
export function walkMessage(bytes: Buffer, root: Part): Parsed | undefined {
  try {
    const found: Found = { texts: [], flowed: false, html: undefined, files: [] };
    walkPart(bytes, root, found);
    return { ...readHeader(bytes, root), ...toContent(found) };
  } catch (error) {
    if (error instanceof Uncommon) return undefined;
    throw error;
  }
}

function sure<T>(value: T | undefined): T {
  if (value === undefined) throw new Uncommon();
  return value;
}

function readHeader(bytes: Buffer, { fields, headerStart, bodyStart }: Part) {
  if (!isUtf8(bytes.subarray(headerStart, bodyStart))) throw new Uncommon();
  return {
    fields,
    subject: sure(decodeWords(only(fields, 'subject') ?? '')),
    from: mailboxes(only(fields, 'from'))[0],
    to: all(fields, 'to'),
    cc: firstValue(fields, 'cc') === undefined ? undefined : all(fields, 'cc'),
  };
}

/** Which of two is meant is no question for a quick reader. */
function only(fields: readonly HeaderField[], name: string): string | undefined {
  let value: string | undefined;
  for (const field of fields) {
    if (field.name.length !== name.length || field.name.toLowerCase() !== name) continue;
    if (value !== undefined) throw new Uncommon();
    value = field.value;
  }
  return value;
}

function all(fields: readonly HeaderField[], name: string): Mailbox[] {
  return fields.flatMap((field) => field.name.length === name.length && field.name.toLowerCase() === name ? mailboxes(field.value) : []);
}

function mailboxes(value: string | undefined): Mailbox[] {
  return value === undefined || value === '' ? [] : sure(parseMailboxes(value));
}

function toContent({ texts, flowed, html, files }: Found) {
  if (texts.length > 1 && texts.some((text) => typeof text !== 'string')) throw new Uncommon();
  const text = texts.length > 1 ? texts.join('\n') : texts[0];
  return { text, textFlowed: flowed, html, files };
}

function walkPart(bytes: Buffer, part: Part, found: Found): void {
  if (part.children.length > 0) {
    for (const child of part.children) walkPart(bytes, child, found);
    return;
  }
  const body = bytes.subarray(part.bodyStart, part.bodyEnd);
  const disposition = parseStructured(only(part.fields, 'content-disposition') ?? '');
  const mediaType = mediaTypeOf(part, disposition);
  const encoding = sure(ENCODINGS.get((only(part.fields, 'content-transfer-encoding') ?? '').toLowerCase()));
  if (encoding === 'base64' && !isCleanBase64(body)) throw new Uncommon();
  if (encoding === 'quoted-printable' && !isAscii(body)) throw new Uncommon();
  if (disposition.value !== 'attachment' && (mediaType === 'text/plain' || mediaType === 'text/html')) {
    addText(part, mediaType, body, encoding, found);
  } else {
    found.files.push(toFile(part, mediaType, disposition, body, encoding));
  }
}

function mediaTypeOf({ fields, type }: Part, disposition: Structured): string {
  if (!['', 'inline', 'attachment'].includes(disposition.value)) throw new Uncommon();
  const written = only(fields, 'content-type');
  if (written === undefined && disposition.value === '') return 'text/plain';
  if (!MEDIA_TYPE.test(type.value) || type.value.startsWith('multipart/')) throw new Uncommon();
  return type.value;
}

function addText(part: Part, mediaType: string, body: Buffer, encoding: TransferEncoding, found: Found): void {
  const { params } = part.type;
  if (params.has('charset*') || params.has('format*')) throw new Uncommon();
  // The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always shown it.
  const tail = part.parent === undefined || encoding === 'base64' ? '' : '\n';
  const text = decodeBody({ body, encoding, charset: sure(charsetOfBody(params.get('charset'))), tail });
  if (mediaType === 'text/html') { found.html ??= text; return; }
  if (found.texts.length === 0) found.flowed = params.get('format')?.toLowerCase() === 'flowed';
  found.texts.push(text);
}

function toFile(part: Part, type: string, disposition: Structured, body: Buffer, encoding: TransferEncoding): FilePart {
  const contentId = only(part.fields, 'content-id')?.replace(/^<|>$/g, '').trim();
  return {
    name: parameter(disposition, 'filename') || parameter(part.type, 'name'),
    type,
    contentId: contentId === undefined || contentId === '' ? null : contentId,
    disposition: disposition.value === '' ? null : disposition.value,
    content: encoding === 'base64' ? { kind: 'base64', lines: body } : { kind: 'bytes', chunks: [decodeTransfer(body, encoding)] },
  };
}

/** A parameter that names a file: plain, with encoded words as most software writes it, or the UTF-8 form of RFC 2231. */
function parameter({ params }: Structured, name: string): string {
  const extended = params.get(`${name}*`);
  if (extended !== undefined) {
    const [, value = ''] = UTF8_PARAMETER.exec(extended) ?? [];
    if (value === '') throw new Uncommon();
    return percentDecoded(value);
  }
  for (const key of params.keys()) if (key.startsWith(`${name}*`)) throw new Uncommon();
  return sure(decodeWords(params.get(name) ?? ''));
}

function percentDecoded(value: string): string {
  try {
    return decodeURIComponent(value);
  } catch {
    throw new Uncommon();
  }
}

function isAscii(body: Buffer): boolean {
  return ASCII.test(body.toString('latin1'));
}
