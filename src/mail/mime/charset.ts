import { isAscii, isUtf8 } from 'node:buffer';
import { TextDecoder } from 'node:util';
import iconv from 'iconv-lite';
import { namesIn } from '../../base/tables.ts';
import { type Decode, hasEscapes, shiftingDecoder } from './iso-2022.ts';

/** A charset with a decoder for one text. */
interface Charset {
  readonly decode: Decode;
  /** Whether consecutive encoded words are decoded separately: each starts with fresh state, so no bytes are joined. */
  readonly alone: boolean;
}

const UTF8_LABELS = namesIn('utf-8 utf8 unicode-1-1-utf-8 x-unicode20utf8');
// US-ASCII is no hint: software without support for charsets declares it.
const ASCII_LABELS = new Set(['', ...namesIn('us-ascii ascii ansi_x3.4-1968 iso646-us 646 7bit 8bit')]);
// The encoding standard fixes one byte order for all these; in mail the text declares its own (RFC 2781 section 4.3).
const WIDE = /^(?:utf[-_]?16|ucs-?2|iso-10646-ucs-2|unicode|utf[-_]?32)$/;
/** Encodings of bytes, not of text, that iconv-lite also supports. */
const NO_CHARSETS = /^(?:base64|hex|binary)$/;

/** Hints to the charset of a text, besides its label. */
interface TextHints {
  /** Whether it is HTML, which may name its charset itself. */
  readonly isHtml?: boolean;
}

/**
 * Creates the decoder for text declared as `label`: by the labels of the WHATWG encoding standard ("latin1" means
 * windows-1252, as in practice), the shifting charsets, and whatever else iconv-lite supports. If the label is missing
 * or wrong, `labelOfText` finds the right one. Invalid bytes become U+FFFD.
 */
export function decoderOfText(
  label: string | undefined,
  bytes: () => Iterable<Uint8Array>,
  hints: TextHints = {},
): Decode {
  const known = charsetOf(label ?? '');
  const right = rightLabel(known !== undefined, label, bytes, hints);
  return (right === undefined ? known : charsetOf(right))?.decode ?? utf8Decoder();
}

/**
 * The correct label for a text; undefined if its own label is correct. For text without a known label, the first of
 * these decides: its byte order mark, escape sequences of ISO-2022, valid UTF-8, a declaration in its HTML; else it is
 * windows-1252, like unlabelled headers. Text that is labelled as Western is UTF-8 if there is no doubt.
 */
export function labelOfText(
  label: string | undefined,
  bytes: () => Iterable<Uint8Array>,
  hints: TextHints = {},
): string | undefined {
  return rightLabel(isKnown(label ?? ''), label, bytes, hints);
}

function rightLabel(
  known: boolean,
  label: string | undefined,
  bytes: () => Iterable<Uint8Array>,
  { isHtml = false }: TextHints,
): string | undefined {
  if (known) return isWestern(label) && isSurelyUtf8(bytes) ? 'utf-8' : undefined;
  const [first = Buffer.alloc(0)] = bytes();
  const start = Buffer.from(first.buffer, first.byteOffset, Math.min(first.length, MAX_HEAD)).toString('latin1');
  const marked = MARKS.find(([mark]) => start.startsWith(mark));
  if (marked) return marked[1];
  if (hasEscapes(start) && !/[\x80-\xff]/.test(start)) return iso2022Label(start);
  const said = isHtml ? labelInHtml(start) : undefined;
  if (said === undefined || UTF8_LABELS.has(said)) return areUtf8(bytes()) ? 'utf-8' : 'windows-1252';
  return isSurelyUtf8(bytes) ? 'utf-8' : said;
}

/**
 * Decodes bytes of a header that are not UTF-8, and declare no charset: in `charset`, that of the body, if they can be,
 * else as windows-1252. Escape sequences are ISO-2022, whatever the body is.
 */
export function decodeRaw(bytes: Buffer, charset: string | undefined): string {
  const latin1 = bytes.toString('latin1');
  const label = hasEscapes(latin1) ? iso2022Label(latin1) : charset;
  const found = label === undefined || !keepsAscii(label) ? undefined : charsetOf(label)?.decode(bytes, true);
  const isWrong = found?.includes('\ufffd') && !isAscii(bytes);
  return found === undefined || isWrong ? (whatwgDecoder('windows-1252')?.(bytes, true) ?? latin1) : found;
}

