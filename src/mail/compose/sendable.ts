import { isAscii, isUtf8 } from 'node:buffer';
import { pattern } from '../../base/pattern.ts';
import { toAsciiDomain } from '../addresses/address.ts';
import { addressPieces } from '../addresses/address-list.ts';
import { decodeUnlabelled, decodeWords } from '../mime/headers.ts';
import { MESSAGE_LIMITS } from '../outgoing.ts';
import { encodeWords } from './encoded-words.ts';
import { applyChanges, type FieldSpan, findFields, type Replacement } from './fields.ts';

// Makes header fields acceptable to every server: lines of at most 998 octets (RFC 5322 section 2.1.1), and no octet
// beyond ASCII unless an address needs SMTPUTF8 (RFC 6531). Servers truncate or refuse anything else, and truncation
// breaks the signature. So fields are changed before they are signed; those that need no change keep their bytes.

/** A field that cannot be made acceptable. */
export class UnsendableField extends Error {
  override readonly name = 'UnsendableField';
  constructor(field: string) {
    super(
      `the header field ${field.slice(0, 100)} has a word of more than ${LONGEST_LINE} bytes, which cannot be divided`,
    );
  }
}

/** What fields may contain: it decides how they are encoded and where they may be divided. */
type Kind =
  /** Addresses, of which only names and comments may be encoded. */
  | 'addresses'
  /** Ids and URLs in angle brackets, and text around them. */
  | 'angled'
  /** A value with parameters. */
  | 'parameters'
  /** Data in which blanks mean nothing. */
  | 'packed'
  /** Fields read by computers only, which must not be encoded. */
  | 'fixed'
  /** Text for people: all other fields. */
  | 'text';

const KINDS: readonly { readonly kind: Kind; readonly names: RegExp }[] = [
  {
    kind: 'addresses',
    names: pattern()`
      ^(?:(?:resent-|x-original-)?(?:from|sender|reply-to|to|cc|bcc)|return-path|errors-to|disposition-notification-to
      |return-receipt-to|x-confirm-reading-to|mail-followup-to|mail-reply-to|mail-copies-to
      |(?:x-)?(?:delivered|apparently|envelope|forwarded)-to|x-envelope-from|x-complaints-to)$
    `,
  },
  {
    kind: 'angled',
    names: /^(?:(?:resent-|original-|x-)?message-id|in-reply-to|references|supersedes|content-id|list-.*|archived-at)$/,
  },
  { kind: 'parameters', names: /^content-(?:type|disposition)$/ },
  {
    kind: 'packed',
    names: pattern()`
      ^(?:dkim-signature|x-google-dkim-signature|domainkey-signature|arc-(?:seal|message-signature)
      |autocrypt(?:-gossip)?|face|x-face)$
    `,
  },
  {
    kind: 'fixed',
    names: pattern()`
      ^(?:received|x-received|date|resent-date|mime-version|content-transfer-encoding|content-md5
      |authentication-results|arc-authentication-results|received-spf|auto-submitted|precedence)$
    `,
  },
];

const kindOf = (name: string): Kind => KINDS.find(({ names }) => names.test(name))?.kind ?? 'text';

/** Facts of a message that its header fields depend on. */
export interface HeaderFacts {
  /** The charset that the body declares, for raw fields that are not UTF-8; called only for these. */
  readonly charset: () => string;
  /** Whether an address of the envelope needs SMTPUTF8: then the header may be in UTF-8 too. */
  readonly utf8: boolean;
}

/** Whether an address has a local part beyond ASCII; its domain travels in A-labels. */
export function needSmtpUtf8(...addresses: readonly string[]): boolean {
  return addresses.some((address) => NOT_ASCII.test(address.slice(0, address.lastIndexOf('@'))));
}

/** The value of a field that is not only text, in ASCII; undefined if it needs nothing, or may be encoded as text. */
export function encodedValue(name: string, value: string): string | undefined {
  const kind = kindOf(name.toLowerCase());
  return kind === 'text' || isAscii(Buffer.from(value))
    ? undefined
    : encode({ head: `${name}:`, kind, decoded: value });
}

/** The message with a header that every server accepts; the same bytes if it is one. Throws `UnsendableField`. */
export function withSendableHeader(message: Buffer, facts: HeaderFacts): Buffer {
  const end = message.indexOf('\r\n\r\n');
  const header = end < 0 ? message : message.subarray(0, end);
  // Nearly all are sendable, and finding the fields takes longer.
  if (isAscii(header) && !isLong(header.toString('latin1'))) return message;
  const { fields } = findFields(message, 0);
  const changes = sendableChanges(message, fields, facts);
  return changes.length === 0 ? message : Buffer.concat(applyChanges(message, changes));
}

