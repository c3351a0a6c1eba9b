import { decoderOfBody } from './charset.ts';
import { allValues, type HeaderField } from './headers.ts';
import { parseStructured, type Structured } from './parameters.ts';
import type { Addressing, FilePart, Parsed, Text } from './parsed.ts';
import type { Part } from './structure.ts';
import { decodeBody } from './text.ts';
import { decodeTransfer, isCleanBase64, toTransferEncoding, type TransferEncoding } from './transfer.ts';
import { decodeWords } from './words.ts';

/** A file whose name is undefined has one that is for the library (`part` holds its fields). */
export interface WalkedFile extends Omit<FilePart, 'name'> {
  readonly name: string | undefined;
  readonly part: Part;
}

/** What stands in the body of a message. */
export interface Walked extends Omit<Parsed, 'files' | 'fields' | keyof Addressing> {
  readonly files: readonly WalkedFile[];
}

interface Found { readonly texts: Text[]; flowed: boolean; html: Text | undefined; readonly files: WalkedFile[] }

const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+$/;
const UTF8_PARAMETER = /^utf-8'[^']*'((?:[\w!#$&+.^`{}~-]|%[0-9a-f]{2})*)$/i;

/** Reads texts and files straight from the bytes: nothing is copied that need not be, and large ones are decoded when they are written. */
export function walkBody(bytes: Buffer, root: Part): Walked {
  const found: Found = { texts: [], flowed: false, html: undefined, files: [] };
  walkPart(bytes, root, found);
  return { text: joined(found.texts), textFlowed: found.flowed, html: found.html, files: found.files };
}

/** Reads the subject in the common forms; undefined when there is something that the library knows better. */
export function walkSubject(fields: readonly HeaderField[]): string | undefined {
  const [subject = '', ...others] = allValues(fields, 'subject');
  return others.length > 0 ? undefined : decodeWords(subject);
}

function joined(texts: readonly Text[]): Text | undefined {
  if (texts.length <= 1) return texts[0];
  if (texts.every((text) => typeof text === 'string')) return texts.join('\n');
  return function* () {
    for (const [i, text] of texts.entries()) {
      if (i > 0) yield '\n';
      if (typeof text === 'string') yield text;
      else yield* text();
    }
  };
}

function walkPart(bytes: Buffer, part: Part, found: Found): void {
  for (const child of part.children) walkPart(bytes, child, found);
  // A multipart without parts is shown as what it is then: text.
  if (part.children.length > 0) return;
  const body = bytes.subarray(part.bodyStart, part.bodyEnd);
  const encoding = toTransferEncoding(allValues(part.fields, 'content-transfer-encoding')[0]);
  const disposition = parseStructured(allValues(part.fields, 'content-disposition')[0] ?? '');
  const type = mediaTypeOf(part, disposition);
  const attached = disposition.value !== '' && disposition.value !== 'inline';
  if (!attached && (type === 'text/plain' || type === 'text/html')) addText(part, type, body, encoding, found);
  else found.files.push(toFile(part, type, disposition, body, encoding));
}

/** What nobody declared, or wrongly, is text (RFC 2045 section 5.2), but a file of unknown type when it is sent as one. */
function mediaTypeOf({ type }: Part, disposition: Structured): string {
  if (MEDIA_TYPE.test(type.value) && !type.value.startsWith('multipart/')) return type.value;
  return disposition.value === '' || disposition.value === 'inline' ? 'text/plain' : 'application/octet-stream';
}

function addText(part: Part, type: string, body: Buffer, encoding: TransferEncoding, found: Found): void {
  const { params } = part.type;
  // The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always shown it.
  const tail = part.parent === undefined || encoding === 'base64' ? '' : '\n';
  const text = decodeBody({ body, encoding, decoder: () => decoderOfBody(params.get('charset')), tail });
  if (type === 'text/html') { found.html ??= text; return; }
  if (found.texts.length === 0) found.flowed = params.get('format')?.toLowerCase() === 'flowed';
  found.texts.push(text);
}

function toFile(part: Part, type: string, disposition: Structured, body: Buffer, encoding: TransferEncoding): WalkedFile {
  const contentId = allValues(part.fields, 'content-id')[0]?.replace(/^<|>$/g, '').trim();
  const name = parameter(disposition, 'filename');
  return {
    part, type,
    name: name === '' ? parameter(part.type, 'name') : name,
    contentId: contentId === undefined || contentId === '' ? null : contentId,
    disposition: disposition.value === '' ? null : disposition.value,
    content: encoding === 'base64' && isCleanBase64(body) ? { kind: 'base64', lines: body } : { kind: 'bytes', chunks: [decodeTransfer(body, encoding)] },
  };
}

/** A parameter that names a file: plain, with encoded words as most software writes it, or the UTF-8 form of RFC 2231. */
function parameter({ params }: Structured, name: string): string | undefined {
  const extended = params.get(`${name}*`);
  if (extended !== undefined) return percentDecoded(UTF8_PARAMETER.exec(extended)?.[1]);
  for (const key of params.keys()) if (key.startsWith(`${name}*`)) return undefined;
  return decodeWords(params.get(name) ?? '');
}

function percentDecoded(value: string | undefined): string | undefined {
  try {
    return value === undefined ? undefined : decodeURIComponent(value);
  } catch {
    return undefined;
  }
}
