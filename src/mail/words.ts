import { decoderOfWord } from './charset.ts';

// RFC 2047 section 2. No white space inside: a word with some in it is for the library.
const WORD = /=\?([\w-]+)(?:\*[\w-]*)?\?([QqBb])\?([^?\s]*)\?=/g;

interface Word { readonly kind: string; readonly charset: string; payloads: Buffer[] }

/** Decodes encoded words (RFC 2047); undefined when there is something that the library knows better. */
export function decodeWords(text: string): string | undefined {
  if (!text.includes('=?')) return text;
  let out = '';
  for (const piece of pieces(text)) {
    const decoded = typeof piece === 'string' ? plain(piece) : decode(piece);
    if (decoded === undefined) return undefined;
    out += decoded;
  }
  return out;
}

/** Plain text and words in turn. White space between words is none (section 6.2), and words of one kind that follow each other are one: a character may be cut in two. */
function pieces(text: string): (string | Word)[] {
  const found: (string | Word)[] = [];
  let from = 0;
  for (const match of text.matchAll(WORD)) {
    const [whole, charset = '', kind = '', payload = ''] = match;
    const word: Word = { kind: kind.toUpperCase(), charset: charset.toLowerCase(), payloads: [toBytes(kind, payload)] };
    const between = text.slice(from, match.index);
    from = match.index + whole.length;
    const last = found.at(-1);
    if (typeof last !== 'object' || between.trim() !== '') found.push(between, word);
    else if (last.kind === word.kind && last.charset === word.charset) last.payloads.push(...word.payloads);
    else found.push(word);
  }
  return [...found, text.slice(from)];
}

function toBytes(kind: string, payload: string): Buffer {
  if (kind === 'B' || kind === 'b') return Buffer.from(payload, 'base64');
  const bytes = Buffer.from(payload.replaceAll('_', ' '), 'utf8');
  if (!bytes.includes('=')) return bytes;
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const hex = bytes[at] === 0x3d ? bytes.toString('latin1', at + 1, at + 3) : '';
    const escaped = /^[0-9A-Fa-f]{2}$/.test(hex);
    bytes[length++] = escaped ? Number.parseInt(hex, 16) : bytes[at] ?? 0;
    if (escaped) at += 2;
  }
  return bytes.subarray(0, length);
}

function plain(text: string): string | undefined {
  return text.includes('=?') ? undefined : text;
}

function decode(word: Word): string | undefined {
  const decoder = decoderOfWord(word.charset);
  return decoder?.(Buffer.concat(word.payloads), true);
}