/** The changes that make fields sendable, each of a whole field. Throws `UnsendableField`. */
export function sendableChanges(message: Buffer, fields: readonly FieldSpan[], facts: HeaderFacts): Replacement[] {
  const size = (fields.at(-1)?.end ?? 0) - (fields[0]?.start ?? 0);
  if (size > MESSAGE_LIMITS.headerBytes) return []; // no reader takes so much (mail/outgoing.ts)
  const bytesOf = ({ start, end }: FieldSpan) => message.subarray(start, end);
  const raw = !fields.every((field) => isAscii(bytesOf(field)));
  const isLarge = (field: FieldSpan) =>
    field.end - field.start > LONGEST_LINE && isLong(bytesOf(field).toString('latin1'));
  if (!raw && !fields.some(isLarge)) return [];
  const signed = raw ? signedNames(message, fields) : new Set<string>();
  const utf8 = raw && (facts.utf8 || fields.some((field) => namesUtf8Address(message, field, facts)));
  return fields.flatMap(({ name, start, end }) => {
    const bytes = message.subarray(start, end);
    const mended = mend(bytes, name, signed.has(name) || (utf8 && isUtf8(bytes)), facts);
    return mended === undefined ? [] : [{ start, end, bytes: Buffer.from(mended, 'latin1') }];
  });
}

/** Octets per line without the line end. */
const LONGEST_LINE = 998;
/** The length at which lines are folded (RFC 5322 section 2.1.1, RFC 2047 section 2). */
const FOLDED_LINE = 76;
/** Octets of a word that is left whole: it must fit on a line with the name of its field. */
const LONGEST_WORD = 800;

function isLong(text: string): boolean {
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\r\n', at);
    if ((end < 0 ? text.length : end) - at > LONGEST_LINE) return true;
    at = end < 0 ? text.length : end + 2;
  }
  return false;
}

/** A field as octets in `latin1`, or undefined if it stays. `stays`: its octets beyond ASCII may. */
function mend(bytes: Buffer, name: string, stays: boolean, facts: HeaderFacts): string | undefined {
  const text = bytes.toString('latin1');
  const raw = !stays && !isAscii(bytes);
  if (!raw && !isLong(text)) return undefined;
  // No field: its octets mean nothing.
  if (name === '') return raw ? '' : foldLong(text, { head: '', kind: 'text', decoded: text });
  const colon = text.indexOf(':') + 1;
  const kind = kindOf(name);
  const head = text.slice(0, colon);
  const decoded = decodeField(Buffer.from(text.slice(colon).replace(/\r\n/g, ''), 'latin1'), facts);
  const field = { head, kind, decoded };
  return raw ? foldLong(fold(`${head}${encode(field)}`, kind), field) : foldLong(text, field);
}

function decodeField(bytes: Buffer, { charset }: HeaderFacts): string {
  return isUtf8(bytes) ? bytes.toString() : decodeUnlabelled(bytes.toString('latin1'), charset());
}

interface Field {
  /** The name as written, and the colon. */
  readonly head: string;
  readonly kind: Kind;
  /** The value on one line. */
  readonly decoded: string;
}

/** Fields without which a message cannot be read, or is another. */
const NEEDED = /^(?:from|date|message-id|mime-version|content-.*)$/i;

/** Folds the lines that are too long; encodes or divides words where that is not enough. Throws `UnsendableField`. */
function foldLong(text: string, field: Field): string {
  if (!isLong(text)) return text;
  const lines = text.replace(/\r\n$/, '').split('\r\n');
  const folded = lines.map((line) => (line.length > LONGEST_LINE ? foldLine(line, field.kind) : line));
  const refolded = `${folded.join('\r\n')}\r\n`;
  if (!isLong(refolded)) return refolded;
  const divided = fold(`${field.head}${divide(encode(field), field.kind)}`, field.kind);
  if (!isLong(divided)) return divided;
  const name = field.head.replace(/[ \t]*:?$/, '');
  if (NEEDED.test(name)) throw new UnsendableField(name);
  return ''; // no reader would be given it whole, and the message matters more
}

const fold = (line: string, kind: Kind) => `${foldLine(line, kind)}\r\n`;

