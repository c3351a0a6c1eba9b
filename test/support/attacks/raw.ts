import type { InboundEvent } from '../mime.ts';

const TRACE = /^Received: [^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*$/;

/** The bytes of a message as its event shows them; known only for messages without bare line ends. */
export function bytesIn({ raw_msg, raw_msg_base64 }: InboundEvent['msg']): Buffer {
  return raw_msg_base64 === undefined
    ? Buffer.from(raw_msg.replaceAll('\n', '\r\n'))
    : Buffer.from(raw_msg_base64, 'base64');
}

/**
 * Without our trace, which must be one Received field and nothing else; before a message that has no header the empty
 * line that ends one must stand as well. `length` is that of the message.
 */
export function withoutTrace(bytes: Buffer, length: number): Buffer {
  const at = Math.max(0, bytes.length - length);
  const trace = bytes.toString('latin1', 0, at);
  const bare = isBare(bytes.subarray(at));
  const field = bare && trace.endsWith('\r\n\r\n') ? trace.slice(0, -2) : bare ? '' : trace;
  return TRACE.test(field) ? bytes.subarray(at) : bytes;
}

/** Begins with a blank, or has no field in any line before the first empty one, although there are such lines. */
function isBare(message: Buffer): boolean {
  const lines = message.toString('latin1').split('\r\n');
  const header = lines.slice(0, lines.indexOf('') < 0 ? lines.length : lines.indexOf(''));
  return (
    /^[ \t]/.test(header[0] ?? '') || (header.length > 0 && !header.some((line) => /^[!-9;-~]+[ \t]*:/.test(line)))
  );
}
