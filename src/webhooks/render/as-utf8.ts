import { isUtf8 } from 'node:buffer';
import { type OwnFields, withoutForged } from '../../mail/authentication-results.ts';
import {
  applyChanges,
  encodeBase64,
  encodeQuotedPrintable,
  findFields,
  type Replacement,
  setField,
  toContentType,
} from '../../mail/compose/fields.ts';
import { labelOfText } from '../../mail/mime/charset.ts';
import { rawCharset } from '../../mail/mime/header-section.ts';
import { asciiParameter, decodeUnlabelled, firstValue } from '../../mail/mime/headers.ts';
import { encodingOf, leavesOf, mediaTypeOf, type Part, scanStructure } from '../../mail/mime/structure.ts';
import { decodeTransfer } from '../../mail/mime/transfer.ts';

// 840 lines of base64, large enough to make the cost per piece negligible.
const PIECE = 57 * 840;
const LINE_END = Buffer.from('\r\n');
const SOFT_BREAK = Buffer.from('=\r\n');
const LF = 0x0a;
const CR = 0x0d;
const EQUALS = 0x3d;
const DELETE = 0x7f;
/** Maximum nesting of messages within messages. Deeper ones are converted line by line, not part by part. */
const DEEPEST = 16;

/**
 * Converts a message that is not UTF-8 to one that is, in pieces, for fields that take only text. Part bodies that are
 * not UTF-8 are encoded (quoted-printable or base64) and keep their declared charset; those that declare none get the
 * charset in which Postern decodes them. A MIME reader thus finds the texts and files of the original. Header fields
 * that are not UTF-8 are converted to UTF-8 as Postern decodes them (RFC 6532). Everything else is unchanged.
 * Signatures over changed content can be verified only on the original. Without `root` (a message that must not be
 * parsed) the whole message is treated as header.
 */
export function* asUtf8(bytes: Buffer, root: Part | undefined, depth = 0): Iterable<Uint8Array> {
  let at = 0;
  const readable = createReadable(isUtf8(bytes) ? undefined : rawCharset(bytes));
  for (const part of root ? leavesOf(root) : []) {
    const body = bytes.subarray(part.bodyStart, part.bodyEnd);
    if (isUtf8(body)) continue;
    const inner = innerMessage(part, body, depth);
    const header = bytes.subarray(part.headerStart, part.bodyStart);
    const encoded = inner ? undefined : encodePart(part, header, body);
    if (!inner && !encoded) continue;
    yield* readable(bytes.subarray(at, part.headerStart));
    yield* readable(encoded ? Buffer.concat(applyChanges(header, encoded.changes)) : header);
    yield* inner ? asUtf8(body, inner, depth + 1) : (encoded?.body ?? []);
    at = part.bodyEnd;
  }
  yield* readable(bytes.subarray(at));
}

/**
 * The message without forged fields, as UTF-8, in pieces that split no character. `root`: the parts of `bytes`;
 * undefined if it must not be parsed.
 */
export function* textWithoutForged(bytes: Buffer, root: Part | undefined, own: OwnFields): Iterable<Uint8Array> {
  const kept = [...withoutForged(bytes, own)];
  if (kept.every((piece) => isUtf8(piece))) return yield* kept;
  const [first = bytes, ...others] = kept;
  if (others.length === 0 && first.length === bytes.length) return yield* asUtf8(bytes, root);
  // The offsets of parts have moved.
  const rest = Buffer.concat(kept);
  yield* asUtf8(rest, root && scanStructure(rest).root);
}

/** A message within a message must not be encoded (RFC 2046 section 5.2.1), but its parts can be. */
function innerMessage(part: Part, body: Buffer, depth: number): Part | undefined {
  if (!/^message\/(?:rfc822|global)$/.test(mediaTypeOf(part)) || encodingOf(part) !== 'identity' || depth >= DEEPEST)
    return undefined;
  return scanStructure(body).root;
}

/** Encodes a part; undefined if its type allows no encoding (RFC 2045 section 6.4). `changes` are for its header. */
function encodePart(
  part: Part,
  header: Buffer,
  body: Buffer,
): { readonly changes: Replacement[]; readonly body: Iterable<Uint8Array> } | undefined {
  const type = mediaTypeOf(part);
  if (/^(?:multipart|message)\//.test(type)) return undefined;
  // An invalid type is text, as mail readers treat it (RFC 2045 section 5.2).
  const isText = type.startsWith('text/') || !type.includes('/');
  const content = decodeTransfer(body, encodingOf(part));
  const hints = { isHtml: type === 'text/html' };
  const label = isText ? labelOfText(asciiParameter(part.type, 'charset'), () => [content], hints) : undefined;
  const quoted = isText && fitsQuotedPrintable(content);
  const { fields } = findFields(header, 0);
  const changes: Replacement[] = [];
  const set = (name: string, value: string) => changes.push(setField(fields, 0, name, value));
  if (part.parent === undefined && firstValue(part.fields, 'mime-version') === undefined) set('MIME-Version', '1.0');
  if (label !== undefined)
    set('Content-Type', toContentType(type.includes('/') ? type : 'text/plain', part.type, label));
  set('Content-Transfer-Encoding', quoted ? 'quoted-printable' : 'base64');
  return { changes, body: quoted ? quotedPieces(content) : base64Pieces(content) };
}

/** Whether quoted-printable is shorter than base64, and there is no NUL, at which mail readers truncate text. */
function fitsQuotedPrintable(content: Buffer): boolean {
  if (content.includes(0)) return false;
  let escapes = 0;
  for (let at = 0; at < content.length; at++) {
    const byte = content[at] ?? 0;
    if (byte >= DELETE || byte === EQUALS) escapes += 1;
  }
  return 6 * escapes < content.length;
}

function* quotedPieces(content: Buffer): Iterable<Uint8Array> {
  for (let from = 0; from < content.length; ) {
    const newline = from + PIECE >= content.length ? -1 : content.subarray(from, from + PIECE).lastIndexOf(LF);
    let to = newline === -1 ? Math.min(from + PIECE, content.length) : from + newline + 1;
    if (content[to - 1] === CR && content[to] === LF) to += 1;
    yield encodeQuotedPrintable(content.subarray(from, to));
    if (to < content.length && content[to - 1] !== LF) yield SOFT_BREAK;
    from = to;
  }
}

function* base64Pieces(content: Buffer): Iterable<Uint8Array> {
  for (let from = 0; from < content.length; from += PIECE) {
    if (from > 0) yield LINE_END;
    yield encodeBase64(content.subarray(from, from + PIECE));
  }
}

/** For bytes outside part bodies: lines that are not UTF-8 are decoded like header fields. */
function createReadable(charset: string | undefined): (bytes: Buffer) => Iterable<Uint8Array> {
  const decodedPiece = (bytes: Buffer): Uint8Array => Buffer.from(decodeUnlabelled(bytes.toString('latin1'), charset));
  return function* (bytes) {
    if (isUtf8(bytes)) return yield bytes;
    let from = 0;
    for (let at = 0; at < bytes.length; ) {
      const newline = bytes.indexOf(LF, at);
      const end = newline === -1 ? bytes.length : newline + 1;
      if (!isUtf8(bytes.subarray(at, end))) {
        if (from < at) yield bytes.subarray(from, at);
        for (let piece = at; piece < end; piece += PIECE)
          yield decodedPiece(bytes.subarray(piece, Math.min(piece + PIECE, end)));
        from = end;
      }
      at = end;
    }
    if (from < bytes.length) yield bytes.subarray(from);
  };
}
