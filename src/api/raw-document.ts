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
/** Characters between two steps: some milliseconds of work if all of them are line ends. */
const SLICE = 32_768;

/**
 * The document with all line ends as CRLF, as on the wire. Most large messages are like that already. In slices:
 * megabytes of line ends take seconds.
 */
export async function withCrlf(document: string): Promise<string> {
  return BARE_END.test(document) ? inSlices(mendingEnds(document)) : document;
}

function* mendingEnds(document: string): Steps<string> {
  const parts: string[] = [];
  for (let at = 0; at < document.length; ) {
    const isSplit = document.startsWith('\r\n', at + SLICE - 1);
    const end = at + SLICE + Number(isSplit);
    parts.push(document.slice(at, end).replace(/\r\n|\r|\n/g, '\r\n'));
    at = end;
    yield;
  }
  return parts.join('');
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
