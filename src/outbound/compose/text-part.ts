import { isAscii } from 'node:buffer';
import { type Change, findFields, setField, toContentType } from '../../mail/compose/fields.ts';
import { encodeBase64, encodeQuotedPrintable, fitsLines } from '../../mail/compose/octets.ts';
import { firstValue } from '../../mail/headers.ts';
import { parseStructured } from '../../mail/parameters.ts';
import { mediaTypeOf, type Part } from '../../mail/structure.ts';
import { decodeTransfer, type TransferEncoding, toTransferEncoding } from '../../mail/transfer.ts';

/** Changes the text of a part; the same text when nothing is to be changed. */
export type Rewrite = (text: string, type: 'text/plain' | 'text/html') => string;

/** A leaf of the MIME tree that is text, and how it is written down. */
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
/** Charsets of which ASCII is no part. */
const NOT_ASCII = /^(?:utf-16|ucs-2|unicode|iso-2022|csiso2022|hz-gb)/;

/**
 * What changes in a text part: its text where `rewrite` wants it so, and its encoding where that has to follow or the lines are longer
 * than SMTP lets through. A part whose charset or encoding is unknown, or whose bytes are not of its charset, stays byte for byte.
 */
export function changeTextPart(bytes: Buffer, part: Part, rewrite: Rewrite | undefined): Change[] {
  const text = readTextPart(bytes, part);
  if (!text) return [];
  const rewritten = rewrite && rewriteText(text, rewrite);
  if (rewritten) return written(bytes, text, rewritten.bytes, rewritten.charset);
  return fitsLines(text.body) ? [] : written(bytes, text, decodeTransfer(text.body, text.encoding), undefined);
}

function readTextPart(bytes: Buffer, part: Part): TextPart | undefined {
  const type = mediaTypeOf(part);
  const word = (firstValue(part.fields, 'content-transfer-encoding') ?? '')
    .replace(/\([^()]*\)/g, '')
    .trim()
    .toLowerCase();
  const encoding = toTransferEncoding(word);
  const unknown = encoding === 'uuencode' || (encoding === 'identity' && !IDENTITIES.has(word));
  if (!type.startsWith('text/') || unknown) return undefined;
  const charset = (part.type.params.get('charset') ?? '').trim().toLowerCase();
  return { part, type, charset, encoding, body: bytes.subarray(part.bodyStart, part.bodyEnd) };
}

/** Undefined when nothing changes. `charset` is what the part has to be declared as from now on. */
function rewriteText(
  { part, type, charset, encoding, body }: TextPart,
  rewrite: Rewrite,
): { bytes: Buffer; charset: string | undefined } | undefined {
  if (type !== 'text/plain' && type !== 'text/html') return undefined;
  const disposition = parseStructured(firstValue(part.fields, 'content-disposition') ?? '').value;
  if (disposition !== '' && disposition !== 'inline') return undefined;
  const text = decode(decodeTransfer(body, encoding), charset);
  const changed = text === undefined ? undefined : rewrite(text, type);
  if (text === undefined || changed === undefined || changed === text) return undefined;
  // Line ends of values as those of the text around them.
  const bytes = Buffer.from(LONE_BREAK.test(text) ? changed : changed.replace(/\r\n?|\n/g, '\r\n'));
  const stays =
    UTF8.has(charset) ||
    (isAscii(bytes) && !NOT_ASCII.test(charset)) ||
    (ASCII.has(charset) && !isAscii(body) && encoding === 'identity');
  return { bytes, charset: stays ? undefined : 'utf-8' };
}

/** Undefined when the bytes are no text of that charset. */
function decode(bytes: Buffer, charset: string): string | undefined {
  try {
    return new TextDecoder(ASCII.has(charset) ? 'utf-8' : charset, { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The new body of a part, in the old encoding if it fits, and the header fields that have to say something else now. */
function written(
  bytes: Buffer,
  { part, type, encoding, body }: TextPart,
  content: Buffer,
  charset: string | undefined,
): Change[] {
  const changes: Change[] = [];
  const { fields } = findFields(bytes.subarray(0, part.bodyStart), part.headerStart);
  const set = (name: string, value: string) => changes.push(setField(fields, part.headerStart, name, value));
  if (charset !== undefined) set('Content-Type', toContentType(type, part.type, charset));
  // 8-bit bytes where there were none would need a declaration, and a server that takes them.
  const plain = encoding === 'identity' && fitsLines(content) && (isAscii(content) || !isAscii(body));
  if (encoding === 'identity' && !plain) set('Content-Transfer-Encoding', 'quoted-printable');
  if (changes.length > 0 && part.parent === undefined && firstValue(part.fields, 'mime-version') === undefined)
    set('MIME-Version', '1.0');
  const encoded = plain ? content : encoding === 'base64' ? encodeBase64(content) : encodeQuotedPrintable(content);
  return [...changes, { start: part.bodyStart, end: part.bodyEnd, bytes: encoded }];
}
