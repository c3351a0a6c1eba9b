/** One header field: where it stands in the bytes, its line end included. */
export interface Field {
  readonly name: string;
  readonly start: number;
  readonly end: number;
}

/** The header section of a message. */
export interface HeaderSection {
  readonly fields: readonly Field[];
  /** The bytes as latin1, so that a place in one is a place in the other; at least as far as the body. */
  readonly text: string;
  /** Where the body begins, behind the empty line. */
  readonly bodyAt: number;
  /** Whether it ends within the limit; if not, fields may be missing, and nothing can be said of what was signed. */
  readonly whole: boolean;
}

/** Octets of header that are looked at. Postfix stops at 100 KiB; lists and trace lines of today need a little more. */
export const MOST_HEADER_BYTES = 256 * 1024;

const NAME = /^[\x21-\x39\x3b-\x7e]+$/;
const FIELD = /^([\x21-\x39\x3b-\x7e]+)[ \t]*:/;
const BARE_NAME = /^([\x21-\x39\x3b-\x7e]+)[ \t]*$/; // its colon may stand on the next line (RFC 5322 section 4.5)

/**
 * Splits the start of a message into fields, in one pass. What is not a field of its own belongs to the one above, as
 * readers take it.
 */
export function parseHeaderSection(bytes: Uint8Array): HeaderSection {
  const head = bytes.subarray(0, MOST_HEADER_BYTES);
  const text = Buffer.from(head.buffer, head.byteOffset, head.byteLength).toString('latin1');
  const fields: { name: string; start: number; end: number }[] = [];
  let colon = text.indexOf(':');
  for (let at = 0; at < text.length; ) {
    const next = text.indexOf('\n', at) + 1 || text.length;
    if (isEmptyLine(text, at)) return { fields, text, bodyAt: next, whole: true };
    if (colon < at && colon !== -1) colon = text.indexOf(':', at); // else it is still to come, or there is none
    const name = nameAt(text, at, colon, next);
    const last = fields.at(-1);
    if (name !== undefined) fields.push({ name, start: at, end: next });
    else if (last) last.end = next;
    else fields.push({ name: '', start: at, end: next });
    at = next;
  }
  return { fields, text, bodyAt: bytes.length, whole: bytes.length <= MOST_HEADER_BYTES };
}

function isEmptyLine(text: string, at: number): boolean {
  return text[at] === '\n' || text.startsWith('\r\n', at);
}

/** The name of the field that begins on a line; undefined when none does. */
function nameAt(text: string, start: number, colon: number, next: number): string | undefined {
  const first = text[start];
  if (first === ' ' || first === '\t') return undefined;
  const plain = colon < next ? text.slice(start, Math.max(start, colon)) : '';
  return NAME.test(plain) ? plain.toLowerCase() : uncommonName(lineAt(text, start, next), text, next);
}

function lineAt(text: string, start: number, end: number): string {
  const line = text.slice(start, end);
  return line.endsWith('\r\n') ? line.slice(0, -2) : line.endsWith('\n') ? line.slice(0, -1) : line;
}

function uncommonName(line: string, text: string, next: number): string | undefined {
  const name = FIELD.exec(line)?.[1];
  if (name !== undefined) return name.toLowerCase();
  const bare = BARE_NAME.exec(line)?.[1];
  return bare !== undefined && /^[ \t]*:/.test(text.slice(next, next + 80)) ? bare.toLowerCase() : undefined;
}
