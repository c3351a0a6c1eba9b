const CRLF = Buffer.from('\r\n');

/**
 * Whether a message begins with a blank or a tab. No header field does, so all of it is body, as Postfix takes it; behind our
 * Received line it would read as the rest of that line.
 */
export function isHeadless(message: Uint8Array): boolean {
  return message[0] === 0x20 || message[0] === 0x09;
}

/** Our trace as it stands in front of a message: where that has no header, the empty line that ends one stands between. */
export function traceBefore(trace: string, message: Uint8Array): string {
  return isHeadless(message) ? `${trace}\r\n` : trace;
}

/** The message for who looks for a header in it. */
export function withHeader(message: Buffer): Buffer {
  return isHeadless(message) ? Buffer.concat([CRLF, message]) : message;
}
