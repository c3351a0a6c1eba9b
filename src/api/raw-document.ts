import { inSlices, type Steps } from '../base/turns.ts';
import { parseAddressList } from '../mail/address-list.ts';

// Raw messages from callers, headers included. The header block and each address list are read once, so the time is
// linear in the length.

/** The limit for headers of all mail here; anything beyond it is ignored. */
const MAX_HEADER_CHARS = 262_144;

/** A header field: its lower-case name, its lines unchanged, and its unfolded value. */
interface Field {
  readonly name: string;
  readonly lines: string;
  readonly value: string;
}

/**
 * The recipients in a document's own header: the addresses of To, Cc and Bcc (RFC 5322 section 3.6.3) in order, and the
 * text of any that cannot be parsed, so that the caller can be told. At most `max` of them.
 */
export function headerRecipients(document: string, max: number): string[] {
  const found: string[] = [];
  for (const field of fieldsOf(headerOf(document))) {
    if (!['to', 'cc', 'bcc'].includes(field.name)) continue;
    const { mailboxes, unreadable } = parseAddressList(field.value);
    found.push(...mailboxes.map(({ address }) => address), ...unreadable);
    if (found.length >= max) return found.slice(0, max);
  }
  return found;
}

/** The document without its Bcc fields. */
export function withoutBcc(document: string): string {
  const header = headerOf(document);
  if (!/^bcc[ \t]*:/im.test(header)) return document;
  const kept = fieldsOf(header)
    .filter((field) => field.name !== 'bcc')
    .map((field) => field.lines)
    .join('');
  return kept + document.slice(header.length);
}

const BARE_END = /\r(?!\n)|(?<!\r)\n/;
const CR = 0x0d;
const LF = 0x0a;
/** Bytes between two steps: about a millisecond of work. */
const SLICE = 262_144;

/**
 * The document with all line ends as CRLF, as on the wire. Most large messages are like that already. By bytes and in
 * slices: a pattern takes seconds for megabytes of line ends, and a hundred bytes of memory for each.
 */
export async function withCrlf(document: string): Promise<string> {
  return BARE_END.test(document) ? inSlices(mendingEnds(Buffer.from(document))) : document;
}

function* mendingEnds(bytes: Buffer): Steps<string> {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += SLICE) {
    const end = Math.min(at + SLICE, bytes.length);
    const part = Buffer.allocUnsafe(2 * (end - at));
    let length = 0;
    for (let n = at; n < end; n++) {
      const byte = bytes[n] ?? 0;
      if (byte === LF && bytes[n - 1] !== CR) part[length++] = CR;
      part[length++] = byte;
      if (byte === CR && bytes[n + 1] !== LF) part[length++] = LF;
    }
    parts.push(part.subarray(0, length));
    yield;
  }
  return Buffer.concat(parts).toString();
}

/** The header block up to the empty line, including its line ends, which must be CRLF. */
function headerOf(document: string): string {
  if (document.startsWith('\r\n')) return '';
  const end = document.slice(0, MAX_HEADER_CHARS).indexOf('\r\n\r\n');
  return end >= 0
    ? document.slice(0, end + 2)
    : document.slice(
        0,
        document.length <= MAX_HEADER_CHARS ? undefined : document.lastIndexOf('\r\n', MAX_HEADER_CHARS) + 2,
      );
}

function fieldsOf(header: string): Field[] {
  const fields: { name: string; lines: string[] }[] = [];
  for (const line of header.split(/(?<=\r\n)/)) {
    const last = fields.at(-1);
    if (last && /^[ \t]/.test(line)) last.lines.push(line);
    else
      fields.push({
        name: line
          .slice(0, Math.max(0, line.indexOf(':')))
          .trimEnd()
          .toLowerCase(),
        lines: [line],
      });
  }
  return fields.map(({ name, lines }) => {
    const text = lines.join('');
    return { name, lines: text, value: text.slice(text.indexOf(':') + 1).replaceAll('\r\n', '') };
  });
}
