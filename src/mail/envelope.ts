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

/** What the commands said, as opposed to what the headers say (RFC 5321 section 2.3.1). */
export interface Envelope {
  /** The reverse-path without brackets; empty for the null sender. */
  readonly mailFrom: string;
  readonly client: Client;
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
