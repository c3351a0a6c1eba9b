import { type Bytes, readStart } from '../../base/bytes.ts';
import { MESSAGE_LIMITS } from '../outgoing.ts';
import { asciiParameter, type HeaderField, parseHeaders, parseStructured } from './headers.ts';

/** A header field by its position in the bytes, line end included. */
export interface FieldRange {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

/** The header section of a message. */
export interface HeaderSection {
  readonly fields: readonly FieldRange[];
  /** The bytes as latin1, so that offsets are the same; reaches at least to the body. */
  readonly text: string;
  /** Start of the body, after the empty line. */
  readonly bodyAt: number;
  /** Whether it ends within the limit; if not, fields may be missing and signatures cannot be checked. */
  readonly whole: boolean;
}

/** Maximum octets of header to read, for every reader the same. */
const MAX_HEADER_BYTES = MESSAGE_LIMITS.headerBytes;

const NAME = /^[\x21-\x39\x3b-\x7e]+$/;
const FIELD = /^([\x21-\x39\x3b-\x7e]+)[ \t]*:/;
const BARE_NAME = /^([\x21-\x39\x3b-\x7e]+)[ \t]*$/; // the colon may be on the next line (RFC 5322 section 4.5)

/** Splits the start of a message into fields, in one pass. A line that is no field belongs to the field above it. */
export function parseHeaderSection(bytes: Uint8Array): HeaderSection {
  const head = bytes.subarray(0, MAX_HEADER_BYTES);
  const text = Buffer.from(head.buffer, head.byteOffset, head.byteLength).toString('latin1');
  const fields: { name: string; start: number; end: number }[] = [];
  let colon = text.indexOf(':');
  for (let at = 0; at < text.length; ) {
    const next = text.indexOf('\n', at) + 1 || text.length;
    if (isEmptyLine(text, at)) return { fields, text, bodyAt: next, whole: true };
    if (colon < at && colon !== -1) colon = text.indexOf(':', at); // otherwise it is ahead, or there is none
    const name = nameAt(text, at, colon, next);
    const last = fields.at(-1);
    if (name !== undefined) fields.push({ name, start: at, end: next });
    else if (last) last.end = next;
    else fields.push({ name: '', start: at, end: next });
    at = next;
  }
  return { fields, text, bodyAt: bytes.length, whole: bytes.length <= MAX_HEADER_BYTES };
}

function isEmptyLine(text: string, at: number): boolean {
  return text[at] === '\n' || text.startsWith('\r\n', at);
}

/** The name of the field that starts on a line; undefined if none does. */
function nameAt(text: string, start: number, colon: number, next: number): string | undefined {
  const first = text[start];
  if (first === ' ' || first === '\t') return undefined;
  const plain = colon < next ? text.slice(start, Math.max(start, colon)) : '';
  return NAME.test(plain) ? plain.toLowerCase() : uncommonName(lineAt(text, start, next), text, next);
}

function lineAt(text: string, start: number, end: number): string {
  const line = text.slice(start, end);
  return line.endsWith('\r\n') ? line.slice(0, -2) : line.endsWith('\n') ? line.slice(0, -1) : line;
}

function uncommonName(line: string, text: string, next: number): string | undefined {
  const name = FIELD.exec(line)?.[1];
  if (name !== undefined) return name.toLowerCase();
  const bare = BARE_NAME.exec(line)?.[1];
  return bare !== undefined && /^[ \t]*:/.test(text.slice(next, next + 80)) ? bare.toLowerCase() : undefined;
}

/** Reads enough of a message to tell whether its header section is within the limit. */
export function readHeaderStart(message: Bytes): Promise<Buffer> {
  return readStart(message, MAX_HEADER_BYTES + 1);
}

const CRLF = Buffer.from('\r\n');

// RFC 5322 section 3.6.8: printable ASCII except the colon. Blanks before the colon are obsolete but still sent.
const BEGINS_WITH_FIELD = /^[!-9;-~]+[ \t]*:/;
const HAS_FIELD = new RegExp(BEGINS_WITH_FIELD, 'm');
const END_OF_HEADER = /\r?\n\r?\n/;
/** Bytes in which the first field of a header normally starts. If none does, the largest header is searched. */
const USUAL = 100;

/**
 * Whether a message has no header at all, as sent by programs that know nothing of mail: it starts with a blank or a
 * tab, or no line before the first empty one is a field. Then all of it is body, as in Postfix; after our Received line
 * it would be read as its continuation, or as fields without a name.
 */
export function isHeadless(message: Uint8Array): boolean {
  const first = message[0];
  if (first === 0x20 || first === 0x09) return true;
  if (first === undefined || first === 0x0d || first === 0x0a) return false;
  if (BEGINS_WITH_FIELD.test(startOf(message, USUAL))) return false;
  return !HAS_FIELD.test(startOf(message, MESSAGE_LIMITS.headerBytes).split(END_OF_HEADER, 1)[0] ?? '');
}

function startOf({ buffer, byteOffset, length }: Uint8Array, most: number): string {
  return Buffer.from(buffer, byteOffset, Math.min(length, most)).toString('latin1');
}

/** The header section, up to the empty line; of a large one the part that is read. */
export function headerBlock(message: Uint8Array): Buffer {
  const start = Buffer.from(message.buffer, message.byteOffset, Math.min(message.length, MESSAGE_LIMITS.headerBytes));
  for (let at = 0; at < start.length; ) {
    if (start[at] === 0x0a || (start[at] === 0x0d && start[at + 1] === 0x0a)) return start.subarray(0, at);
    const end = start.indexOf(0x0a, at);
    if (end === -1) break;
    at = end + 1;
  }
  return start;
}

/** The fields of a message or of its beginning, for reading; none if it has no header. */
export function readFields(message: Uint8Array): HeaderField[] {
  return isHeadless(message) ? [] : parseHeaders(headerBlock(message), () => rawCharset(message));
}

/** Bytes after a header in which the first text is searched. */
const MAX_SEARCHED = 16 * 1024;
const CONTENT_TYPE = /^content-type[ \t]{0,20}:(.*(?:\r?\n[ \t].*)*)/gim;

/** The charset for raw 8-bit fields of a message: that of its body, or of its first text that declares one. */
export function rawCharset(message: Uint8Array): string | undefined {
  const block = headerBlock(message);
  return ownCharset(block) ?? charsetIn(startOf(message.subarray(block.length), MAX_SEARCHED), /^text\//);
}

/** The charset that a header block declares for its body. */
export function ownCharset(block: Buffer): string | undefined {
  return charsetIn(block.toString('latin1'), /(?:)/);
}

function charsetIn(text: string, type: RegExp): string | undefined {
  for (const [, written = ''] of text.matchAll(CONTENT_TYPE)) {
    const value = parseStructured(written.replace(/\r?\n/g, ' '));
    const charset = asciiParameter(value, 'charset');
    if (charset !== '' && type.test(value.value)) return charset;
  }
  return undefined;
}

/** Whether the header section is longer than the part that is read. Then its author and its signatures are unknown. */
export function isOverlong(message: Uint8Array): boolean {
  return message.length > MAX_HEADER_BYTES && headerBlock(message).length === MAX_HEADER_BYTES;
}

/** The trace to put in front of a message; if the message has no header, followed by the empty line that ends one. */
export function traceBefore(trace: string, message: Uint8Array): string {
  return isHeadless(message) ? `${trace}\r\n` : trace;
}

/** The message, with an empty header in front if it has none. */
export function withHeader(message: Buffer): Buffer {
  return isHeadless(message) ? Buffer.concat([CRLF, message]) : message;
}
