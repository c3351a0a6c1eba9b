import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createPulse, type Pulse } from './limits.ts';
import type { Meters } from './meters.ts';
import type { Policy, Transaction } from './policy.ts';
import type { Received, Reception } from './reception.ts';
import { REFUSALS, type Reply } from './refusal.ts';
import type { ListenerDeps, ListenerSettings } from './settings.ts';
import { type Answer, obey, parsePath, type Said, saidNothing, splitCommand } from './verbs.ts';

/** What a chunk of DATA is answered: nothing while more is to come, else the answer and the bytes behind the message. */
export type DataAnswer =
  | { readonly answer?: undefined; readonly rest?: undefined }
  | { readonly answer: Answer; readonly rest: Buffer };

/** One SMTP connection from greeting to end, apart from its socket. */
export interface Session {
  readonly pulse: Pulse;
  /** Obeys one command line (without its line end); wait for the answer before the next. Never throws. */
  command(line: string): Answer | Promise<Answer>;
  /** Takes bytes after an answer with `then: 'data'`; wait for its answer before the next. Never throws. */
  data(chunk: Buffer): Promise<DataAnswer>;
  /** The handshake is done: everything said before it is forgotten (RFC 3207 section 4.2). */
  secured(version: string | null): void;
  /** Notes why the session is about to end; the first reason counts. */
  ending(reason: string): void;
  /** The session is over: what was in DATA is given up, and the log gets its line. */
  ended(): void;
}

export function createSession(
  settings: ListenerSettings,
  deps: Pick<ListenerDeps, 'clock' | 'log'> & { readonly side: Side; readonly meters: Meters },
  connection: { readonly address: string; readonly offersTls: boolean },
): Session {
  const { side, clock, log, meters } = deps;
  const { address, offersTls } = connection;
  const pulse = createPulse(clock.monotonic());
  const said = saidNothing();
  const gate = side.gate?.(said, connection);
  const speaker = { settings, policy: side.policy, offersTls, offers: () => gate?.offers() ?? [], said };
  const tally = createTally(address, said, { log, meters });
  let reception: Reception | undefined;
  let reason: string | undefined;
  let gone = false;

  /** RFC 5321 section 3.8: a 421 is the end of the session; after a 521 nothing of the input can be believed. */
  function settle(answer: Answer, command: string, transaction = said.transaction): Answer {
    const { reply, then } = answer;
    if (reply.code >= 400) tally.refused(reply, command, partiesOf(command, transaction));
    if (reply.code === 421 || reply.code === 521) {
      reason ??= reply.line.trimEnd();
      return { ...answer, then: 'close' };
    }
    if (then === 'close') reason ??= 'quit';
    return answer;
  }

  function partiesOf(command: string, transaction: Transaction | undefined): Parties {
    const { verb, rest } = splitCommand(command);
    const taken = [...(transaction?.recipients.values() ?? [])];
    const owners = new Set(taken.flatMap(({ match }) => (match ? [match.account] : [])));
    const all = { mail_from: transaction?.mailFrom, account: said.who?.account ?? listed(owners) };
    if (verb === 'MAIL') return { ...all, mail_from: pathIn('FROM', rest), recipient: undefined };
    if (verb !== 'RCPT')
      return { ...all, recipient: verb === 'DATA' ? listed(taken.map(({ recipient }) => recipient)) : undefined };
    const recipient = pathIn('TO', rest);
    const owner = recipient === undefined ? undefined : side.ownerOf?.(recipient.slice(recipient.lastIndexOf('@') + 1));
    return { ...all, recipient, account: said.who?.account ?? owner };
  }

  function openData(): void {
    reception = side.receive(said, address);
    pulse.data = { bytes: 0, seconds: [] };
    pulse.lineSince = undefined;
  }

  function closeData({ reply, messageId, size }: Received): Reply {
    if (messageId !== undefined) {
      said.messages++;
      said.idleCommands = 0;
      tally.accepted(messageId, said.transaction?.recipients.size ?? 0, size);
    }
    said.transaction = undefined;
    pulse.data = undefined;
    reception = undefined;
    return reply;
  }

  function trouble(fault: unknown, line: string): Answer {
    log.error('smtp.fault', { client: address, fault });
    return settle({ reply: REFUSALS.fault }, line);
  }

  /** What the gate has nothing to say about is for the verbs. */
  function answered(heard: Answer | undefined, line: string): Answer {
    // The lines of a login hold the key: none of them is logged.
    if (heard) return settle(heard, /^MAIL FROM:/i.test(line) ? line : 'AUTH');
    const answer = obey(speaker, line);
    if (answer.then === 'data') openData();
    return settle(answer, line);
  }

  async function answeredLater(hearing: Promise<Answer | undefined>, line: string): Promise<Answer> {
    pulse.busy = true;
    try {
      return answered(await hearing, line);
    } catch (fault) {
      return trouble(fault, 'AUTH');
    } finally {
      pulse.busy = false;
      pulse.quietSince = clock.monotonic();
    }
  }

  return frozen({
    pulse,
    command(line): Answer | Promise<Answer> {
      try {
        const heard = gate?.hear(line);
        return heard instanceof Promise ? answeredLater(heard, line) : answered(heard, line);
      } catch (fault) {
        return trouble(fault, line);
      }
    },
    async data(chunk): Promise<DataAnswer> {
      const present = reception;
      if (!present || !pulse.data) return {};
      pulse.data.bytes += chunk.length;
      pulse.busy = true;
      const progress = await present.take(chunk);
      pulse.busy = false;
      pulse.quietSince = clock.monotonic();
      const { transaction } = said;
      if (progress.ended) {
        return { answer: settle({ reply: closeData(progress.ended) }, 'DATA', transaction), rest: progress.rest };
      }
      if (gone) await present.abort();
      return {};
    },
    secured(version) {
      // What counts against the client stays: encryption is no way to begin anew.
      Object.assign(said, {
        helo: null,
        extended: false,
        transaction: undefined,
        who: undefined,
        tls: version ?? 'TLS',
      });
      meters.secured(version);
      pulse.lineSince = undefined;
    },
    ending(why) {
      reason ??= why;
    },
    ended() {
      if (gone) return;
      gone = true;
      // While bytes are on their way to the disk they are given up behind them.
      if (!pulse.busy) void reception?.abort();
      tally.end(reason ?? 'disconnect', clock.monotonic() - pulse.startedAt);
    },
  });
}

