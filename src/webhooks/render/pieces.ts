import { isUtf8 } from 'node:buffer';
import { toBuffer } from '../../base/bytes.ts';
import { bytesOfContent, type Content, type FilePart, type Text } from '../../mail/message.ts';

// Large enough to make the cost per piece negligible, small enough to have a dozen in memory.
const PIECE = 48 * 1024;
const LF = 0x0a;
const CR = 0x0d;

/** JSON text, or a part of it that is encoded when written. */
export type Piece = string | Unescaped | Lines;

/** The content of a JSON string, as text or UTF-8, escaped when written. With `toLf`, CRLF becomes LF. */
interface Unescaped {
  readonly text: string | Uint8Array;
  readonly toLf: boolean;
}

/** ASCII lines that need no escapes. Their line ends are removed when written. */
interface Lines {
  readonly lines: Uint8Array;
}

/** Bytes that are written as they are, in posts that are not JSON. */
export interface Plain {
  readonly bytes: Uint8Array;
}

export function json(value: unknown): string {
  return JSON.stringify(value);
}

// No character that needs an escape, and no surrogate.
const PLAIN = /^[^"\\\x00-\x1f\ud800-\udfff]*$/;

/** A short text as a JSON string. Nearly all need only the quotes, and the check takes half the time of `json`. */
export function jsonOf(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
}

/** A text as a JSON string, in pieces. */
export function* jsonText(text: Text): Iterable<Piece> {
  yield '"';
  if (typeof text === 'string') yield inside(text, false);
  else for (const piece of text()) yield inside(piece, false);
  yield '"';
}

/** An unpaired surrogate cannot be encoded in UTF-8, but can be escaped in JSON. */
export function inside(text: string, toLf: boolean): Piece {
  return text.isWellFormed()
    ? { text, toLf }
    : JSON.stringify(toLf ? text.replaceAll('\r\n', '\n') : text).slice(1, -1);
}

/**
 * Trace and message as the content of a JSON string, with LF line ends unless they are to stay. No piece of `message`
 * splits a character.
 */
export function* rawText(trace: string, message: Iterable<Uint8Array>, toLf = true): Iterable<Piece> {
  yield inside(trace, toLf);
  for (const piece of message) for (const slice of utf8Slices(toBuffer(piece))) yield { text: slice, toLf };
}

/** Trace and message as base64, byte for byte. */
export function rawBase64(trace: string, raw: readonly Buffer[]): Iterable<string> {
  return base64Pieces([Buffer.from(trace, 'utf8'), ...raw]);
}

/** A file's content as the content of a JSON string: text if it may be text and is valid UTF-8, else base64. */
function contentPieces(
  content: Content,
  maybeText: boolean,
): { readonly base64: boolean; readonly pieces: Iterable<Piece> } {
  if (content.kind === 'base64' && !maybeText) return { base64: true, pieces: linePieces(content.lines) };
  const bytes = bytesOfContent(content);
  return maybeText && isUtf8(bytes)
    ? { base64: false, pieces: textPieces(bytes) }
    : { base64: true, pieces: base64Pieces([bytes]) };
}

/** As `contentPieces`, of a file: nothing if its content is not in the post. */
export function filePieces({ content, link }: FilePart, maybeText: boolean): ReturnType<typeof contentPieces> {
  return link === undefined ? contentPieces(content, maybeText) : { base64: false, pieces: [] };
}

/** The JSON members of a file whose content is not in the post; empty for others. */
export function linkMembers({ content, link }: FilePart): string {
  if (link === undefined) return '';
  return `,"size":${sizeOfContent(content)}${link === null ? '' : `,"url":${json(link)}`}`;
}

/** Base64 of the concatenated chunks. */
function* base64Pieces(chunks: readonly Uint8Array[]): Iterable<string> {
  let rest: Uint8Array = Buffer.alloc(0);
  for (const chunk of chunks) {
    let from = 0;
    if (rest.length > 0) {
      from = Math.min(3 - rest.length, chunk.length);
      rest = Buffer.concat([rest, chunk.subarray(0, from)]);
      if (rest.length < 3) continue;
      yield toBuffer(rest).toString('base64');
    }
    const whole = chunk.length - ((chunk.length - from) % 3);
    for (; from < whole; from += PIECE)
      yield toBuffer(chunk.subarray(from, Math.min(from + PIECE, whole))).toString('base64');
    rest = chunk.subarray(whole);
  }
  if (rest.length > 0) yield toBuffer(rest).toString('base64');
}

function* linePieces(lines: Uint8Array): Iterable<Piece> {
  for (let at = 0; at < lines.length; at += PIECE) yield { lines: lines.subarray(at, at + PIECE) };
}

function* textPieces(bytes: Buffer): Iterable<Piece> {
  for (const text of utf8Slices(bytes)) yield { text, toLf: false };
}

/** Slices that split neither a character nor a CRLF. */
function* utf8Slices(bytes: Buffer): Iterable<Buffer> {
  let from = 0;
  while (from < bytes.length) {
    let to = Math.min(from + PIECE, bytes.length);
    if (to < bytes.length) {
      for (let back = 0; back < 3 && ((bytes[to] ?? 0) & 0xc0) === 0x80; back++) to -= 1;
      if (bytes[to] === LF && bytes[to - 1] === CR) to += 1;
    }
    yield bytes.subarray(from, to);
    from = to;
  }
}

/** The decoded bytes of a file, in pieces. */
export function* decodedPieces(content: Content): Iterable<Plain> {
  if (content.kind === 'bytes') {
    yield content;
    return;
  }
  let rest = '';
  for (let at = 0; at < content.lines.length; at += PIECE) {
    const lines = content.lines.toString('latin1', at, at + PIECE);
    const text = rest + lines.replace(/[\r\n]/g, '');
    const whole = text.length - (text.length % 4);
    yield { bytes: Buffer.from(text.slice(0, whole), 'base64') };
    rest = text.slice(whole);
  }
  if (rest !== '') yield { bytes: Buffer.from(rest, 'base64') };
}

/** How many bytes a file has, decoded. */
export function sizeOfContent(content: Content): number {
  if (content.kind === 'bytes') return content.bytes.length;
  const { lines } = content;
  let characters = lines.length;
  for (let at = lines.indexOf(LF); at !== -1; at = lines.indexOf(LF, at + 1))
    characters -= lines[at - 1] === CR ? 2 : 1;
  const padding = /(=*)[\r\n]*$/.exec(lines.toString('latin1', Math.max(0, lines.length - 8)))?.[1]?.length ?? 0;
  return Math.floor((characters * 3) / 4) - padding;
}
