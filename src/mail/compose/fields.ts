import type { ParameterizedValue } from '../headers.ts';

/** A header field in the bytes of a message, its line end included. */
export interface FieldSpan {
  /** Lower case; empty for a line that is no field. */
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

interface HeaderBlock {
  readonly fields: readonly FieldSpan[];
  /** Where the empty line begins; undefined when there is none. */
  readonly end: number | undefined;
}

/** A piece of a message that is replaced; nothing is replaced where `start` is `end`. */
export interface Change {
  readonly start: number;
  readonly end: number;
  readonly bytes: Buffer;
}

// A name as RFC 5322 section 2.2 has it, white space before the colon being obsolete syntax (section 4.5). Names of
// more than 100 characters mean nothing to us.
const NAME = /^([!-9;-~]{1,100})[ \t]*:/;
const LF = 0x0a;
const CR = 0x0d;

/** Finds the fields of the header block that begins at `start`, in bytes with CRLF line ends. */
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

/** The bytes in pieces, with the changes made. They may come in any order but must not overlap. */
export function applyChanges(bytes: Buffer, changes: readonly Change[]): Buffer[] {
  const pieces: Buffer[] = [];
  let kept = 0;
  for (const change of changes.toSorted((a, b) => a.start - b.start || a.end - b.end)) {
    pieces.push(bytes.subarray(kept, change.start), change.bytes);
    kept = change.end;
  }
  return [...pieces, bytes.subarray(kept)];
}

/** The change that makes a field say `value`: in its place where there is one, else at `otherwise`. */
export function setField(fields: readonly FieldSpan[], otherwise: number, name: string, value: string): Change {
  const found = fields.find((field) => field.name === name.toLowerCase());
  const bytes = Buffer.from(`${name}: ${value}\r\n`);
  return { start: found?.start ?? otherwise, end: found?.end ?? otherwise, bytes };
}

/** A Content-Type with another charset and the other parameters that it had. */
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
/** Octets of a line without its end (RFC 5322 section 2.1.1). */
const LONGEST_LINE = 998;
/** Characters of an encoded line without its end (RFC 2045 section 6.7, rule 5), one of them for the soft break. */
const ENCODED_LINE = 75;

/** The bytes with every line end as CRLF, lone CR and lone LF made whole; the same bytes when they were so already. */
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

/** Whether bytes can stand in a message as they are: no NUL, and no line longer than SMTP lets through. */
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

/**
 * Encodes text as quoted-printable (RFC 2045 section 6.7). CRLF is a line end; a lone CR or LF is encoded as it is no
 * line end.
 */
export function encodeQuotedPrintable(bytes: Buffer): Buffer {
  // At worst every octet becomes three, and every 72 of these a soft break.
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

/** Encodes as base64 in lines of 76 characters (RFC 2045 section 6.8). */
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
