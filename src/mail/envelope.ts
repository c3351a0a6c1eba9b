import type { Outgoing } from './sending.ts';

/** The other end of a session, as the connection and its greeting showed it. */
export interface Client {
  /** IP address without brackets or zone; an IPv4-mapped IPv6 address is written as IPv4. Null for mail injected without one. */
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
