import { X509Certificate } from 'node:crypto';
import { frozen } from '../base/frozen.ts';
import type { Ids } from '../base/ids.ts';
import type { Counter, Metrics } from '../base/metrics.ts';
import type { Tools } from '../base/tools.ts';
import type { Notes } from '../journal/types.ts';
import { REFUSALS, type Reply, refusalReason } from './replies.ts';
import type { SessionState } from './session-state.ts';

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
/** Always logged at level info, or guessers of keys could hide behind five other refusals; a session has few. */
const GUESSES: readonly Reply[] = [REFUSALS.wrongKey, REFUSALS.tooManyFailedLogins];

/** What the log of a session depends on. */
export interface SessionLogDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly ids: Pick<Ids, 'message'>;
  readonly notes: Notes;
  readonly meters: SessionMeters;
}

/** Counts a new session, and creates its log: the log lines, the metrics and the history of one session. */
export function createSessionLog(
  { address, listener }: { readonly address: string; readonly listener: string },
  state: SessionState,
  { clock, ids, log, notes, meters }: SessionLogDeps,
) {
  const id = ids.message();
  const at = clock.now();
  let recipientsTaken = 0;
  let refusals = 0;
  meters.opened();

  function note(reply: Reply, stage: string, parties: Partial<Parties>): void {
    const { helo, tls } = state;
    notes.note({
      what: 'refused',
      at: clock.now(),
      session: id,
      transaction: state.transaction ? state.transactions : null,
      listener,
      stage,
      reply: reply.line.trimEnd(),
      reason: refusalReason(reply),
      client: address,
      helo,
      tls,
      sender: parties.mail_from ?? null,
      recipient: parties.recipient ?? null,
      account: parties.account ?? null,
    });
  }

  return frozen({
    /**
     * Counts a refusal and logs it, at level debug after the first few. `command` is the refused command as sent;
     * `parties` are fields of the log line.
     */
    refused(reply: Reply, command: string, parties: Parties) {
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
      note(reply, loggable(command).split(' ', 1)[0]?.toUpperCase() ?? '', parties);
    },
    /** Counts a reply by which Postern ends the session; `stage` is DATA, or COMMAND outside of it. */
    finished(reply: Reply, stage: string) {
      meters.refused(reply);
      if (reply !== REFUSALS.shutdown) note(reply, stage, {});
    },
    accepted(messageId: string, recipients: number, size: number) {
      recipientsTaken += recipients;
      notes.note({ what: 'arrived', messageId, session: id, transaction: state.transactions });
      log.info('message.accepted', { message: messageId, recipients, size, client: address });
    },
    /** Writes the log line that summarizes the session. */
    end(reason: string, durationMs: number) {
      meters.closed();
      const { helo, tls, messages } = state;
      const facts = { client: address, helo, tls, messages, recipients: recipientsTaken, refusals, reason };
      log.info('smtp.session', { ...facts, duration_ms: Math.round(durationMs) });
      notes.note({ what: 'session', id, at, listener, ...facts, durationMs });
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
export type SessionMeters = ReturnType<typeof createSessionMeters>;

const VERSIONS = ['TLSv1.2', 'TLSv1.3', 'other'] as const;

/** Creates the metrics of a listener; `listener` is the value of the label. */
export function createSessionMeters(listener: 'smtp' | 'submission' | 'submissions', metrics: Metrics) {
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
  // Replies made for one message have no counter until the first of them.
  const made = new Map<string, Counter>();
  return frozen({
    opened() {
      active++;
      sessions.add();
    },
    closed() {
      active--;
    },
    secured(version: string | null) {
      (byVersion.get(version ?? 'other') ?? byVersion.get('other'))?.add();
    },
    refused(reply: Reply) {
      const reason = refusalReason(reply);
      const counter = byReply.get(reply) ?? made.get(reason) ?? count(reason, reply);
      if (!byReply.has(reply)) made.set(reason, counter);
      counter.add();
    },
    /** Sets the certificate in use, PEM; undefined: none. */
    certificate(pem: string | undefined) {
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