// Bytes of a text in which it names its charset. The HTML standard searches 1,024, but mail has style sheets first.
const MAX_HEAD = 16 * 1024;
const MARKS = [
  ['\xff\xfe', 'utf-16le'],
  ['\xfe\xff', 'utf-16be'],
  ['\xef\xbb\xbf', 'utf-8'],
] as const;
const WESTERN = /^(?:iso[-_]?8859[-_]?(?:1|15)|latin-?[19]|l1|(?:x-)?cp-?1252|windows-?1252)$/i;
const META = /<meta\b[^>]{0,500}?\bcharset\s{0,20}=\s{0,20}["']?\s{0,20}([\w.:+-]{1,40})/i;
const XML = /^\s{0,100}<\?xml\b[^>]{0,200}?\bencoding\s{0,20}=\s{0,20}["']([\w.:+-]{1,40})["']/i;

const isWestern = (label = ''): boolean => WESTERN.test(label.trim());

function iso2022Label(latin1: string): string {
  const [, set] = /\x1b\$\)([AC])/.exec(latin1) ?? [];
  return set === undefined ? 'iso-2022-jp' : set === 'A' ? 'iso-2022-cn' : 'iso-2022-kr';
}

/** The charset that an HTML text declares; undefined if the declaration could not be read in it. */
function labelInHtml(start: string): string | undefined {
  const label = (META.exec(start)?.[1] ?? XML.exec(start)?.[1])?.toLowerCase();
  return label !== undefined && isKnown(label) && keepsAscii(label) ? label : undefined;
}

/** Whether ASCII stays ASCII in a charset. */
function keepsAscii(label: string): boolean {
  return !/^(?:utf[-_]?(?:7|16|32)|ucs|iso-10646|unicode$|csunicode|hz)/i.test(label.trim()) && isKnown(label);
}

const LOWER_CASE = /[a-z]/;

/**
 * Whether bytes labelled as something else are UTF-8 beyond doubt: they are valid, and nobody would write the text that
 * they are otherwise. One pair may be text, as in "NESTL\u00c9\u00ae": so there must be a longer sequence, two without
 * anything between, or one at a small letter, as in "f\u00c3\u00bcr". No-break spaces and signs count less.
 */
function isSurelyUtf8(pieces: () => Iterable<Uint8Array>): boolean {
  if (!areUtf8(pieces())) return false;
  for (const piece of pieces()) if (!isAscii(piece) && hasTelltale(piece)) return true;
  return false;
}

function hasTelltale(bytes: Uint8Array): boolean {
  let signs = 0;
  const isSmall = (byte: number | undefined) => byte !== undefined && LOWER_CASE.test(String.fromCharCode(byte));
  for (let at = 0; at < bytes.length; at++) {
    const lead = bytes[at] ?? 0;
    if (lead < 0xc2) continue;
    if (lead >= 0xe0 || (bytes[at + 2] ?? 0) >= 0xc2) return true;
    if (lead !== 0xc2 && (isSmall(bytes[at - 1]) || isSmall(bytes[at + 2]))) return true;
    if (lead === 0xc2 && ++signs > 1) return true;
    at++;
  }
  return false;
}

/**
 * Decodes consecutive encoded words in one charset. They are joined first, because much software splits characters and
 * shifted text between words (against RFC 2047 section 5), except in charsets that keep state within a word.
 */
export function decodePayloads(label: string, payloads: readonly Buffer[]): string {
  if (charsetOf(label)?.alone) return payloads.map((payload) => charsetOf(label)?.decode(payload, true) ?? '').join('');
  const bytes = payloads.length === 1 && payloads[0] ? payloads[0] : Buffer.concat(payloads);
  return decoderOfText(label, () => [bytes])(bytes, true);
}

/** False for unknown labels and for US-ASCII. */
function isKnown(label: string): boolean {
  return charsetOf(label) !== undefined;
}

/** Undefined for unknown labels and for US-ASCII. */
function charsetOf(label: string): Charset | undefined {
  const name = label.trim().toLowerCase();
  if (UTF8_LABELS.has(name)) return { decode: utf8Decoder(), alone: false };
  if (ASCII_LABELS.has(name)) return undefined;
  const wide = WIDE.test(name);
  const decode = shiftingDecoder(name) ?? (wide ? undefined : whatwgDecoder(name));
  if (decode) return { decode, alone: false };
  if (NO_CHARSETS.test(name.replace(/[^a-z0-9]/g, '')) || !iconv.encodingExists(name)) return undefined;
  return { decode: iconvDecoder(name), alone: wide || /utf[-_]?7/.test(name) };
}

function areUtf8(pieces: Iterable<Uint8Array>): boolean {
  if (Array.isArray(pieces) && pieces.length === 1) return isUtf8(pieces[0]);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  try {
    for (const piece of pieces) decoder.decode(piece, { stream: true });
    decoder.decode();
    return true;
  } catch {
    return false;
  }
}

function utf8Decoder(): Decode {
  let decoder: TextDecoder | undefined;
  return (bytes, final) => {
    // Most texts come in one piece, and Buffer is faster for these.
    if (final && decoder === undefined) return bytes.toString('utf8');
    decoder ??= new TextDecoder('utf-8', { ignoreBOM: true });
    return decoder.decode(bytes, { stream: !final });
  };
}

function whatwgDecoder(label: string): Decode | undefined {
  try {
    const decoder = new TextDecoder(label, { ignoreBOM: true });
    return (bytes, final) => decoder.decode(bytes, { stream: !final });
  } catch {
    return undefined;
  }
}

function iconvDecoder(label: string): Decode {
  const decoder = iconv.getDecoder(label);
  return (bytes, final) => decoder.write(bytes) + (final ? (decoder.end() ?? '') : '');
}
