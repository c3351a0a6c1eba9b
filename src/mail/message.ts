import { correspondentsOf } from './author.ts';
import { decoderOfText } from './charset.ts';
import {
  allValues,
  decodeWords,
  type HeaderField,
  isExtended,
  type ParameterizedValue,
  parseStructured,
  singleLine,
} from './headers.ts';
import { isMediaType, mediaTypeOf, type Part, type Scan, scanStructure } from './structure.ts';
import { decodeTransfer, isCleanBase64, type TransferEncoding, toTransferEncoding } from './transfer.ts';

export type { Scan as Scanned } from './structure.ts';

/** Scans the raw bytes of a message: returns its parts, or the cap that it exceeds (then it must not be parsed). */
export function scanMessage(bytes: Buffer): Scan {
  return scanStructure(bytes);
}

/**
 * Parses the raw bytes of a scanned message. `walkBody` handles the common forms of bodies; messages that it declines
 * are parsed by mailparser as a whole (docs/decisions/0018). Addresses always come from our own parser. Throws if
 * mailparser fails.
 */
export async function parseMessage(bytes: Buffer, root: Part): Promise<ParsedMessage> {
  const body = walkBody(bytes, root) ?? (await parseWithLibrary(bytes));
  return { ...correspondentsOf(root.fields), subject: subjectOf(root.fields), ...body, fields: root.fields };
}

/**
 * Few messages need mailparser, which has a hundred modules: it is loaded with the first one. A thread that parses
 * under a deadline loads it when it starts.
 */
async function parseWithLibrary(bytes: Buffer): Promise<Body> {
  const { readWithLibrary } = await import('./library.ts');
  return readWithLibrary(bytes);
}

/** An address from a header with its decoded display name. */
export interface Mailbox {
  readonly address: string;
  readonly name: string | null;
}

/** Decoded text with LF line ends: a string, or for large texts a function that decodes it piece by piece. */
export type Text = string | (() => Iterable<string>);

/** The content of a file part: decoded bytes, or clean base64 as in the message, line breaks included. */
export type Content =
  | { readonly kind: 'bytes'; readonly chunks: readonly Uint8Array[] }
  | { readonly kind: 'base64'; readonly lines: Uint8Array };

/** A part that is neither the text nor the HTML of a message. */
export interface FilePart {
  /** As written by the sender, decoded but not yet safe; empty if there is none. */
  readonly name: string;
  /** Media type in lower case, as declared. */
  readonly type: string;
  /** Without angle brackets. */
  readonly contentId: string | null;
  readonly disposition: string | null;
  readonly content: Content;
  /** Where a receiver finds the content instead of in the post; null: nowhere, undefined: it is in the post. */
  readonly link?: string | null;
}

/** The address fields and the subject. */
export interface Addressing {
  readonly subject: string;
  readonly from: Mailbox | undefined;
  readonly to: readonly Mailbox[];
  /** Undefined if there is no Cc field. */
  readonly cc: readonly Mailbox[] | undefined;
}

/** A parsed message. */
export interface ParsedMessage extends Addressing {
  readonly fields: readonly HeaderField[];
  readonly text: Text | undefined;
  /** Whether the text is format=flowed (RFC 3676); it is left as written. */
  readonly textFlowed: boolean;
  /** The first HTML part; if there is no text, all HTML parts. */
  readonly html: Text | undefined;
  readonly files: readonly FilePart[];
}

/** The body of a parsed message. */
export type Body = Omit<ParsedMessage, 'fields' | keyof Addressing>;

/** The texts and files found so far. */
interface Parts {
  readonly texts: Text[];
  readonly html: Text[];
  /** Whether the first text is format=flowed. */
  flowed: boolean;
  readonly files: FilePart[];
  /** Whether the message needs mailparser. */
  declined: boolean;
}

const UTF8_PARAMETER = /^utf-8'[^']*'((?:[\w!#$&+.^`{}~-]|%[0-9a-f]{2})*)$/i;

/**
 * Reads texts and files directly from the bytes, copying as little as possible; large texts are decoded when they are
 * written. Undefined if the message has RFC 2231 parameters, other than a file name in UTF-8 and in one piece;
 * mailparser then parses it as a whole.
 */
export function walkBody(bytes: Buffer, root: Part): Body | undefined {
  const found: Parts = { texts: [], html: [], flowed: false, files: [], declined: false };
  walkPart(bytes, root, found);
  return found.declined ? undefined : bodyOf(found);
}

/**
 * Makes a body from its parts. If there is a text, the first HTML part is its formatted form; if not, all HTML parts
 * are shown.
 */
export function bodyOf({ texts, html, flowed, files }: Omit<Parts, 'declined'>): Body {
  const shown = texts.length > 0 ? html[0] : joinTexts(html, '<br/>\n');
  return { text: joinTexts(texts, '\n'), textFlowed: flowed, html: shown, files };
}

