import { isUtf8 } from 'node:buffer';

/** One header field: its name as it was written, its value unfolded to one line. */
export interface HeaderField {
  readonly name: string;
  readonly value: string;
}

// RFC 5322 section 2.2: any printable US-ASCII character but the colon.
const FIELD_NAME = /^[!-9;-~]+$/;
const HYPHEN = 0x2d;
const NOT_ASCII = /[^\x00-\x7f]/;
const RAW_WORD = /=\?[\w.:+*-]+\?[Qq]\?[^?]*\?=/g;
const windows1252 = new TextDecoder('windows-1252');

/**
 * Splits a header block into fields, in their order. Lines that are no header field are left out.
 * Bytes that are not UTF-8 are read as windows-1252, which is what unlabelled 8-bit headers mostly are.
 */
export function parseHeaders(block: Buffer): HeaderField[] {
  const valid = isUtf8(block);
  const text = block.toString(valid ? 'utf8' : 'latin1');
  const fields: HeaderField[] = [];
  // An mbox separator may stand in front; it is no field although it holds colons. `From :` is one (RFC 5322 section 4.5).
  let start = /^From (?![ \t]*:)/i.test(text) ? nextLine(text, 0) : 0;
  let colon = text.indexOf(':', start);
  while (start < text.length) {
    const end = endOfField(text, start);
    if (colon < start && colon !== -1) colon = text.indexOf(':', start); // else it is still to come, or there is none
    const name = colon < end ? text.slice(start, Math.max(start, colon)).trimEnd() : '';
    if (FIELD_NAME.test(name)) {
      const value = unfold(text.slice(colon + 1, end));
      fields.push({ name, value: valid || !NOT_ASCII.test(value) ? value : decodeUnlabelled(value) });
    }
    start = end;
  }
  return fields;
}

/** All values of a field in their order, `name` in lower case. */
export function allValues(fields: readonly HeaderField[], name: string): string[] {
  const values: string[] = [];
  for (const field of fields) {
    if (field.name.length === name.length && field.name.toLowerCase() === name) values.push(field.value);
  }
  return values;
}

/** The first value of a field, `name` in lower case. */
export function firstValue(fields: readonly HeaderField[], name: string): string | undefined {
  for (const field of fields) {
    if (field.name.length === name.length && field.name.toLowerCase() === name) return field.value;
  }
  return undefined;
}

/** Names as the payload shows them: `DKIM-Signature` becomes `Dkim-Signature`. */
export function toTitleCase(name: string): string {
  return isTitleCase(name)
    ? name
    : name
        .split('-')
        .map((part) => part.charAt(0).toUpperCase() + part.slice(1).toLowerCase())
        .join('-');
}

/** Nearly all names are, and looking is six times as fast as making anew. */
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

/** Where the field ends that starts at `start`, folded lines included. */
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

function unfold(value: string): string {
  const text = value.trim();
  if (!text.includes('\n')) return text.includes('\r') ? text.replaceAll('\r', ' ') : text;
  let line = '';
  for (let from = 0; from <= text.length; ) {
    const newline = text.indexOf('\n', from);
    const to = newline === -1 ? text.length : newline;
    const part = text.slice(from, to).trim();
    if (part !== '') line += line === '' ? part : ` ${part}`;
    from = to + 1;
  }
  return line.includes('\r') ? line.replaceAll('\r', ' ') : line;
}

/**
 * The text of bytes (each a character of `latin1`) that nothing says the charset of: UTF-8, else windows-1252. Bytes
 * inside an encoded word are of the charset that the word names (though RFC 2047 forbids them): they are escaped as
 * it escapes others.
 */
export function decodeUnlabelled(latin1: string): string {
  const bytes = Buffer.from(latin1, 'latin1');
  if (isUtf8(bytes)) return bytes.toString('utf8');
  const rest = Buffer.from(
    latin1.replace(RAW_WORD, (word) => word.replace(/[^\x00-\x7f]/g, escaped)),
    'latin1',
  );
  return isUtf8(rest) ? rest.toString('utf8') : windows1252.decode(rest);
}

function escaped(char: string): string {
  return `=${char.charCodeAt(0).toString(16).toUpperCase()}`;
}
