import { isUtf8 } from 'node:buffer';
import { decodePayloads, decodeRaw } from './charset.ts';
import { hasEscapes } from './iso-2022.ts';
import { decodeBase64 } from './transfer.ts';

/** A header field: the name as written, the value unfolded. */
export interface HeaderField {
  readonly name: string;
  readonly value: string;
}

// RFC 5322 section 2.2: any printable US-ASCII character except the colon.
const FIELD_NAME = /^[!-9;-~]+$/;
const HYPHEN = 0x2d;
const NOT_ASCII = /[^\x00-\x7f]/;
const RAW_WORD = /=\?[\w.:+*-]+\?[Qq]\?[^?]*\?=/g;

/**
 * Splits a header block into fields, in order. Lines that are not header fields are skipped. A value that is not UTF-8
 * is read in the charset that `charsetOf` finds, which is called only then, else as windows-1252, like most unlabelled
 * 8-bit headers. Without `charsetOf`, escape sequences are left alone too: a check of the author must see the same
 * bytes as other programs.
 */
export function parseHeaders(block: Buffer, charsetOf?: () => string | undefined): HeaderField[] {
  const valid = isUtf8(block);
  const text = block.toString(valid ? 'utf8' : 'latin1');
  const fields: HeaderField[] = [];
  let known: { readonly label: string | undefined } | undefined;
  const charset = charsetOf && (() => (known ??= { label: charsetOf() }).label);
  // An mbox separator may come first; it is no field, although it contains colons. `From :` is (RFC 5322 section 4.5).
  let start = /^From (?![ \t]*:)/i.test(text) ? nextLine(text, 0) : 0;
  let colon = text.indexOf(':', start);
  while (start < text.length) {
    const end = endOfField(text, start);
    if (colon < start && colon !== -1) colon = text.indexOf(':', start); // otherwise it is ahead, or there is none
    const name = colon < end ? text.slice(start, Math.max(start, colon)).trimEnd() : '';
    if (FIELD_NAME.test(name)) {
      fields.push({ name, value: readable(unfold(text.slice(colon + 1, end), valid), valid, charset) });
    }
    start = end;
  }
  return fields;
}

/** A value as text; `valid`: it is text already, unless it has escape sequences. */
function readable(value: string, valid: boolean, charsetOf: (() => string | undefined) | undefined): string {
  if (NOT_ASCII.test(value)) return valid ? value : decodeUnlabelled(value, charsetOf?.());
  return charsetOf && hasEscapes(value) ? decodeRaw(Buffer.from(value), charsetOf()) : value;
}

/** All values of a field in order; `name` is in lower case. */
export function allValues(fields: readonly HeaderField[], name: string): string[] {
  const values: string[] = [];
  for (const field of fields) {
    if (field.name.length === name.length && field.name.toLowerCase() === name) values.push(field.value);
  }
  return values;
}

/** The first value of a field; `name` is in lower case. */
export function firstValue(fields: readonly HeaderField[], name: string): string | undefined {
  for (const field of fields) {
    if (field.name.length === name.length && field.name.toLowerCase() === name) return field.value;
  }
  return undefined;
}

/** Field names as in the payload: `DKIM-Signature` becomes `Dkim-Signature`. */
export function toTitleCase(name: string): string {
  return isTitleCase(name)
    ? name
    : name
        .split('-')
        .map((part) => part.charAt(0).toUpperCase() + part.slice(1).toLowerCase())
        .join('-');
}

/** Nearly all names are, and checking is six times as fast as converting. */
function isTitleCase(name: string): boolean {
  let first = true;
  for (let at = 0; at < name.length; at++) {
    const code = name.charCodeAt(at);
    if (first ? code >= 0x61 && code <= 0x7a : code >= 0x41 && code <= 0x5a) return false;
    if (code > 0x7f) return false;
    first = code === HYPHEN;
  }
  return true;
}

