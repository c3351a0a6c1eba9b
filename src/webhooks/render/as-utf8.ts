import { isUtf8 } from 'node:buffer';
import { labelOfText } from '../../mail/charset.ts';
import {
  applyChanges,
  type Change,
  encodeBase64,
  encodeQuotedPrintable,
  findFields,
  setField,
  toContentType,
} from '../../mail/compose/fields.ts';
import { asciiParameter, decodeUnlabelled, firstValue } from '../../mail/headers.ts';
import { mediaTypeOf, type Part, scanStructure } from '../../mail/structure.ts';
import { decodeTransfer, toTransferEncoding } from '../../mail/transfer.ts';

// 840 lines of base64; large enough that the cost per piece does not count.
const PIECE = 57 * 840;
const LINE_END = Buffer.from('\r\n');
const SOFT_BREAK = Buffer.from('=\r\n');
const LF = 0x0a;
const CR = 0x0d;
const EQUALS = 0x3d;
const DELETE = 0x7f;
/** Messages within messages; what is deeper is only made to be UTF-8. */
const DEEPEST = 16;

/**
 * A message that is not UTF-8 as one that is, in pieces, so that it can stand where only text can. The bodies of
 * parts that are not UTF-8 are encoded (quoted-printable or base64) and keep the charset they declare; those that
 * declare none get the one that we read them in. So a MIME reader finds the texts and files of the original. Header
 * fields that are not UTF-8 are written in it as we read them (RFC 6532). Everything else stays byte for byte;
 * signatures over what was changed can only be checked over the original. Without `root` (a message that nothing may
 * parse) all of it is treated as a header is.
 */
export function* asUtf8(bytes: Buffer, root: Part | undefined, depth = 0): Iterable<Uint8Array> {
  let at = 0;
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

function* leavesOf(part: Part): Iterable<Part> {
  for (const child of part.children) yield* leavesOf(child);
  if (part.children.length === 0) yield part;
}

function encodingOf(part: Part) {
  return toTransferEncoding(firstValue(part.fields, 'content-transfer-encoding'));
}

/** A message in a message must not be encoded (RFC 2046 section 5.2.1): the parts inside are. */
function innerMessage(part: Part, body: Buffer, depth: number): Part | undefined {
  if (!/^message\/(?:rfc822|global)$/.test(mediaTypeOf(part)) || encodingOf(part) !== 'identity' || depth >= DEEPEST)
    return undefined;
  const scan = scanStructure(body);
  return scan.breach === undefined ? scan.root : undefined;
}

/**
 * Undefined for what no encoding is allowed for (RFC 2045 section 6.4). `changes` are those of the header of the
 * part.
 */
function encodePart(
  part: Part,
  header: Buffer,
  body: Buffer,
): { readonly changes: Change[]; readonly body: Iterable<Uint8Array> } | undefined {
  const type = mediaTypeOf(part);
  if (/^(?:multipart|message)\//.test(type)) return undefined;
  // What is no type is text, as for whoever reads it (RFC 2045 section 5.2).
  const isText = type.startsWith('text/') || !type.includes('/');
  const content = decodeTransfer(body, encodingOf(part));
  const label = isText ? labelOfText(asciiParameter(part.type, 'charset'), () => [content]) : undefined;
  const quoted = isText && fitsQuotedPrintable(content);
  const { fields } = findFields(header, 0);
  const changes: Change[] = [];
  const set = (name: string, value: string) => changes.push(setField(fields, 0, name, value));
  if (part.parent === undefined && firstValue(part.fields, 'mime-version') === undefined) set('MIME-Version', '1.0');
  if (label !== undefined)
    set('Content-Type', toContentType(type.includes('/') ? type : 'text/plain', part.type, label));
  set('Content-Transfer-Encoding', quoted ? 'quoted-printable' : 'base64');
  return { changes, body: quoted ? quotedPieces(content) : base64Pieces(content) };
}

/** Whether it is the shorter of the two, and there is no NUL, which readers cut texts at. */
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

/** Bytes outside of bodies: lines that are not UTF-8 are read as header fields are. */
function* readable(bytes: Buffer): Iterable<Uint8Array> {
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
}

function decodedPiece(bytes: Buffer): Uint8Array {
  return Buffer.from(decodeUnlabelled(bytes.toString('latin1')));
}
