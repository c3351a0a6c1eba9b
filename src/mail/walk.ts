import { allValues, type HeaderField } from './headers.ts';
import { isExtended, parseStructured, type Structured } from './parameters.ts';
import type { Addressing, FilePart, Parsed, Text } from './parsed.ts';
import { mediaTypeOf, type Part } from './structure.ts';
import { decodeBody } from './text.ts';
import { decodeTransfer, isCleanBase64, type TransferEncoding, toTransferEncoding } from './transfer.ts';
import { decodeWords } from './words.ts';

/** What stands in the body of a message. */
export type Body = Omit<Parsed, 'fields' | keyof Addressing>;

/** The texts of a message and its files, part by part. */
interface Found {
  readonly texts: Text[];
  readonly html: Text[];
  /** Whether the first text is format=flowed. */
  flowed: boolean;
  readonly files: FilePart[];
  /** Whether there is something that the library has to read. */
  declined: boolean;
}

const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/;
const UTF8_PARAMETER = /^utf-8'[^']*'((?:[\w!#$&+.^`{}~-]|%[0-9a-f]{2})*)$/i;

/**
 * Reads texts and files straight from the bytes: nothing is copied that need not be, and large ones are decoded when
 * they are written. Undefined when the message has what is rare, and the library is to read it whole: parameters in
 * the forms of RFC 2231, but for the name of a file in UTF-8 and one piece.
 */
export function walkBody(bytes: Buffer, root: Part): Body | undefined {
  const found: Found = { texts: [], html: [], flowed: false, files: [], declined: false };
  walkPart(bytes, root, found);
  return found.declined ? undefined : bodyOf(found);
}

/**
 * The body that parts make. Beside a text the first HTML part is its formatted form; without one all of them are what
 * is there to read.
 */
export function bodyOf({ texts, html, flowed, files }: Omit<Found, 'declined'>): Body {
  const shown = texts.length > 0 ? html[0] : joined(html, '<br/>\n');
  return { text: joined(texts, '\n'), textFlowed: flowed, html: shown, files };
}

/** The subject, decoded; '' when there is none. Of several the last one counts, as mailparser has it. */
export function walkSubject(fields: readonly HeaderField[]): string {
  return decodeWords(allValues(fields, 'subject').at(-1) ?? '');
}

function joined(texts: readonly Text[], separator: string): Text | undefined {
  if (texts.length <= 1) return texts[0];
  if (texts.every((text) => typeof text === 'string')) return texts.join(separator);
  return function* () {
    for (const [i, text] of texts.entries()) {
      if (i > 0) yield separator;
      if (typeof text === 'string') yield text;
      else yield* text();
    }
  };
}

function walkPart(bytes: Buffer, part: Part, found: Found): void {
  for (const child of part.children) walkPart(bytes, child, found);
  if (isExtended(part.type, 'charset') || isExtended(part.type, 'boundary')) found.declined = true;
  // A multipart without parts is shown as what it is then: text.
  if (part.children.length > 0) return;
  const body = bytes.subarray(part.bodyStart, part.bodyEnd);
  const encoding = toTransferEncoding(allValues(part.fields, 'content-transfer-encoding')[0]);
  const disposition = parseStructured(allValues(part.fields, 'content-disposition')[0] ?? '');
  const type = typeOf(part, disposition);
  const attached = disposition.value !== '' && disposition.value !== 'inline';
  if (!attached && (type === 'text/plain' || type === 'text/html')) addText(part, type, body, encoding, found);
  else addFile(part, { type, disposition, body, encoding }, found);
}

/**
 * What nobody declared, or wrongly, is text (RFC 2045 section 5.2), but a file of unknown type when it is sent as
 * one.
 */
function typeOf(part: Part, disposition: Structured): string {
  const type = mediaTypeOf(part);
  const declared = part.type.value !== '' || type !== 'text/plain';
  if (declared && MEDIA_TYPE.test(type) && !type.startsWith('multipart/')) return type;
  return disposition.value === '' || disposition.value === 'inline' ? 'text/plain' : 'application/octet-stream';
}

function addText(part: Part, type: string, body: Buffer, encoding: TransferEncoding, found: Found): void {
  const { params } = part.type;
  // The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always shown it.
  const tail = part.parent === undefined || encoding === 'base64' || encoding === 'uuencode' ? '' : '\n';
  const text = decodeBody({ body, encoding, charset: params.get('charset'), tail });
  if (type === 'text/html') {
    found.html.push(text);
    return;
  }
  if (found.texts.length === 0) found.flowed = params.get('format')?.toLowerCase() === 'flowed';
  found.texts.push(text);
}

interface EncodedFile {
  readonly type: string;
  readonly disposition: Structured;
  readonly body: Buffer;
  readonly encoding: TransferEncoding;
}

function addFile(part: Part, { type, disposition, body, encoding }: EncodedFile, found: Found): void {
  const contentId = allValues(part.fields, 'content-id')[0]?.replace(/^<|>$/g, '').trim();
  const own = parameter(disposition, 'filename');
  const name = own === '' ? parameter(part.type, 'name') : own;
  if (name === undefined) found.declined = true;
  if (found.declined) return;
  found.files.push({
    type,
    name: name ?? '',
    contentId: contentId === undefined || contentId === '' ? null : contentId,
    disposition: disposition.value === '' ? null : disposition.value,
    content:
      encoding === 'base64' && isCleanBase64(body)
        ? { kind: 'base64', lines: body }
        : { kind: 'bytes', chunks: [decodeTransfer(body, encoding)] },
  });
}

/**
 * A parameter that names a file: plain, with encoded words as most software writes it, or the UTF-8 form of RFC 2231.
 * Undefined for its other forms.
 */
function parameter(type: Structured, name: string): string | undefined {
  const extended = type.params.get(`${name}*`);
  if (extended !== undefined) return percentDecoded(UTF8_PARAMETER.exec(extended)?.[1]);
  return isExtended(type, name) ? undefined : decodeWords(type.params.get(name) ?? '');
}

function percentDecoded(value: string | undefined): string | undefined {
  try {
    return value === undefined ? undefined : decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
