import type { InboundEvent } from '../../test/support/mime.ts';

const TRACE = /^Received: [^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*$/;

/** The bytes of a message as its event shows them; only those of messages without bare line ends can be told. */
export function bytesIn({ raw_msg, raw_msg_base64 }: InboundEvent['msg']): Buffer {
  return raw_msg_base64 === undefined ? Buffer.from(raw_msg.replaceAll('\n', '\r\n')) : Buffer.from(raw_msg_base64, 'base64');
}

/** Without our trace, which must be one Received field and nothing else; `length` is that of the message, which may begin with a blank. */
export function withoutTrace(bytes: Buffer, length: number): Buffer {
  const at = Math.max(0, bytes.length - length);
  return TRACE.test(bytes.toString('latin1', 0, at)) ? bytes.subarray(at) : bytes;
}
