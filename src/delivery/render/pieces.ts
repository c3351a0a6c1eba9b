import { isUtf8 } from 'node:buffer';
import type { Content, Text } from '../../mail/parsed.ts';

// Large enough that the cost per piece does not count, small enough that a dozen of them in flight does not either.
const PIECE = 48 * 1024;
const LF = 0x0a;
const CR = 0x0d;

/** JSON text, or a part of it that has yet to be made. */
export type Piece = string | Unescaped;

/**
 * What stands inside a JSON string, as text or as UTF-8: it is escaped when it is written. With `toLf` a CRLF in it
 * becomes LF.
 */
export interface Unescaped {
  readonly text: string | Uint8Array;
  readonly toLf: boolean;
}

/** A value as JSON text. */
export function json(value: unknown): string {
  return JSON.stringify(value);
}

// Neither escapes nor halves of surrogate pairs.
const PLAIN = /^[^"\\\x00-\x1f\ud800-\udfff]*$/;

/** A short text as a JSON string: nearly all need nothing but the quotes, and looking is half the work of `json`. */
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

/** UTF-8 has no form for half a surrogate pair; JSON has. */
function inside(text: string, toLf: boolean): Piece {
  return text.isWellFormed()
    ? { text, toLf }
    : JSON.stringify(toLf ? text.replaceAll('\r\n', '\n') : text).slice(1, -1);
}

/**
 * Trace and message as the inside of a JSON string: line ends are LF. `message` is UTF-8, in pieces that cut no
 * character.
 */
export function* rawText(trace: string, message: Iterable<Uint8Array>): Iterable<Piece> {
  yield inside(trace, true);
  for (const piece of message) for (const slice of utf8Slices(toBuffer(piece))) yield { text: slice, toLf: true };
}

/** Exactly the bytes of trace and message, as base64. */
export function rawBase64(trace: string, raw: Buffer): Iterable<string> {
  return base64Pieces([Buffer.from(trace, 'utf8'), raw]);
}

/**
 * The inside of the JSON string of a file's content: the text itself where it may be text and is UTF-8, else base64.
 */
export function contentPieces(
  content: Content,
  maybeText: boolean,
): { readonly base64: boolean; readonly pieces: Iterable<Piece> } {
  if (content.kind === 'base64' && !maybeText) return { base64: true, pieces: joinedLines(content.lines) };
  const chunks =
    content.kind === 'bytes' ? content.chunks : [Buffer.from(toBuffer(content.lines).toString('latin1'), 'base64')];
  if (!maybeText) return { base64: true, pieces: base64Pieces(chunks) };
  const whole = chunks.length === 1 && chunks[0] !== undefined ? toBuffer(chunks[0]) : Buffer.concat(chunks);
  if (!isUtf8(whole)) return { base64: true, pieces: base64Pieces([whole]) };
  return { base64: false, pieces: textPieces(whole) };
}

/** Base64 of the chunks as if they were one. */
export function* base64Pieces(chunks: readonly Uint8Array[]): Iterable<string> {
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

/** Clean base64 lines, without their line ends. */
function* joinedLines(lines: Uint8Array): Iterable<string> {
  const bytes = toBuffer(lines);
  for (let at = 0; at < bytes.length; at += PIECE) {
    yield bytes
      .toString('latin1', at, Math.min(at + PIECE, bytes.length))
      .replaceAll('\r', '')
      .replaceAll('\n', '');
  }
}

function* textPieces(bytes: Buffer): Iterable<Piece> {
  for (const text of utf8Slices(bytes)) yield { text, toLf: false };
}

/** Cuts neither a character nor a CRLF in two. */
export function* utf8Slices(bytes: Buffer): Iterable<Buffer> {
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

function toBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}
