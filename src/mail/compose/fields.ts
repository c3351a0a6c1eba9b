import type { ParameterizedValue } from '../mime/headers.ts';

/** A header field in the bytes of a message, its line end included. */
export interface FieldSpan {
  /** Lower case; empty if the line is not a field. */
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

interface HeaderBlock {
  readonly fields: readonly FieldSpan[];
  /** Start of the empty line; undefined if there is none. */
  readonly end: number | undefined;
}

/** A replacement in a message; an insertion if `start` equals `end`. */
export interface Replacement {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

// A field name by RFC 5322 section 2.2; white space before the colon is obsolete syntax (section 4.5). Names of more
// than 100 characters are not of interest.
const NAME = /^([!-9;-~]{1,100})[ \t]*:/;
const LF = 0x0a;
const CR = 0x0d;

/** Finds the fields of the header block at `start`; line ends must be CRLF. */
export function findFields(bytes: Buffer, start: number): HeaderBlock {
  const fields: { name: string; start: number; end: number }[] = [];
  for (let at = start; at < bytes.length; ) {
    if (bytes[at] === CR && bytes[at + 1] === LF) return { fields, end: at };
    const newline = bytes.indexOf(LF, at);
    const end = newline < 0 ? bytes.length : newline + 1;
    const last = fields.at(-1);
    if (last && (bytes[at] === 0x20 || bytes[at] === 0x09)) last.end = end;
    else fields.push({ name: nameAt(bytes, at, end), start: at, end });
    at = end;
  }
  return { fields, end: undefined };
}

function nameAt(bytes: Buffer, at: number, end: number): string {
  return (NAME.exec(bytes.toString('latin1', at, Math.min(end, at + 110)))?.[1] ?? '').toLowerCase();
}

/** Applies the changes and returns the bytes in pieces. Changes may be in any order but must not overlap. */
export function applyChanges(bytes: Buffer, changes: readonly Replacement[]): Buffer[] {
  const pieces: Buffer[] = [];
  let kept = 0;
  for (const change of changes.toSorted((a, b) => a.start - b.start || a.end - b.end)) {
    pieces.push(bytes.subarray(kept, change.start), change.bytes);
    kept = change.end;
  }
  return [...pieces, bytes.subarray(kept)];
}

/** The change that sets a field to `value`: replaces the field if it exists, else inserts it at `otherwise`. */
export function setField(fields: readonly FieldSpan[], otherwise: number, name: string, value: string): Replacement {
  const found = fields.find((field) => field.name === name.toLowerCase());
  const bytes = Buffer.from(`${name}: ${value}\r\n`);
  return { start: found?.start ?? otherwise, end: found?.end ?? otherwise, bytes };
}

/** The Content-Type with `charset` and its other parameters unchanged. */
export function toContentType(type: string, { params }: ParameterizedValue, charset: string): string {
  const others = [...params]
    .filter(([name]) => name !== 'charset')
    .map(([name, value]) => `;\r\n\t${name}="${value.replace(/["\\]/g, '\\$&')}"`);
  return [type, `; charset=${charset}`, ...others].join('');
}

const SPACE = 0x20;
const TAB = 0x09;
const EQUALS = 0x3d;
const HEX = Buffer.from('0123456789ABCDEF');
/** Octets per line without the line end (RFC 5322 section 2.1.1). */
const LONGEST_LINE = 998;
/** Characters per encoded line without the line end (RFC 2045 section 6.7, rule 5); one is for the soft break. */
const ENCODED_LINE = 75;

/** Converts lone CR and lone LF to CRLF; returns the same bytes if there are none. */
export function toCrlf(bytes: Buffer): Buffer {
  let lone = 0;
  for (let at = bytes.indexOf(LF); at >= 0; at = bytes.indexOf(LF, at + 1)) if (bytes[at - 1] !== CR) lone++;
  for (let at = bytes.indexOf(CR); at >= 0; at = bytes.indexOf(CR, at + 1)) if (bytes[at + 1] !== LF) lone++;
  if (lone === 0) return bytes;
  const out = Buffer.allocUnsafeSlow(bytes.length + lone);
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    if (byte === LF && bytes[at - 1] !== CR) out[length++] = CR;
    out[length++] = byte;
    if (byte === CR && bytes[at + 1] !== LF) out[length++] = LF;
  }
  return out;
}

/** Whether bytes can be sent without encoding: no NUL, and no line longer than SMTP allows. */
export function fitsLines(bytes: Buffer): boolean {
  if (bytes.includes(0)) return false;
  for (let at = 0; at < bytes.length; ) {
    const newline = bytes.indexOf(LF, at);
    const end = newline < 0 ? bytes.length : newline;
    const length = end - at - (bytes[end - 1] === CR && end > at ? 1 : 0);
    if (length > LONGEST_LINE) return false;
    at = end + 1;
  }
  return true;
}

/** Encodes text as quoted-printable (RFC 2045 section 6.7). Only CRLF is a line end: a lone CR or LF is encoded. */
export function encodeQuotedPrintable(bytes: Buffer): Buffer {
  // At worst every octet becomes three, with a soft break after every 72 of these.
  const out = Buffer.allocUnsafeSlow(Math.ceil(bytes.length * 3 * (1 + 3 / 72)) + 3);
  let length = 0;
  let column = 0;
  const room = (needed: number) => {
    if (column + needed > ENCODED_LINE) {
      out[length++] = EQUALS;
      out[length++] = CR;
      out[length++] = LF;
      column = 0;
    }
    column += needed;
  };
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    if (byte === CR && bytes[at + 1] === LF) {
      out[length++] = CR;
      out[length++] = LF;
      column = 0;
      at++;
    } else if (isLiteral(bytes, at, byte)) {
      room(1);
      out[length++] = byte;
    } else {
      room(3);
      out[length++] = EQUALS;
      out[length++] = HEX[byte >> 4] ?? 0;
      out[length++] = HEX[byte & 15] ?? 0;
    }
  }
  return out.subarray(0, length);
}

function isLiteral(bytes: Buffer, at: number, byte: number): boolean {
  if (byte === SPACE || byte === TAB) return at + 1 < bytes.length && !(bytes[at + 1] === CR && bytes[at + 2] === LF);
  return byte > SPACE && byte < 0x7f && byte !== EQUALS;
}

/** Encodes as base64 with lines of 76 characters (RFC 2045 section 6.8). */
export function encodeBase64(bytes: Buffer): Buffer {
  const line = 57;
  const lines = Math.ceil(bytes.length / line);
  const out = Buffer.allocUnsafeSlow(Math.ceil(bytes.length / 3) * 4 + 2 * Math.max(0, lines - 1));
  let length = 0;
  for (let at = 0; at < bytes.length; at += line) {
    if (at > 0) length += out.write('\r\n', length, 'latin1');
    length += out.write(bytes.toString('base64', at, Math.min(at + line, bytes.length)), length, 'latin1');
  }
  return out.subarray(0, length);
}
