import { isUtf8 } from 'node:buffer';
import { TextDecoder } from 'node:util';
import iconv from 'iconv-lite';
import { createHzDecoder, createIso2022Decoder } from './seven-bit.ts';

/** Text from bytes; may be called for piece after piece of one text, `final` with the last. */
export type Decode = (bytes: Buffer, final: boolean) => string;

/** A charset, as it is needed for one text. */
interface Charset {
  readonly decode: Decode;
  /**
   * Whether encoded words that follow each other are decoded one by one: each begins anew, so their bytes are not one
   * text.
   */
  readonly alone: boolean;
}

const UTF8_LABELS: ReadonlySet<string> = new Set(['utf-8', 'utf8', 'unicode-1-1-utf-8', 'x-unicode20utf8']);
// US-ASCII says nothing: software that knows no charsets writes it.
const ASCII_LABELS: ReadonlySet<string> = new Set([
  '',
  'us-ascii',
  'ascii',
  'ansi_x3.4-1968',
  'iso646-us',
  '646',
  '7bit',
  '8bit',
]);
// The encoding standard has one byte order for all three, but in mail the text itself says it (RFC 2781 section 4.3).
const WIDE = /^(?:utf[-_]?16|ucs-?2|iso-10646-ucs-2|unicode|utf[-_]?32)$/;
/** Encodings of bytes and not of text, which iconv-lite knows too. */
const NO_CHARSETS = /^(?:base64|hex|binary)$/;

/**
 * The decoder for a text that is declared as `label`, by the labels of the WHATWG encoding standard ("latin1" is
 * windows-1252, as it is in the field), the charsets that shift, and whatever else iconv-lite knows. Text of no
 * label, or of one that nobody knows, is UTF-8 when its bytes are, else windows-1252, as unlabelled headers are read.
 * What is not valid becomes U+FFFD.
 */
export function decoderOfText(label: string | undefined, bytes: () => Iterable<Uint8Array>): Decode {
  const known = charsetOf(label ?? '');
  if (known) return known.decode;
  return areUtf8(bytes()) ? utf8Decoder() : (whatwgDecoder('windows-1252') ?? utf8Decoder());
}

/** What a text that `decoderOfText` reads should be labelled as; undefined where its own label is right. */
export function labelOfText(
  label: string | undefined,
  bytes: () => Iterable<Uint8Array>,
): 'utf-8' | 'windows-1252' | undefined {
  if (charsetOf(label ?? '')) return undefined;
  return areUtf8(bytes()) ? 'utf-8' : 'windows-1252';
}

/**
 * The text of encoded words in one charset that follow each other. They are one text, because much software cuts
 * characters, and shifted text, in two (against RFC 2047 section 5), but where a word carries the state of its
 * charset inside.
 */
export function decodePayloads(label: string, payloads: readonly Buffer[]): string {
  if (charsetOf(label)?.alone) return payloads.map((payload) => charsetOf(label)?.decode(payload, true) ?? '').join('');
  const bytes = payloads.length === 1 && payloads[0] ? payloads[0] : Buffer.concat(payloads);
  return decoderOfText(label, () => [bytes])(bytes, true);
}

/** Undefined for what nobody knows, and for US-ASCII. */
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

function shiftingDecoder(name: string): Decode | undefined {
  if (/^(?:cs)?iso-?2022-?jp|^jis$/.test(name)) return createIso2022Decoder('euc-jp');
  if (/^(?:cs)?iso-?2022-?kr/.test(name)) return createIso2022Decoder('euc-kr');
  if (/^(?:cs)?iso-?2022-?cn/.test(name)) return createIso2022Decoder('gbk');
  return /^hz(?:-?gb-?2312)?$/.test(name) ? createHzDecoder() : undefined;
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
    // A whole text in one piece is the common case, and Buffer is faster at it.
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
