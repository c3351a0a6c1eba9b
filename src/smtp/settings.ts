import type { SecureVersion } from 'node:tls';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import type { Metrics } from '../base/metrics.ts';
import type { Postmaster } from '../inbound/postmaster.ts';
import type { Acceptance, ReturnAddresses, Routing } from '../inbound/types.ts';
import type { Spool } from '../queue/delivery.ts';
import type { BareNewline } from './reception.ts';

/** Where to listen: an address and a port, or a socket that somebody opened for us (systemd). */
export type ListenEntry = { readonly host: string; readonly port: number } | { readonly fd: number };

/** A certificate with its key, both PEM. */
export interface TlsSettings {
  readonly cert: string;
  readonly key: string;
  readonly minVersion: SecureVersion;
}

/** What config/default.yaml says under `smtp`, and our name. Times are milliseconds. */
export interface ListenerSettings {
  readonly hostname: string;
  readonly listen: readonly ListenEntry[];
  readonly maxMessageBytes: number;
  readonly maxRecipients: number;
  readonly maxSessions: number;
  readonly maxSessionsPerAddress: number;
  readonly maxMessagesPerSession: number;
  readonly sessionTimeoutMs: number;
  readonly commandTimeoutMs: number;
  readonly idleTimeoutMs: number;
  /** Bytes per second, over any half minute of DATA. 0: no floor. */
  readonly minDataRate: number;
  readonly slowAfterRefusals: number;
  readonly endAfterRefusals: number;
  readonly maxReceived: number;
  readonly bareNewline: BareNewline;
  /** Mail to the postmaster has nowhere to go, and waits for the operator. */
  readonly keepsPostmaster: boolean;
  readonly maxBacklogPerAccount: number;
  readonly maxLoopLagMs: number;
  /** Addresses and networks of proxies that must begin with a PROXY header. */
  readonly proxyProtocol: readonly string[];
  /** TLS from the first byte instead of STARTTLS. */
  readonly implicitTls?: boolean;
  /** Not set: STARTTLS is not offered. */
  readonly tls?: TlsSettings | undefined;
}

/** What SMTP needs of the parts below it. */
export interface ListenerDeps {
  readonly routing: Pick<Routing, 'lookup' | 'ownerOf'>;
  /** The return domain; where there is none, it is a domain like any other. */
  readonly returnAddresses?: ReturnAddresses | undefined;
  readonly postmaster: Postmaster;
  readonly acceptance: Acceptance;
  readonly spool: Pick<Spool, 'hasRoom' | 'backlog'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics?: Metrics | undefined;
}
