import { truncate } from '../base/characters.ts';
import { addressFieldsOf } from './addresses/author.ts';
import { decoderOfText } from './mime/charset.ts';
import { referencesIn, toCidKey, toLocationKey } from './mime/cid.ts';
import { allValues, decodeWords, type HeaderField, singleLine } from './mime/headers.ts';
import { type Leaf, readLeaves } from './mime/leaves.ts';
import { isMultipart, type Part } from './mime/structure.ts';
import { decodeTransfer, isCleanBase64, type TransferEncoding } from './mime/transfer.ts';

/** Parses the raw bytes of a scanned message. Large texts are decoded when they are written. */
export function parseMessage(bytes: Buffer, root: Part): ParsedMessage {
  const { fields } = root;
  return { ...addressFieldsOf(fields), subject: subjectOf(fields), ...readBody(bytes, readLeaves(root)), fields };
}

/** An address from a header with its decoded display name. */
export interface Mailbox {
  readonly address: string;
  readonly name: string | null;
}

/** Decoded text with LF line ends: a string, or for large texts a function that decodes it piece by piece. */
export type Text = string | (() => Iterable<string>);

/** The start of a text, and whether that is all of it. */
export function startOfText(text: Text, most: number): { readonly start: string; readonly whole: boolean } {
  let start = '';
  for (const piece of typeof text === 'string' ? [text] : text()) {
    start += piece;
    if (start.length > most) return { start: truncate(start, most), whole: false };
  }
  return { start, whole: true };
}

export const wholeText = (text: Text): string => (typeof text === 'string' ? text : [...text()].join(''));

/** The content of a file part: decoded bytes, or clean base64 as in the message, line breaks included. */
export type Content =
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  | { readonly kind: 'base64'; readonly lines: Buffer };

/** The decoded bytes of a file part. */
export const bytesOfContent = (content: Content): Buffer =>
  content.kind === 'bytes' ? content.bytes : Buffer.from(content.lines.toString('latin1'), 'base64');

/** A part that is neither the text nor the HTML of a message. */
export interface FilePart {
  /** As written by the sender, decoded but not yet safe; empty if there is none. */
  readonly name: string;
  /** Media type in lower case, as declared. */
  readonly type: string;
  /** Without angle brackets. */
  readonly contentId: string | null;
  /** As declared, in lower case; `inline` for a picture that the HTML shows, whatever it declares. */
  readonly disposition: string | null;
  readonly content: Content;
  /** The URL of the content if it is not in the post; null: it is left out; undefined: it is in the post. */
  readonly link?: string | null;
}

/** Whether a file is a picture that the HTML shows, not an attachment. */
export function isPicture({
  type,
  disposition,
  contentId,
}: Pick<FilePart, 'type' | 'disposition' | 'contentId'>): boolean {
  return type.startsWith('image/') && disposition !== 'attachment' && (contentId !== null || disposition === 'inline');
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
  /** The HTML (mail/mime/leaves.ts): if there is no text, all HTML parts. */
  readonly html: Text | undefined;
  readonly files: readonly FilePart[];
}

/** The body of a parsed message. */
type Body = Omit<ParsedMessage, 'fields' | keyof Addressing>;

/** Reads texts and files directly from the bytes, copying as little as possible. */
function readBody(bytes: Buffer, leaves: readonly Leaf[]): Body {
  const of = (role: Leaf['role']) => leaves.filter((leaf) => leaf.role === role && !isVoid(leaf));
  const texts = of('text');
  const html = joinTexts(
    of('html').map((leaf) => toText(bytes, leaf)),
    '<br/>\n',
  );
  return {
    text: joinTexts(
      texts.map((leaf) => toText(bytes, leaf)),
      '\n',
    ),
    textFlowed: texts[0]?.part.type.params.get('format')?.toLowerCase() === 'flowed',
    html,
    files: readFiles(bytes, of('file'), html),
  };
}

/** A multipart without parts and without content. */
const isVoid = ({ part }: Leaf): boolean =>
  isMultipart(part) && part.parent !== undefined && part.bodyEnd === part.bodyStart;