/** Several of a kind in one field of the log; undefined when there are none. */
function listed(words: Iterable<string>): string | undefined {
  return [...words].join(' ') || undefined;
}

/** The address in a MAIL or RCPT, when it is written as one. */
function pathIn(keyword: 'FROM' | 'TO', rest: string): string | undefined {
  const said = parsePath(keyword, rest);
  return typeof said === 'string' ? undefined : said.path;
}

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
  return frozen({
    refused(reply, command, parties) {
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
    accepted(messageId, recipients, size) {
      recipientsTaken += recipients;
      log.info('message.accepted', { message: messageId, recipients, size, client: address });
    },
    end(reason, durationMs) {
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

/**
 * What a listener is there for. Everything about sessions is the same for all; a side says who may speak, what is taken, and
 * where a message goes.
 */
export interface Side {
  /** How its numbers are told apart. */
  readonly name: 'smtp' | 'submission';
  readonly policy: Policy;
  /** The account that takes mail for a domain, where mail comes in; for the log. */
  ownerOf?(domain: string): string | undefined;
  /** Opens the place that the bytes of the present transaction go to. */
  receive(said: Said, address: string): Reception;
  /** One for each session; undefined: nobody has to say who they are. */
  gate?(said: Said, connection: { readonly address: string; readonly offersTls: boolean }): Gate;
}

/** Hears a session before the verbs do, and lets through whom it knows. */
export interface Gate {
  /** Words for the answer to EHLO. */
  offers(): readonly string[];
  /** Answers a line, or leaves it to the verbs (undefined). */
  hear(line: string): Answer | undefined | Promise<Answer | undefined>;
}
