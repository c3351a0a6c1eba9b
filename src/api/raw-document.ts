import { inSlices, type SlicedWork } from '../base/turns.ts';
import { parseAddressList } from '../mail/address-list.ts';

// Raw messages from callers, headers included. The header block and each address list are read once, so the time is
// linear in the length.

/** The limit for headers of all mail here; anything beyond it is ignored. */
const MAX_HEADER_BYTES = 262_144;

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
export function headerRecipients(document: Buffer, max: number): string[] {
  const found: string[] = [];
  for (const field of fieldsOf(headerOf(document))) {
    if (!['to', 'cc', 'bcc'].includes(field.name)) continue;
    const { mailboxes, unreadable } = parseAddressList(field.value);
    found.push(...mailboxes.map(({ address }) => address), ...unreadable);
    if (found.length >= max) return found.slice(0, max);
  }
  return found;
}

export function withoutBcc(document: Buffer): Buffer {
  const header = headerOf(document);
  if (!/^bcc[ \t]*:/im.test(header)) return document;
  const kept = fieldsOf(header)
    .filter((field) => field.name !== 'bcc')
    .map((field) => field.lines)
    .join('');
  return Buffer.concat([Buffer.from(kept), document.subarray(Buffer.byteLength(header))]);
}

const BARE_END = /\r(?!\n)|(?<!\r)\n/;
const CR = 0x0d;
const LF = 0x0a;
/** Characters between two steps: about a millisecond of work. */
const SLICE = 262_144;

/** The bytes of a document with all line ends as CRLF, as on the wire. In slices: it may be large. */
export const toWireBytes = (document: string): Promise<Buffer> => inSlices(wireBytes(document));

function* wireBytes(document: string): SlicedWork<Buffer> {
  const parts: Buffer[] = [];
  for (let at = 0; at < document.length; ) {
    const end = endOfSlice(document, at + SLICE);
    const slice = document.slice(at, end);
    const bytes = Buffer.from(slice);
    parts.push(BARE_END.test(slice) ? withCrlf(bytes) : bytes);
    at = end;
    yield;
  }
  return Buffer.concat(parts);
}

/** A slice does not end within CRLF or within a character. */
function endOfSlice(document: string, at: number): number {
  if (at >= document.length) return document.length;
  const isWithin = /^(?:\r\n|[\ud800-\udbff][\udc00-\udfff])/.test(document.slice(at - 1, at + 1));
  return isWithin ? at + 1 : at;
}

/** By bytes: a pattern takes seconds for megabytes of line ends, and a hundred bytes of memory for each. */
function withCrlf(bytes: Buffer): Buffer {
  const mended = Buffer.allocUnsafe(2 * bytes.length);
  let length = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at] ?? 0;
    if (byte === LF && bytes[at - 1] !== CR) mended[length++] = CR;
    mended[length++] = byte;
    if (byte === CR && bytes[at + 1] !== LF) mended[length++] = LF;
  }
  return mended.subarray(0, length);
}

/** The header block up to the empty line, including its line ends, which must be CRLF. */
function headerOf(document: Buffer): string {
  const start = document.toString('utf8', 0, MAX_HEADER_BYTES);
  if (start.startsWith('\r\n')) return '';
  const end = start.indexOf('\r\n\r\n');
  if (end >= 0) return start.slice(0, end + 2);
  return document.length <= MAX_HEADER_BYTES ? start : start.slice(0, start.lastIndexOf('\r\n') + 2);
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