/** The end of the field that starts at `start`, folded lines included. */
function endOfField(text: string, start: number): number {
  let end = nextLine(text, start);
  while (end < text.length && (text.charCodeAt(end) === 0x20 || text.charCodeAt(end) === 0x09))
    end = nextLine(text, end);
  return end;
}

function nextLine(text: string, from: number): number {
  const newline = text.indexOf('\n', from);
  return newline === -1 ? text.length : newline + 1;
}

/** `valid`: it is text; else its characters are bytes, and 0xA0 is no blank. */
function unfold(value: string, valid: boolean): string {
  const text = valid ? value.trim() : trimAscii(value);
  if (!text.includes('\n')) return text.includes('\r') ? text.replaceAll('\r', ' ') : text;
  let line = '';
  for (let from = 0; from <= text.length; ) {
    const newline = text.indexOf('\n', from);
    const to = newline === -1 ? text.length : newline;
    const part = valid ? text.slice(from, to).trim() : trimAscii(text.slice(from, to));
    if (part !== '') line += line === '' ? part : ` ${part}`;
    from = to + 1;
  }
  return line.includes('\r') ? line.replaceAll('\r', ' ') : line;
}

function trimAscii(text: string): string {
  let from = 0;
  let to = text.length;
  while (from < to && text.charCodeAt(from) <= 0x20) from++;
  while (to > from && text.charCodeAt(to - 1) <= 0x20) to--;
  return text.slice(from, to);
}

/**
 * Decodes bytes of a header (given as `latin1`): UTF-8 if valid, else `charset`, that of the body, else windows-1252.
 * Raw 8-bit bytes inside an encoded word (which RFC 2047 forbids) belong to the charset of the word, so they are
 * Q-encoded.
 */
export function decodeUnlabelled(latin1: string, charset?: string): string {
  const bytes = Buffer.from(latin1, 'latin1');
  if (isUtf8(bytes)) return bytes.toString('utf8');
  const rest = Buffer.from(
    latin1.replace(RAW_WORD, (word) => word.replace(/[^\x00-\x7f]/g, escaped)),
    'latin1',
  );
  return isUtf8(rest) ? rest.toString('utf8') : decodeRaw(rest, charset);
}

function escaped(char: string): string {
  return `=${char.charCodeAt(0).toString(16).toUpperCase()}`;
}

/** A header value with parameters (RFC 2045 section 5.1): `text/plain; charset=utf-8`. */
export interface ParameterizedValue {
  /** Lower case, without quotes, comments and blanks around it; empty if there is none. */
  readonly value: string;
  /** By lower-case name. If a name is repeated, the last value wins. */
  readonly params: ReadonlyMap<string, string>;
}

const SEMICOLON = 0x3b;
const ASTERISK = 0x2a;
const EQUALS = 0x3d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * Splits a value and its parameters in one pass. RFC 2231 parameters keep their written names (`filename*0*`). The
 * semicolon behind the value may be missing, or the value itself.
 */
export function parseStructured(text: string): ParameterizedValue {
  const params = new Map<string, string>();
  let at = 0;
  let value: string | undefined;
  while (at <= text.length) {
    const piece = readPiece(text, at);
    if (value === undefined) {
      const [first = '', second] = piece.name === undefined ? [piece.value] : piece.name.split(/\s+/, 2);
      value = piece.name === undefined || second !== undefined ? first : `${piece.name}=${piece.value}`;
      if (piece.name !== undefined) params.set((second ?? first).toLowerCase(), piece.value);
    } else if (piece.name !== undefined) params.set(piece.name.toLowerCase(), piece.value);
    else if (piece.value !== '') params.set(piece.value.toLowerCase(), '');
    at = piece.next;
  }
  return { value: bare(value ?? '').toLowerCase(), params };
}

