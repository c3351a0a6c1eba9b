import { StringDecoder } from 'node:string_decoder';
import { decodeText, type Charset } from './charset.ts';
import type { Text } from './parsed.ts';
import { decodeBase64, decodeQuotedPrintable } from './transfer.ts';

export type TransferEncoding = 'identity' | 'base64' | 'quoted-printable';

/** A text body as it stands in the message. */
export interface EncodedText {
  readonly body: Buffer;
  readonly encoding: TransferEncoding;
  readonly charset: Charset;
  /** What comes behind it. */
  readonly tail: string;
}

// A longer text is decoded piece by piece when it is written, so that a message of one huge text is in memory only once.
const LONGEST_STRING = 256 * 1024;
const PIECE = 64 * 1024;
const LF = 0x0a;

/** Decodes a text body, to LF line ends. */
export function decodeBody(text: EncodedText): Text {
  if (text.body.length > LONGEST_STRING) return () => lazyPieces(text);
  const decoded = toLf(decodeText(decodeTransfer(text.body, text.encoding), text.charset));
  return decoded === '' ? decoded : decoded + text.tail;
}

export function decodeTransfer(body: Buffer, encoding: TransferEncoding): Buffer {
  if (encoding === 'identity') return body;
  return encoding === 'base64' ? decodeBase64(body) : decodeQuotedPrintable(body);
}

function* lazyPieces({ body, encoding, charset, tail }: EncodedText): Iterable<string> {
  const decoder = new StringDecoder('utf8');
  let held = '';
  for (const bytes of transferPieces(body, encoding)) {
    const text = held + (charset === 'utf-8' ? decoder.write(bytes) : decodeText(bytes, charset));
    // A line end may be cut in two.
    held = text.endsWith('\r') ? '\r' : '';
    yield toLf(held === '' ? text : text.slice(0, -1));
  }
  yield held + decoder.end() + tail;
}

function* transferPieces(body: Buffer, encoding: TransferEncoding): Iterable<Buffer> {
  let rest = '';
  for (const slice of lineSlices(body)) {
    if (encoding !== 'base64') { yield decodeTransfer(slice, encoding); continue; }
    const characters = rest + slice.toString('latin1').replaceAll('\r', '').replaceAll('\n', '');
    const whole = characters.length - (characters.length % 4);
    rest = characters.slice(whole);
    yield Buffer.from(characters.slice(0, whole), 'base64');
  }
}

/** Cuts at line ends, so that no escape of quoted-printable is cut in two. */
function* lineSlices(body: Buffer): Iterable<Buffer> {
  let from = 0;
  while (from < body.length) {
    const newline = from + PIECE < body.length ? body.indexOf(LF, from + PIECE) : -1;
    const to = newline === -1 ? body.length : newline + 1;
    yield body.subarray(from, to);
    from = to;
  }
}

function toLf(text: string): string {
  return text.replaceAll('\r\n', '\n');
}
