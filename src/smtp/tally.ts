import type { Log } from '../base/log.ts';
import type { Meters } from './meters.ts';
import { REFUSALS, type Reply } from './refusal.ts';
import type { Said } from './verbs.ts';

/** Refusals of one session that are logged for everybody to see; a harvester shall not fill our disk. */
const MAX_LOGGED = 5;
/** Said for everybody to see whatever came before, or a guesser would hide behind five other refusals; a session has few of them. */
const GUESSES: readonly Reply[] = [REFUSALS.wrongKey, REFUSALS.tooManyFailedLogins];

/** Whose mail was refused, as far as the session has said: an operator looks for these. */
export interface Parties {
  /** The reverse-path; empty for the null sender. */
  readonly mail_from: string | undefined;
  /** The recipient that was refused, or all of them when the message was. */
  readonly recipient: string | undefined;
  /** Id of the account that the mail was for, or that handed it over. */
  readonly account: string | undefined;
}

/** What happened in a session, for the one line at its end. */
export interface Tally {
  /**
   * Notes a refusal; the first few are logged. `command` is what was refused, as it was sent; `parties` go into the
   * line.
   */
  refused(reply: Reply, command: string, parties: Parties): void;
  accepted(messageId: string, recipients: number, size: number): void;
  /** Writes the line. */
  end(reason: string, durationMs: number): void;
}

export function createTally(
  address: string,
  said: Said,
  { log, meters }: { readonly log: Log; readonly meters: Meters },
): Tally {
  let recipientsTaken = 0;
  let refusals = 0;
  meters.opened();
  return Object.freeze({
    refused(reply: Reply, command: string, parties: Parties) {
      refusals++;
      meters.refused(reply);
      // fail2ban's filter reads wrong keys up to the reply; they have no parties.
      const fields = {
        client: address,
        helo: said.helo,
        command: loggable(command),
        reply: reply.line.trimEnd(),
        ...parties,
      };
      if (refusals <= MAX_LOGGED || GUESSES.includes(reply)) log.info('smtp.refused', fields);
      else log.debug('smtp.refused', fields);
    },
    accepted(messageId: string, recipients: number, size: number) {
      recipientsTaken += recipients;
      log.info('message.accepted', { message: messageId, recipients, size, client: address });
    },
    end(reason: string, durationMs: number) {
      const { helo, tls, messages } = said;
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
 * Envelopes are logged in full, of the rest the verb: a client that ignores our answer to DATA sends a message as commands,
 * and AUTH carries a password.
 */
function loggable(command: string): string {
  if (/^(?:MAIL|RCPT) /i.test(command)) return command;
  return (
    /^(?:EHLO|HELO|STARTTLS|DATA|RSET|NOOP|VRFY|EXPN|HELP|AUTH|BDAT|QUIT)\b/i.exec(command)?.[0].toUpperCase() ??
    'unknown'
  );
}