/** A value without comments (RFC 822 section 3.1.4) and the quotes that some software writes around it. */
function bare(value: string): string {
  const text = value.includes('(') ? value.replace(/\([^()]*\)/g, ' ').trim() : value;
  return text.length > 1 && text.startsWith('"') && text.endsWith('"') ? text.slice(1, -1).trim() : text;
}

/** A parameter of a protocol, such as a boundary, in any form; '' if there is none. The extended form wins. */
export function asciiParameter(type: ParameterizedValue, name: string): string {
  return extended(type, name) || (type.params.get(name) ?? '');
}

/** A piece of a parameter in an extended form of RFC 2231. */
interface ExtendedPiece {
  readonly number: number;
  readonly text: string;
  /** Whether `%XX` in it stands for a byte. */
  readonly encoded: boolean;
}

function piecesOf(type: ParameterizedValue, name: string): readonly ExtendedPiece[] {
  const pieces: ExtendedPiece[] = [];
  for (const [key, text] of type.params) {
    const match =
      key.charCodeAt(name.length) === ASTERISK && key.startsWith(name)
        ? /^(\d{0,4})(\*?)$/.exec(key.slice(name.length + 1))
        : null;
    if (match) pieces.push({ number: Number(match[1]), text, encoded: match[1] === '' || match[2] === '*' });
  }
  return pieces.sort((a, b) => a.number - b.number);
}

/**
 * A parameter for people, such as a file name, decoded: in any form of RFC 2231, or plain, with encoded words as most
 * software writes it, also into pieces. '' if there is none.
 */
export function decodedParameter(type: ParameterizedValue, name: string): string {
  return decodeWords(extended(type, name) || (type.params.get(name) ?? ''));
}

/**
 * A parameter in a form of RFC 2231, decoded; '' if it has none. Pieces are joined; a missing one is passed over. Only
 * those with an asterisk behind the number are encoded (section 4.1); consecutive ones are decoded as one text, because
 * a character may be split.
 */
