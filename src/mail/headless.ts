import { CAPS } from './caps.ts';

const CRLF = Buffer.from('\r\n');

// RFC 5322 section 3.6.8: printable ASCII without the colon. Blanks before the colon are obsolete, and still sent.
const BEGINS_WITH_FIELD = /^[!-9;-~]+[ \t]*:/;
const HAS_FIELD = new RegExp(BEGINS_WITH_FIELD, 'm');
const END_OF_HEADER = /\r?\n\r?\n/;
/** Bytes in which mail that has a header begins with a field. When it does not, one is looked for as far as a header may go. */
const USUAL = 100;

/**
 * Whether a message has no header at all, as programs that know nothing of mail send it: it begins with a blank or a tab, as no
 * header field does, or no line before the first empty one is a field. All of it is body then, as Postfix takes it; behind our
 * Received line it would read as the rest of that line, or as fields without a name.
 */
export function isHeadless(message: Uint8Array): boolean {
  const first = message[0];
  if (first === 0x20 || first === 0x09) return true;
  if (first === undefined || first === 0x0d || first === 0x0a) return false;
  return !BEGINS_WITH_FIELD.test(startOf(message, USUAL)) && !HAS_FIELD.test(startOf(message, CAPS.headerBytes).split(END_OF_HEADER, 1)[0] ?? '');
}

function startOf({ buffer, byteOffset, length }: Uint8Array, most: number): string {
  return Buffer.from(buffer, byteOffset, Math.min(length, most)).toString('latin1');
}

/** Our trace as it stands in front of a message: where that has no header, the empty line that ends one stands between. */
export function traceBefore(trace: string, message: Uint8Array): string {
  return isHeadless(message) ? `${trace}\r\n` : trace;
}

/** The message for who looks for a header in it. */
export function withHeader(message: Buffer): Buffer {
  return isHeadless(message) ? Buffer.concat([CRLF, message]) : message;
}
