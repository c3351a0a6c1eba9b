import { X509Certificate } from 'node:crypto';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import { REFUSALS, type Reply } from './replies.ts';
import type { SessionState } from './session-state.ts';

/** The log lines and metrics of one session. */
interface SessionLog {
  /**
   * Counts a refusal and logs it, at level debug after the first few. `command` is the refused command as sent;
   * `parties` are fields of the log line.
   */
  refused(reply: Reply, command: string, parties: Parties): void;
  accepted(messageId: string, recipients: number, size: number): void;
  /** Writes the log line that summarizes the session. */
  end(reason: string, durationMs: number): void;
}

/** The envelope of refused mail, as far as it is known; operators search the log by it. */
export interface Parties {
  /** The reverse-path; empty for the null sender. */
  readonly mail_from: string | undefined;
  /** The refused recipient, or all recipients if the message was refused. */
  readonly recipient: string | undefined;
  /** Id of the account that the mail was for, or that submitted it. */
  readonly account: string | undefined;
}

/** Refusals per session that are logged at level info; an address harvester must not fill the disk. */
const MAX_LOGGED = 5;
/**
 * Always logged at level info, or guessers of keys could hide behind five other refusals; a session has few of them.
 */
const GUESSES: readonly Reply[] = [REFUSALS.wrongKey, REFUSALS.tooManyFailedLogins];

/** Counts a new session, and creates its log. */
export function createSessionLog(
  address: string,
  state: SessionState,
  { log, meters }: { readonly log: Log; readonly meters: Meters },
): SessionLog {
  let recipientsTaken = 0;
  let refusals = 0;
  meters.opened();
  return frozen({
    refused(reply, command, parties) {
      refusals++;
      meters.refused(reply);
      // The fail2ban filter matches lines about wrong keys up to the reply; they have no parties.
      const fields = {
        client: address,
        helo: state.helo,
        command: loggable(command),
        reply: reply.line.trimEnd(),
        ...parties,
      };
      if (refusals <= MAX_LOGGED || GUESSES.includes(reply)) log.info('smtp.refused', fields);
      else log.debug('smtp.refused', fields);
    },
    accepted(messageId, recipients, size) {
      recipientsTaken += recipients;
      log.info('message.accepted', { message: messageId, recipients, size, client: address });
    },
    end(reason, durationMs) {
      const { helo, tls, messages } = state;
      meters.closed();
      log.info('smtp.session', {
        client: address,
        helo,
        tls,
        messages,
        recipients: recipientsTaken,
        refusals,
        reason,
        duration_ms: Math.round(durationMs),
      });
    },
  });
}

/**
 * Returns MAIL and RCPT in full, other commands as their verb: a client that ignores the reply to DATA sends its
 * message as commands, and AUTH carries a password.
 */
function loggable(command: string): string {
  if (/^(?:MAIL|RCPT) /i.test(command)) return command;
  return (
    /^(?:EHLO|HELO|STARTTLS|DATA|RSET|NOOP|VRFY|EXPN|HELP|AUTH|BDAT|QUIT)\b/i.exec(command)?.[0].toUpperCase() ??
    'unknown'
  );
}

/** The metrics of all sessions of a listener. */
export interface Meters {
  opened(): void;
  closed(): void;
  secured(version: string | null): void;
  refused(reply: Reply): void;
  /** Sets the certificate in use, PEM; undefined: none. */
  certificate(pem: string | undefined): void;
}

const VERSIONS = ['TLSv1.2', 'TLSv1.3', 'other'] as const;

/** Creates the metrics of a listener; `listener` is the value of the label. */
export function createSessionMeters(listener: 'smtp' | 'submission' | 'submissions', metrics: Metrics): Meters {
  const sessions = metrics.counter('postern_smtp_sessions_total', { listener });
  const byVersion = new Map<string, Counter>(
    VERSIONS.map((version) => [version, metrics.counter('postern_smtp_tls_sessions_total', { listener, version })]),
  );
  const count = (reason: string, { code }: Reply) =>
    metrics.counter('postern_smtp_refusals_total', { listener, code: String(code), reason: toWords(reason) });
  const byReply = new Map<Reply, Counter>(
    Object.entries(REFUSALS).map(([reason, reply]) => [reply, count(reason, reply)]),
  );
  let active = 0;
  let notAfter: number | undefined;
  metrics.gauge('postern_smtp_sessions_active', () => [[{ listener }, active]]);
  metrics.gauge('postern_tls_certificate_not_after_timestamp_seconds', () =>
    notAfter === undefined ? [] : [[{ listener }, notAfter]],
  );
  // Refusals made for one message (`unknownThing`, `faultyTemplate`) share a counter, with the code of the first.
  let unknownThing: Counter | undefined;
  return frozen({
    opened() {
      active++;
      sessions.add();
    },
    closed() {
      active--;
    },
    secured(version) {
      (byVersion.get(version ?? 'other') ?? byVersion.get('other'))?.add();
    },
    refused(reply) {
      (byReply.get(reply) ?? (unknownThing ??= count('unknownThing', reply))).add();
    },
    certificate(pem) {
      notAfter = pem === undefined ? undefined : expiryOf(pem);
    },
  });
}

function expiryOf(pem: string): number {
  return new X509Certificate(pem).validToDate.getTime() / 1000;
}

/** Converts `noMailbox` to `no_mailbox`, as Prometheus names are written. */
function toWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