function extended(type: ParameterizedValue, name: string): string {
  const pieces = piecesOf(type, name);
  const [first] = pieces;
  if (!first) return '';
  const [prefix, charset = ''] = (first.encoded && /^([^']*)'[^']*'/.exec(first.text)) || [''];
  const payloads = pieces.map(({ text, encoded }, i) => {
    const own = i === 0 ? text.slice(prefix.length) : text;
    return encoded ? percentDecodedBytes(own) : own;
  });
  return decodeRun({ charset, payloads }, (bytes) => [Buffer.concat(bytes)]);
}

/** The bytes of a text in which `%XX` stands for a byte; any other `%` is one. */
export function percentDecodedBytes(text: string): Buffer {
  const latin1 = Buffer.from(text).toString('latin1');
  const decode = (_: string, hex: string) => String.fromCharCode(Number.parseInt(hex, 16));
  return Buffer.from(latin1.replace(/%([0-9a-f]{2})/gi, decode), 'latin1');
}

/** Reads one piece up to the next semicolon outside quotes. */
function readPiece(text: string, start: number): { name: string | undefined; value: string; next: number } {
  let name: string | undefined;
  let from = start;
  let quoted = false;
  let plain = true;
  let at = start;
  for (; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === BACKSLASH && (quoted || name !== undefined)) {
      plain = false;
      at++;
    } else if (code === QUOTE && (name !== undefined || quoted)) {
      plain = false;
      quoted = !quoted;
    } else if (quoted) continue;
    else if (code === SEMICOLON) break;
    else if (code === EQUALS && name === undefined) {
      name = text.slice(from, at).trim();
      from = at + 1;
    }
  }
  const written = text.slice(from, at).trim();
  return { name, value: plain ? written : unquote(written, name), next: at + 1 };
}

const NAME_OF_FILE = /^(?:file)?name(?:\*|$)/i;

/** In a file name a backslash before a letter is part of an unquoted path: `C:\Users\x\a.pdf`. */
function unquote(text: string, parameter: string | undefined): string {
  const escapes = NAME_OF_FILE.test(parameter ?? '') ? /\\([^\p{L}\p{N}._-])|"/gu : /\\([^])|"/g;
  return text.replace(escapes, '$1').replace(/\\$/, '');
}

// RFC 2047 section 2, with the language of RFC 2231 section 5, and white space inside, which is forbidden but occurs.
const WORD = /=\?([\w.:+-]+)(?:\*[\w-]*)?\?([QqBb])\?([^?]*)\?=/g;
const NON_ASCII_RUNS = /([^\x00-\x7f]+)/;

/** Consecutive encoded words in one charset: their payloads. Strings among them are decoded already. */
interface Run {
  readonly charset: string;
  readonly payloads: (Buffer | string)[];
}

/** Decodes the encoded words in a text (RFC 2047). Everything else stays unchanged. */
export function decodeWords(text: string): string {
  if (!text.includes('=?')) return text;
  let decoded = '';
  let run: Run | undefined;
  let from = 0;
  for (const match of text.matchAll(WORD)) {
    const [whole, charset = '', kind = '', payload = ''] = match;
    const between = text.slice(from, match.index);
    from = match.index + whole.length;
    const label = charset.toLowerCase();
    // White space between encoded words is dropped (section 6.2).
    const follows = run !== undefined && between.trim() === '';
    if (run?.charset !== label || !follows) {
      decoded += (run ? decodeRun(run) : '') + (follows ? '' : between);
      run = { charset: label, payloads: [] };
    }
    run.payloads.push(...toPayloads(label, kind, payload));
  }
  return decoded + (run ? decodeRun(run) : '') + text.slice(from);
}

/** A decoded text as one line, also for consumers that split it where Unicode does: it may end up in a header again. */
export function singleLine(text: string): string {
  return ONE_LINE.test(text) ? text : text.toWellFormed().replace(ENDS, ' ');
}

const ONE_LINE = /^[\t -~]*$/;
const ENDS = /(?:[^\P{Cc}\t]|[\u2028\u2029])+/gu;

/** `join`: what is decoded together of consecutive bytes. */
function decodeRun({ charset, payloads }: Run, join = (bytes: readonly Buffer[]) => bytes): string {
  let decoded = '';
  let bytes: Buffer[] = [];
  const flush = (): void => {
    if (bytes.length > 0) decoded += decodePayloads(charset, join(bytes));
    bytes = [];
  };
  for (const payload of payloads) {
    if (typeof payload !== 'string') {
      bytes.push(payload);
      continue;
    }
    flush();
    decoded += payload;
  }
  flush();
  return decoded;
}

/**
 * Headers are decoded before their encoded words: characters beyond ASCII in a word are already decoded, whatever
 * charset the word declares.
 */
function toPayloads(charset: string, kind: string, payload: string): (Buffer | string)[] {
  if (kind === 'B' || kind === 'b') return [decodeBase64(Buffer.from(payload, 'latin1'))];
  if (!NON_ASCII_RUNS.test(payload)) return [decodeQ(payload)];
  if (charset === 'utf-8' || charset === 'utf8') return [decodeQ(payload)];
  return payload.split(NON_ASCII_RUNS).map((piece, i) => (i % 2 === 1 ? piece : decodeQ(piece)));
}

/** The Q encoding (RFC 2047 section 4.2). */
function decodeQ(payload: string): Buffer {
  const bytes = Buffer.from(payload.replaceAll('_', ' '), 'utf8');
  if (!bytes.includes('=')) return bytes;
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const hex = bytes[at] === 0x3d ? bytes.toString('latin1', at + 1, at + 3) : '';
    const escaped = /^[0-9A-Fa-f]{2}$/.test(hex);
    bytes[length++] = escaped ? Number.parseInt(hex, 16) : (bytes[at] ?? 0);
    if (escaped) at += 2;
  }
  return bytes.subarray(0, length);
}
