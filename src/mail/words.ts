import { decodePayloads } from './charset.ts';
import { decodeBase64 } from './transfer.ts';

// RFC 2047 section 2, the language of RFC 2231 section 5, and white space inside, which it forbids and software writes.
const WORD = /=\?([\w.:+-]+)(?:\*[\w-]*)?\?([QqBb])\?([^?]*)\?=/g;
const NOT_ASCII = /([^\x00-\x7f]+)/;

/** Words that follow each other in one charset: what they carry. Text among it is decoded already. */
interface Run {
  readonly charset: string;
  readonly payloads: (Buffer | string)[];
}

/** Decodes the encoded words in a text (RFC 2047). What is no word stays as it is, and so does text around them. */
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
    // White space between words is none (section 6.2).
    const follows = run !== undefined && between.trim() === '';
    if (run?.charset !== label || !follows) {
      decoded += (run ? decodeRun(run) : '') + (follows ? '' : between);
      run = { charset: label, payloads: [] };
    }
    run.payloads.push(...toPayloads(label, kind, payload));
  }
  return decoded + (run ? decodeRun(run) : '') + text.slice(from);
}

function decodeRun({ charset, payloads }: Run): string {
  let decoded = '';
  let bytes: Buffer[] = [];
  const flush = (): void => {
    if (bytes.length > 0) decoded += decodePayloads(charset, bytes);
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
 * The header was read before its words are: a character beyond ASCII in a word is what it is, whatever the word says
 * its charset was.
 */
function toPayloads(charset: string, kind: string, payload: string): (Buffer | string)[] {
  if (kind === 'B' || kind === 'b') return [decodeBase64(Buffer.from(payload, 'latin1'))];
  if (!NOT_ASCII.test(payload)) return [decodeQ(payload)];
  if (charset === 'utf-8' || charset === 'utf8') return [decodeQ(payload)];
  return payload.split(NOT_ASCII).map((piece, i) => (i % 2 === 1 ? piece : decodeQ(piece)));
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
