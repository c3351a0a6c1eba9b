import { decoderOfText } from './charset.ts';
import type { Text } from './parsed.ts';
import { decodeTransfer, type TransferEncoding } from './transfer.ts';

/** A text body as it stands in the message. */
export interface EncodedText {
  readonly body: Buffer;
  readonly encoding: TransferEncoding;
  /** The charset that was declared. */
  readonly charset: string | undefined;
  /** What comes behind it. */
  readonly tail: string;
}

// A longer text is decoded piece by piece when it is written, so that a message of one huge text is in memory only
// once.
const LONGEST_STRING = 256 * 1024;
const PIECE = 64 * 1024;
const LF = 0x0a;
const EQUALS = 0x3d;

/** Decodes a text body, to LF line ends. */
export function decodeBody(text: EncodedText): Text {
  if (text.body.length > LONGEST_STRING) return () => lazyPieces(text);
  const bytes = decodeTransfer(text.body, text.encoding);
  const decoded = toLf(decoderOfText(text.charset, () => [bytes])(bytes, true));
  return decoded === '' ? decoded : decoded + text.tail;
}

function* lazyPieces({ body, encoding, charset, tail }: EncodedText): Iterable<string> {
  const decode = decoderOfText(charset, () => transferPieces(body, encoding));
  let held = '';
  for (const bytes of transferPieces(body, encoding)) {
    const text = held + decode(bytes, false);
    // A line end may be cut in two.
    held = text.endsWith('\r') ? '\r' : '';
    yield toLf(held === '' ? text : text.slice(0, -1));
  }
  yield held + decode(Buffer.alloc(0), true) + tail;
}

/**
 * Base64 is decoded at once, because dirt in it may shift its groups, and so is uuencode; the others are cut at line
 * ends, where no escape is.
 */
function* transferPieces(body: Buffer, encoding: TransferEncoding): Iterable<Buffer> {
  const atOnce = encoding === 'base64' || encoding === 'uuencode';
  const whole = atOnce ? decodeTransfer(body, encoding) : body;
  let from = 0;
  while (from < whole.length) {
    const to = cutAt(whole, from);
    const piece = whole.subarray(from, to);
    yield atOnce ? piece : decodeTransfer(piece, encoding);
    from = to;
  }
}

/**
 * The end of the piece that starts at `from`: behind a line end, or in a line that is far too long, before the last
 * escape.
 */
function cutAt(bytes: Buffer, from: number): number {
  const least = from + PIECE;
  if (least >= bytes.length) return bytes.length;
  const newline = bytes.subarray(least, least + 3 * PIECE).indexOf(LF);
  if (newline !== -1) return least + newline + 1;
  const escape = bytes.subarray(least - 2, least).indexOf(EQUALS);
  return escape === -1 ? least : least - 2 + escape;
}

function toLf(text: string): string {
  return text.replaceAll('\r\n', '\n');
}