/** The decoded subject; '' if there is none. If there are several, the last one counts, as in mailparser. */
/** The decoded subject; of several the last. */
export function subjectOf(fields: readonly HeaderField[]): string {
  return singleLine(decodeWords(allValues(fields, 'subject').at(-1) ?? ''));
}

function joinTexts(texts: readonly Text[], separator: string): Text | undefined {
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

function walkPart(bytes: Buffer, part: Part, found: Parts): void {
  for (const child of part.children) walkPart(bytes, child, found);
  if (isExtended(part.type, 'charset') || isExtended(part.type, 'boundary')) found.declined = true;
  // A multipart without parts is shown as text.
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
 * A missing or invalid type means text (RFC 2045 section 5.2), but a file of unknown type if the part is an attachment.
 */
export function typeOf(part: Part, disposition: ParameterizedValue): string {
  const type = mediaTypeOf(part);
  const declared = part.type.value !== '' || type !== 'text/plain';
  if (declared && isMediaType(type) && !type.startsWith('multipart/')) return type;
  return disposition.value === '' || disposition.value === 'inline' ? 'text/plain' : 'application/octet-stream';
}

function addText(part: Part, type: string, body: Buffer, encoding: TransferEncoding, found: Parts): void {
  const { params } = part.type;
  // The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always included it.
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
  readonly disposition: ParameterizedValue;
  readonly body: Buffer;
  readonly encoding: TransferEncoding;
}

function addFile(part: Part, { type, disposition, body, encoding }: EncodedFile, found: Parts): void {
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
 * A file name parameter: plain, with encoded words as most software writes it, or in the UTF-8 form of RFC 2231.
 * Undefined for other forms of RFC 2231.
 */
function parameter(type: ParameterizedValue, name: string): string | undefined {
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

/** A text body as in the message. */
interface EncodedText {
  readonly body: Buffer;
  readonly encoding: TransferEncoding;
  /** The declared charset. */
  readonly charset: string | undefined;
  /** Text to append. */
  readonly tail: string;
}

// Longer texts are decoded piece by piece when written, so that a message with one huge text is in memory only once.
const LONGEST_STRING = 256 * 1024;
const PIECE = 64 * 1024;
const LF = 0x0a;
const EQUALS = 0x3d;
const SPACE = 0x20;
const TAB = 0x09;
const HYPHEN = 0x2d;

/** Decodes a text body; line ends become LF. */
function decodeBody(text: EncodedText): Text {
  if (text.body.length > LONGEST_STRING) return () => lazyPieces(text);
  const bytes = decodeTransfer(text.body, text.encoding);
  const decoded = toLf(decoderOfText(text.charset, () => [bytes])(bytes, true));
  return decoded === '' ? decoded : decoded + text.tail;
}

function* lazyPieces({ body, encoding, charset, tail }: EncodedText): Iterable<string> {
  const decode = decoderOfText(charset, () => transferPieces(body, encoding));
  let held = '';
  for (const bytes of transferPieces(body, encoding)) {
    const text = held + decode(bytes, false);
    // A CRLF may be split between pieces.
    held = text.endsWith('\r') ? '\r' : '';
    yield toLf(held === '' ? text : text.slice(0, -1));
  }
  yield held + decode(Buffer.alloc(0), true) + tail;
}

/**
 * Yields the decoded body in pieces. Base64 and uuencode are decoded as a whole, because invalid characters may shift
 * the groups of base64; other encodings are cut at line ends, where no escape is.
 */
function* transferPieces(body: Buffer, encoding: TransferEncoding): Iterable<Buffer> {
  const atOnce = encoding === 'base64' || encoding === 'uuencode';
  const whole = atOnce ? decodeTransfer(body, encoding) : body;
  let from = 0;
  while (from < whole.length) {
    const to = cutAt(whole, from);
    const piece = whole.subarray(from, to);
    yield atOnce ? piece : decodeTransfer(piece, encoding);
    from = to;
  }
}

/**
 * The end of the piece that starts at `from`: after a line end, or in an overlong line where neither an escape nor
 * blanks are cut, because blanks at the end of a piece would count as padding of a line (RFC 2045 section 6.7, rule 3).
 * Nor before a hyphen: at the start of a piece of UTF-7, iconv-lite takes the end of a base64 run for a plus.
 */
function cutAt(bytes: Buffer, from: number): number {
  const least = from + PIECE;
  if (least >= bytes.length) return bytes.length;
  const newline = bytes.subarray(least, least + 3 * PIECE).indexOf(LF);
  if (newline !== -1) return least + newline + 1;
  for (let cut = least; cut > least - PIECE / 2; cut--) {
    const isInEscape = bytes.subarray(cut - 2, cut).includes(EQUALS);
    if (!isInEscape && !isBlank(bytes[cut - 1]) && bytes[cut] !== HYPHEN) return cut;
  }
  let cut = least;
  while (isBlank(bytes[cut]) || isBlank(bytes[cut - 1])) cut++;
  return cut;
}

function isBlank(byte: number | undefined): boolean {
  return byte === SPACE || byte === TAB;
}

function toLf(text: string): string {
  return text.replaceAll('\r\n', '\n');
}