/** Folds a line at blanks, and adds none (RFC 5322 section 2.2.3): signatures that ignore folding stay valid. */
function foldLine(line: string, kind: Kind): string {
  const breaks = kind === 'text' ? AT_BLANKS : AT_PLAIN_BLANKS;
  const [name = '', first = '', ...others] = line.replace(/[ \t]+/g, shortened).split(breaks);
  // Some programs read a first line without a value as an empty field.
  const together = (name + first).length <= LONGEST_LINE;
  const lines: string[] = together ? [] : [name];
  let current = together ? name + first : first;
  for (const piece of others) {
    if (current.length + piece.length > FOLDED_LINE) {
      lines.push(current);
      current = '';
    }
    current += piece;
  }
  return [...lines, current].join('\r\n');
}

const AT_BLANKS = /(?<=[^ \t])(?=[ \t]+[^ \t])/;
/** The same, but not within a pair of a backslash and a blank. */
const AT_PLAIN_BLANKS = /(?<=[^ \t\\])(?=[ \t]+[^ \t])/;

/** This number of blanks would be a blank line, which some servers take for the end of the header. */
const shortened = (blanks: string) => (blanks.length > LONGEST_WORD / 2 ? ' ' : blanks);

/** The value of a field in ASCII, with encoded words and other encodings only where its kind has them. */
function encode({ head, kind, decoded }: Field): string {
  const column = head.length + 1;
  switch (kind) {
    case 'addresses':
      return toAscii(encodeAddresses(decoded, column));
    case 'angled':
      return encodeAngled(decoded, column);
    case 'parameters':
      return toAscii(encodeParameters(decoded));
    case 'packed':
    case 'fixed':
      return toAscii(decoded);
    case 'text':
      return encodeText(decoded, column);
  }
}

const NOT_ASCII = /[^\x00-\x7f]/;
const toAscii = (text: string) => text.replace(/[^\x00-\x7f]/gu, '?');
const needsWord = (text: string) => NOT_ASCII.test(text) || text.length > LONGEST_WORD;
const ENCODED_WORD = /^=\?[^?\s]+\?[BbQq]\?[^?\s]*\?=$/;

/** Encodes words that need it, with encoded ones beside them: blanks between these are lost (RFC 2047 section 6.2). */
function encodeText(text: string, column: number): string {
  const [first = '', ...others] = text.split(/([ \t]+)/);
  const words = [first];
  const blanks = [''];
  for (let at = 0; at < others.length; at += 2) {
    blanks.push(others[at] ?? '');
    words.push(others[at + 1] ?? '');
  }
  const need = words.map(needsWord);
  const joins = (at: number) => need[at] || (ENCODED_WORD.test(words[at] ?? '') && (need[at - 1] || need[at + 1]));
  let encoded = '';
  let began = false;
  for (let at = 0; at < words.length; at++) {
    encoded += blanks[at] ?? '';
    if (!joins(at)) {
      encoded += words[at] ?? '';
      began ||= words[at] !== '';
      continue;
    }
    const run = [words[at] ?? ''];
    while (at + 1 < words.length && joins(at + 1)) {
      at += 1;
      run.push(blanks[at] ?? '', words[at] ?? '');
    }
    encoded += encodeWords(decodeWords(run.join('')), began ? 1 : column);
    began = true;
  }
  return encoded;
}

/** Names and comments become encoded words, domains A-labels; everything else stays as written. */
function encodeAddresses(text: string, column: number): string {
  let encoded = '';
  let kept = 0;
  for (const { kind, start, end, text: said } of addressPieces(text).toSorted((a, b) => a.start - b.start)) {
    const written = text.slice(start, end);
    const long = kind !== 'domain' && written.split(/[ \t]/).some((word) => word.length > LONGEST_WORD);
    if (kind === 'local' || start < kept || !(long || NOT_ASCII.test(written))) continue;
    encoded += text.slice(kept, start);
    kept = end;
    if (kind === 'domain') encoded += toAsciiDomain(said.replace(/\s/g, '')) ?? toAscii(said);
    else if (kind === 'comment') encoded += `(${encodeWords(said, 1)})`;
    else {
      const before = /[\s(]/.test(text.charAt(start - 1) || ' ') ? '' : ' ';
      const after = /[\s,:;)]/.test(text.charAt(end) || ' ') ? '' : ' ';
      encoded += `${before}${encodeWords(said, text.slice(0, Math.min(start, 80)).trim() === '' ? column : 1)}${after}`;
    }
  }
  return encoded + text.slice(kept);
}