function readFiles(bytes: Buffer, leaves: readonly Leaf[], html: Text | undefined): FilePart[] {
  const pictures = picturesOf(html, leaves);
  return leaves.map((leaf) => {
    const { type, name, contentId, disposition, location } = leaf;
    const file = { type, name, contentId, disposition, content: contentOf(bytes, leaf) };
    if (!pictures.has(leaf)) return file;
    return { ...file, type: pictureType(leaf) ?? type, name: name || (location ?? ''), disposition: 'inline' };
  });
}

/**
 * Files that are pictures of the HTML without declaring it: by their position (RFC 2387 section 4), or because it
 * refers to them.
 */
function picturesOf(html: Text | undefined, leaves: readonly Leaf[]): ReadonlySet<Leaf> {
  if (html === undefined) return new Set();
  const mayBe = leaves.filter((leaf) => pictureType(leaf) !== undefined && !isPicture(leaf));
  const isByPosition = ({ isRelated, contentId }: Leaf) => isRelated && contentId !== null;
  const wanted = new Set(mayBe.filter((leaf) => !isByPosition(leaf)).flatMap(keysOf));
  const found = wanted.size === 0 ? wanted : referencesIn(html, wanted);
  return new Set(mayBe.filter((leaf) => isByPosition(leaf) || keysOf(leaf).some((key) => found.has(key))));
}

const keysOf = ({ contentId, location }: Leaf): string[] => [
  ...(contentId === null ? [] : [toCidKey(contentId)]),
  ...(location === null ? [] : [toLocationKey(location)]),
];

const PICTURE_NAME = /\.(png|jpe?g|gif|webp|svg|bmp)$/i;

/** The type of a picture; much software declares none and relies on the name. */
function pictureType({ type, name }: Leaf): string | undefined {
  if (type.startsWith('image/')) return type;
  const [, extension] = (type === 'application/octet-stream' && PICTURE_NAME.exec(name)) || [];
  return extension && `image/${extension.toLowerCase().replace('jpg', 'jpeg').replace('svg', 'svg+xml')}`;
}

/** The decoded subject; '' if there is none, of several the last. */
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

function toText(bytes: Buffer, { part, role, encoding, charset }: Leaf): Text {
  // The line break before a delimiter belongs to the delimiter (RFC 2046), but the payload has always included it.
  const tail = part.parent === undefined || encoding === 'base64' || encoding === 'uuencode' ? '' : '\n';
  const body = bytes.subarray(part.bodyStart, part.bodyEnd);
  return decodeBody({ body, encoding, charset, isHtml: role === 'html', tail });
}

function contentOf(bytes: Buffer, { part, encoding }: Leaf): Content {
  const body = bytes.subarray(part.bodyStart, part.bodyEnd);
  return encoding === 'base64' && isCleanBase64(body)
    ? { kind: 'base64', lines: body }
    : { kind: 'bytes', bytes: decodeTransfer(body, encoding) };
}

/** A text body as in the message. */
interface EncodedText {
  readonly body: Buffer;
  readonly encoding: TransferEncoding;
  /** The declared charset; '' if there is none. */
  readonly charset: string;
  readonly isHtml: boolean;
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
  const decoded = toLf(decoderOfText(text.charset, () => [bytes], text)(bytes, true));
  return decoded === '' ? decoded : decoded + text.tail;
}

function* lazyPieces({ body, encoding, charset, isHtml, tail }: EncodedText): Iterable<string> {
  // Base64 and uuencode are decoded as a whole, because invalid characters may shift the groups of base64.
  const atOnce = encoding === 'base64' || encoding === 'uuencode';
  const encoded = {
    body: atOnce ? decodeTransfer(body, encoding) : body,
    encoding: atOnce ? 'identity' : encoding,
  } as const;
  const decode = decoderOfText(charset, () => transferPieces(encoded), { isHtml });
  let held = '';
  for (const bytes of transferPieces(encoded)) {
    const text = held + decode(bytes, false);
    // A CRLF may be split between pieces.
    held = text.endsWith('\r') ? '\r' : '';
    yield toLf(held === '' ? text : text.slice(0, -1));
  }
  yield held + decode(Buffer.alloc(0), true) + tail;
}

/** Yields the decoded body in pieces, cut at line ends, where no escape is. */
function* transferPieces({ body, encoding }: Pick<EncodedText, 'body' | 'encoding'>): Iterable<Buffer> {
  let from = 0;
  while (from < body.length) {
    const to = cutAt(body, from);
    yield decodeTransfer(body.subarray(from, to), encoding);
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
