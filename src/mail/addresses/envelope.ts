import type { Outgoing } from '../outgoing.ts';

/** The client of a session, as known from the connection and its greeting. */
interface Client {
  /** IP address without brackets or zone; an IPv4-mapped IPv6 address as IPv4. Null for mail injected without one. */
  readonly address: string | null;
  /** The argument of HELO or EHLO; null if there was none. */
  readonly helo: string | null;
  /** The TLS version of an encrypted session ("TLSv1.3"), else null. */
  readonly tls: string | null;
}

/** When the sender wants a delivery status notification (RFC 3461 section 4.1). */
export type Notify = 'NEVER' | 'SUCCESS' | 'FAILURE' | 'DELAY';

/** The DSN parameters of RCPT; null where absent. */
export interface RecipientDsn {
  readonly notify: readonly Notify[] | null;
  /** The original recipient, before any forwarding: `rfc822;jo@example.com`. */
  readonly orcpt: string | null;
}

/** The notifications that the client requested for a message (RFC 3461). */
export interface DsnRequest {
  /** How much of a failed message to return. */
  readonly ret: 'FULL' | 'HDRS' | null;
  /** The sender's id of the transaction. */
  readonly envid: string | null;
  /** By recipient, as named in the deliveries; recipients without parameters are left out. */
  readonly recipients: Readonly<Record<string, RecipientDsn>>;
  /** The reverse-path of MAIL; if empty, no notification is sent. */
  readonly returnTo: string;
}

/** The content of the SMTP commands, as opposed to the headers (RFC 5321 section 2.3.1). */
export interface Envelope {
  /** The reverse-path without brackets; empty for the null sender. */
  readonly mailFrom: string;
  readonly client: Client;
  /** Set if the commands had any DSN parameters. */
  readonly dsn?: DsnRequest | undefined;
  /** By recipient: the data sealed into a reply address (reply-address.ts). Set if there is any. */
  readonly replyData?: Readonly<Record<string, string>> | undefined;
  /** By recipient: the text that each name in the pattern of its route matched. Set if there are any. */
  readonly captures?: Readonly<Record<string, Readonly<Record<string, string>>>> | undefined;
  /** By recipient: the tags that routes added. Set if there are any. */
  readonly tags?: Readonly<Record<string, readonly string[]>> | undefined;
  /** The recipients for whom the brake on loops marked it (inbound/brake.ts). Set if there are any. */
  readonly loops?: readonly string[] | undefined;
  /** Set for mail that an account sends, not for inbound mail. */
  readonly outgoing?: Outgoing | undefined;
  /** Set if the store has a copy of it: the epoch of this host when it was written; negative: another host wrote it. */
  readonly copiedIn?: number | undefined;
}

/** Results of SPF, DKIM, DMARC and ARC, as in the payload. */
export interface Verdicts {
  readonly spf: { readonly result: SpfResult; readonly detail: string };
  readonly dkim: { readonly signed: boolean; readonly valid: boolean };
  readonly dmarc: { readonly result: string; readonly policy: string | null; readonly aligned: boolean };
  readonly arc: { readonly result: string };
  /** Their source; verdicts of an older version have none. */
  readonly evidence?: Evidence;
}

/** The evidence for the verdicts. */
export interface Evidence {
  /** The domain that SPF was checked for: that of MAIL FROM, or HELO. Null if it was not checked. */
  readonly spf: string | null;
  /** Each DKIM signature that was checked, with d=, s= and its result (RFC 8601 section 2.7.1). */
  readonly dkim: readonly {
    readonly domain: string;
    readonly selector: string;
    readonly result: string;
    /** Whether it passed for a domain that is aligned with the author's. */
    readonly aligned: boolean;
  }[];
  readonly arc: {
    /** Domains of the seals of a chain that passed, the newest first. */
    readonly sealers: readonly string[];
    /** Whether trusted sealers handed the message on, and the first of them saw DMARC pass for this author. */
    readonly trusted: boolean;
  };
}

/** RFC 7208 section 2.6. */
export type SpfResult = 'pass' | 'fail' | 'softfail' | 'neutral' | 'none' | 'temperror' | 'permerror';

interface Trace {
  readonly envelope: Envelope;
  readonly protocol: string;
  readonly hostname: string;
  readonly messageId: string;
  readonly receivedAt: number;
  /** Only set if it is the only one: a Received line must not disclose the others (RFC 5321 section 7.2). */
  readonly recipient: string | undefined;
}

/** The Received line to put in front of a message (RFC 5321 section 4.4), folded, CRLF included. */
export function traceLine(trace: Trace): string {
  const { client, mailFrom } = trace.envelope;
  const from = `from ${atom(client.helo) ?? 'unknown'} (${literal(client.address)})`;
  const by = `by ${trace.hostname} (Postern) with ${trace.protocol} id ${trace.messageId}`;
  const to = trace.recipient === undefined ? '' : `\r\n\tfor <${visible(trace.recipient)}>`;
  const sender = `(envelope-from <${visible(mailFrom)}>)`;
  return `Received: ${from}\r\n\t${by}${to}\r\n\t${sender}; ${toMailDate(trace.receivedAt)}\r\n`;
}

/** A time in mail format, in UTC: `Mon, 05 Jan 2026 12:00:00 +0000` (RFC 5322 section 3.3). */
export function toMailDate(time: number): string {
  return new Date(time).toUTCString().replace('GMT', '+0000');
}

function literal(address: string | null): string {
  if (address === null) return 'unknown';
  return address.includes(':') ? `[IPv6:${address}]` : `[${address}]`;
}

/** A client may send anything as HELO: only the characters of a domain or an address literal are repeated. */
function atom(helo: string | null): string | undefined {
  return helo !== null && helo.length <= 255 && /^[\p{L}\p{N}.:_[\]-]+$/u.test(helo) ? helo : undefined;
}

/** Replaces characters from a client that could end or fold a header line. */
function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, '?');
}
