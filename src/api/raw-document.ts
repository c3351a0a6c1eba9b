import { parseAddressList } from '../mail/address-list.ts';

// Messages as callers hand them over, headers and all. The header block is read once and each list once: no input takes
// longer than its length.

/** As much header as mail is allowed anywhere here; what lies beyond is not looked at. */
const MAX_HEADER_CHARS = 262_144;

/** A field of the header block: its lower-case name, its lines as they stand, and its value unfolded. */
interface Field {
  readonly name: string;
  readonly lines: string;
  readonly value: string;
}

/**
 * The recipients that a document names itself, the addresses of To, Cc and Bcc (RFC 5322 section 3.6.3) in their order;
 * of what is none the text, for who tells the caller. At most `max` of them.
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

/** The document with CRLF for line ends of every kind, as on the wire. Large messages mostly are so already. */
export function withCrlf(document: string): string {
  return /\r(?!\n)|(?<!\r)\n/.test(document) ? document.replace(/\r\n|\r|\n/g, '\r\n') : document;
}

/** Up to the empty line, line ends included. Line ends are CRLF. */
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
