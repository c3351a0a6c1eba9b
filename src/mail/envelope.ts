import type { Outgoing } from './outgoing.ts';

/** The other end of a session, as the connection and its greeting showed it. */
interface Client {
  /**
   * IP address without brackets or zone; an IPv4-mapped IPv6 address is written as IPv4. Null for mail injected without
   * one.
   */
  readonly address: string | null;
  /** What HELO or EHLO said, null when nothing was said. */
  readonly helo: string | null;
  /** The TLS version when the session was encrypted ("TLSv1.3"), else null. */
  readonly tls: string | null;
}

/** When the sender wants to hear of a recipient (RFC 3461 section 4.1). */
export type Notify = 'NEVER' | 'SUCCESS' | 'FAILURE' | 'DELAY';

/** What RCPT asked: null for what it did not say. */
export interface RecipientDsn {
  readonly notify: readonly Notify[] | null;
  /** Whom the sender wrote to, before anybody forwarded it: `rfc822;jo@example.com`. */
  readonly orcpt: string | null;
}

/** What the client asked to be told of a message (RFC 3461). */
export interface DsnRequest {
  /** How much of a message that failed is sent back. */
  readonly ret: 'FULL' | 'HDRS' | null;
  /** The sender's own name for the transaction. */
  readonly envid: string | null;
  /** By recipient, as the deliveries name it; those of whom nothing was asked are not there. */
  readonly recipients: Readonly<Record<string, RecipientDsn>>;
  /** The reverse-path, as MAIL said it; empty: nobody is told anything. */
  readonly returnTo: string;
}

/** What the commands said, as opposed to what the headers say (RFC 5321 section 2.3.1). */
export interface Envelope {
  /** The reverse-path without brackets; empty for the null sender. */
  readonly mailFrom: string;
  readonly client: Client;
  /** Set when the commands asked for any of it. */
  readonly dsn?: DsnRequest | undefined;
  /** Set for mail that an account sends, instead of mail that comes in for one. */
  readonly outgoing?: Outgoing | undefined;
}

/** SPF, DKIM, DMARC and ARC as a consumer of the payload sees them. */
export interface Verdicts {
  readonly spf: { readonly result: SpfResult; readonly detail: string };
  readonly dkim: { readonly signed: boolean; readonly valid: boolean };
  readonly dmarc: { readonly result: string; readonly policy: string | null; readonly aligned: boolean };
  readonly arc: { readonly result: string };
}

/** RFC 7208 section 2.6. */
export type SpfResult = 'pass' | 'fail' | 'softfail' | 'neutral' | 'none' | 'temperror' | 'permerror';

interface Trace {
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
