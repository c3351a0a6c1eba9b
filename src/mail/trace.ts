import type { Envelope } from './envelope.ts';

export interface Trace {
  readonly envelope: Envelope;
  readonly protocol: string;
  readonly hostname: string;
  readonly messageId: string;
  readonly receivedAt: number;
  /** Named only when it is the only one: the others are nobody's business (RFC 5321 section 7.2). */
  readonly recipient: string | undefined;
}

/** The Received line that we put in front of a message (RFC 5321 section 4.4), folded, with its CRLF. */
export function traceLine(trace: Trace): string {
  const { client, mailFrom } = trace.envelope;
  const from = `from ${atom(client.helo) ?? 'unknown'} (${literal(client.address)})`;
  const by = `by ${trace.hostname} (Postern) with ${trace.protocol} id ${trace.messageId}`;
  const to = trace.recipient === undefined ? '' : `\r\n\tfor <${visible(trace.recipient)}>`;
  const sender = `(envelope-from <${visible(mailFrom)}>)`;
  return `Received: ${from}\r\n\t${by}${to}\r\n\t${sender}; ${toMailDate(trace.receivedAt)}\r\n`;
}

/** A time as mail writes it, in UTC: `Mon, 05 Jan 2026 12:00:00 +0000` (RFC 5322 section 3.3). */
export function toMailDate(time: number): string {
  return new Date(time).toUTCString().replace('GMT', '+0000');
}

function literal(address: string | null): string {
  if (address === null) return 'unknown';
  return address.includes(':') ? `[IPv6:${address}]` : `[${address}]`;
}

/** HELO as a client said it may be anything: only what can stand in a domain or an address literal is repeated. */
function atom(helo: string | null): string | undefined {
  return helo !== null && helo.length <= 255 && /^[\p{L}\p{N}.:_[\]-]+$/u.test(helo) ? helo : undefined;
}

/** No character of a client's may end or fold a header line. */
function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, '?');
}