/** URLs and ids are percent-encoded (RFC 3987 section 3.1), as encoded words may not be in them; the rest is text. */
function encodeAngled(text: string, column: number): string {
  return text
    .split(/(<[^<>]*>)/)
    .map((piece, at, all) => {
      if (at % 2 === 1) return piece.replace(/[^\x00-\x7f]+/g, encodeURIComponent);
      if (!needsWord(piece)) return piece;
      const before = at > 0 && !/^\s/.test(piece) ? ' ' : '';
      const after = at + 1 < all.length && !/\s$/.test(piece) ? ' ' : '';
      return before + encodeText(piece, at === 0 ? column : 1) + after;
    })
    .join('');
}

/** A text in quotes, and what ends a piece outside of them. */
const QUOTED = String.raw`"(?:[^"\\]|\\[^])*(?:"|$)`;
const SEGMENT = new RegExp(`(?:${QUOTED}|[^";])+`, 'g');
const PARAMETER = /^(\s*)([^\s=*]+)\s*=\s*([^]*?)\s*$/;
/** Characters of a piece of a parameter. */
const PIECE = 60;

/** Parameters that need it are written by RFC 2231, in pieces if they are long. */
function encodeParameters(text: string): string {
  const [value = '', ...parameters] = text.match(SEGMENT) ?? [];
  const extended = new Set(parameters.map((one) => /^\s*([^\s=*]+)\*/.exec(one)?.[1]?.toLowerCase()));
  const written = parameters.flatMap((parameter) => {
    const [, , name = '', given = ''] = PARAMETER.exec(parameter) ?? [];
    if (name === '' || !needsWord(given)) return [parameter];
    if (extended.has(name.toLowerCase())) return [];
    const plain = given.startsWith('"') ? given.replace(/^"|"$/g, '').replace(/\\([^])/g, '$1') : given;
    return toExtended(name, decodeWords(plain));
  });
  return [value, ...written].join(';');
}

function toExtended(name: string, text: string): string[] {
  const chars = [...text.toWellFormed()].map((char) => encodeURIComponent(char).replace(/[!'()*]/g, percent));
  const pieces = [''];
  for (const char of chars) {
    const last = pieces.at(-1) ?? '';
    if (last.length + char.length > PIECE) pieces.push(char);
    else pieces[pieces.length - 1] = last + char;
  }
  if (pieces.length === 1) return [` ${name}*=utf-8''${pieces[0]}`];
  return pieces.map((piece, at) => ` ${name}*${at}*=${at === 0 ? "utf-8''" : ''}${piece}`);
}

const percent = (char: string) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`;

const TOKENS = new RegExp(`${QUOTED}|<[^<>]*>|[,;]|[^"<,;]+|<`, 'g');

/** Adds blanks where the kind of field allows them and has none. */
function divide(value: string, kind: Kind): string {
  if (kind === 'text') return value;
  if (kind === 'packed') return value.replace(/[^ \t]+/g, (data) => data.match(/.{1,70}/g)?.join(' ') ?? data);
  return (value.match(TOKENS) ?? [])
    .map((token) => (token === ',' || token === ';' ? `${token} ` : token.startsWith('<') ? ` ${token}` : token))
    .join('');
}

const SIGNATURE = /^(?:dkim-signature|arc-message-signature)$/;

/** The fields that signatures in the header cover: a message that is passed on keeps these as they are. */
function signedNames(message: Buffer, fields: readonly FieldSpan[]): Set<string> {
  const covered = fields
    .filter(({ name }) => SIGNATURE.test(name))
    .flatMap(
      ({ start, end }) =>
        /(?:^|[;:])\s*h\s*=([^;]*)/.exec(message.toString('latin1', start, end))?.[1]?.split(':') ?? [],
    );
  return new Set(covered.map((name) => name.trim().toLowerCase()));
}

function namesUtf8Address(message: Buffer, { name, start, end }: FieldSpan, facts: HeaderFacts): boolean {
  const bytes = message.subarray(start, end);
  if (isAscii(bytes) || kindOf(name) !== 'addresses') return false;
  const value = decodeField(bytes.subarray(bytes.indexOf(':') + 1), facts).replace(/\r\n/g, '');
  return addressPieces(value).some(({ kind, text }) => kind === 'local' && NOT_ASCII.test(text));
}
