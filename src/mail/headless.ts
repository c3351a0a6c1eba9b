const CRLF = Buffer.from('\r\n');

// RFC 5322 section 3.6.8: printable ASCII without the colon. Blanks before the colon are obsolete, and still sent.
const FIELD = /^[!-9;-~]+[ \t]*:/m;
const END_OF_HEADER = /\r?\n\r?\n/;
/** Bytes that are looked at for a field; no message has so much else in front. */
const LOOKED_AT = 65_536;

/**
 * Whether a message has no header at all, as programs that know nothing of mail send it: it begins with a blank or a tab, as no
 * header field does, or no line before the first empty one is a field. All of it is body then, as Postfix takes it; behind our
 * Received line it would read as the rest of that line, or as fields without a name.
 */
export function isHeadless(message: Uint8Array): boolean {
  const first = message[0];
  if (first === 0x20 || first === 0x09) return true;
  if (first === undefined || first === 0x0d || first === 0x0a) return false;
  const start = Buffer.from(message.buffer, message.byteOffset, Math.min(message.length, LOOKED_AT)).toString('latin1');
  return !FIELD.test(start.split(END_OF_HEADER, 1)[0] ?? '');
}

/** Our trace as it stands in front of a message: where that has no header, the empty line that ends one stands between. */
export function traceBefore(trace: string, message: Uint8Array): string {
  return isHeadless(message) ? `${trace}\r\n` : trace;
}

/** The message for who looks for a header in it. */
export function withHeader(message: Buffer): Buffer {
  return isHeadless(message) ? Buffer.concat([CRLF, message]) : message;
}
