import { frozen } from '../base/frozen.ts';
import type { Match } from '../inbound/types.ts';
import type { Address } from '../mail/addresses/address.ts';
import type { Admission, SessionActivity, SessionSlot } from './admission.ts';
import { pathIn, splitCommand } from './command-line.ts';
import { createDeadlines } from './deadlines.ts';
import type { ListenerSettings } from './listener.ts';
import type { Received, Reception } from './reception.ts';
import { REFUSALS, type Reply } from './replies.ts';
import { createSessionLog, type Parties, type SessionLogDeps } from './session-log.ts';
import { createSessionState, type SessionState, type Transaction } from './session-state.ts';
import { type CommandAnswer, obey } from './verbs.ts';

/** One SMTP session from greeting to end, without its socket. */
export type Session = ReturnType<typeof createSession>;

/** The result of a chunk of DATA: empty while more is expected, else the answer and the bytes after the message. */
type DataAnswer =
  | { readonly answer?: undefined; readonly rest?: undefined }
  | { readonly answer: CommandAnswer; readonly rest: Buffer };

/**
 * The purpose of a listener: who may send, which recipients are accepted, and where messages go. Everything else about
 * sessions is the same for all listeners.
 */
export interface Side {
  /** The `listener` label of its metrics (`submissions` with implicit TLS). */
  readonly name: 'smtp' | 'submission';
  /** Returns a refusal if no transaction may begin now. */
  mail(): Reply | undefined;
  /** Routes an address, or refuses it. */
  recipient(address: Address, sender: string): Routed | Promise<Routed>;
  /** Returns a refusal if no message may be received now. */
  data(): Reply | undefined;
  /** Opens the reception of the current transaction's message. */
  receive(state: SessionState, address: string): Reception;
  /** Creates the gate of a session; undefined if no login is required. */
  gate?(state: SessionState, client: Client): LoginGate;
}

/** A match (null for outgoing mail), or a refusal and the account that owns the domain. */
export type Routed =
  | { readonly refused: Reply; readonly owner?: string | undefined }
  | { readonly refused?: undefined; readonly value: Match | null };

/** Sees each command line before the verbs do, and requires a login. */
export interface LoginGate {
  /** EHLO keywords to offer. */
  offers(): readonly string[];
  /** Answers a line, or returns undefined to leave it to the verbs. */
  hear(line: string): CommandAnswer | undefined | Promise<CommandAnswer | undefined>;
}

/** The client of a session, and whether it can use TLS. */
export interface Client {
  readonly address: string;
  readonly offersTls: boolean;
}

/** Creates the session of a client that was just admitted. */
export function createSession(
  settings: ListenerSettings,
  deps: { readonly side: Side; readonly crowded: Admission['crowded'] } & SessionLogDeps,
  client: Client,
  slot: Pick<SessionSlot, 'doing'>,
) {
  const { side, clock, log } = deps;
  const { address, offersTls } = client;
  const deadlines = createDeadlines(settings, clock.monotonic());
  const state = createSessionState();
  const gate = side.gate?.(state, client);
  const dialog = { settings, side, offersTls, gate, state };
  const listener = settings.implicitTls ? 'submissions' : side.name;
  const sessionLog = createSessionLog({ address, listener }, state, deps);
  let reception: Reception | undefined;
  let writing = false;
  let reason: string | undefined;
  let over = false;
  let doing: SessionActivity = 'waiting';

  /** Reports a change of activity to admission. */
  function note(next: SessionActivity): void {
    if (next !== doing) slot.doing(next);
    doing = next;
  }

  /** Logs refusals. A 421 ends the session (RFC 5321 section 3.8), and so does 521: what follows cannot be trusted. */
  function settle(answer: CommandAnswer, command: string, transaction = state.transaction): CommandAnswer {
    const { reply, then, owner } = answer;
    if (reply.code >= 400) sessionLog.refused(reply, command, partiesOf(command, transaction, owner));
    if (reply.code === 421 || reply.code === 521) {
      reason ??= reply.line.trimEnd();
      return { ...answer, then: 'close' };
    }
    if (then === 'close') reason ??= 'quit';
    return answer;
  }

  function partiesOf(command: string, transaction: Transaction | undefined, owner: string | undefined): Parties {
    const { verb, rest } = splitCommand(command);
    const recipients = [...(transaction?.recipients.values() ?? [])];
    const owners = new Set(recipients.flatMap(({ match }) => (match ? [match.account] : [])));
    const all = { mail_from: transaction?.mailFrom, account: state.login?.account ?? listed(owners) };
    if (verb === 'MAIL') return { ...all, mail_from: pathIn('FROM', rest), recipient: undefined };
    if (verb !== 'RCPT')
      return { ...all, recipient: verb === 'DATA' ? listed(recipients.map(({ recipient }) => recipient)) : undefined };
    return { ...all, recipient: pathIn('TO', rest), account: state.login?.account ?? owner };
  }

  function openData(): void {
    reception = side.receive(state, address);
    deadlines.beginData();
    note('data');
  }

  function closeData({ reply, messageId, size }: Received): Reply {
    const recipients = state.transaction?.recipients.size ?? 0;
    if (messageId === undefined) state.reset();
    else {
      state.accept();
      sessionLog.accepted(messageId, recipients, size);
    }
    deadlines.endData(messageId !== undefined, clock.monotonic());
    note(messageId === undefined ? 'waiting' : 'mail');
    reception = undefined;
    return reply;
  }

  function fault(error: unknown, line: string): CommandAnswer {
    log.error('smtp.fault', { client: address, fault: error });
    return settle({ reply: REFUSALS.fault }, line);
  }

  /** Runs the verb unless the gate has answered. */
  function answer(fromGate: CommandAnswer | undefined, line: string): CommandAnswer | Promise<CommandAnswer> {
    if (fromGate && state.login) slot.doing('login');
    // Login lines contain the key and must not be logged.
    if (fromGate) return settle(fromGate, /^MAIL FROM:/i.test(line) ? line : 'AUTH');
    const fromVerb = obey(dialog, line);
    if (fromVerb instanceof Promise) return inOurTime(() => fromVerb.then((later) => settle(later, line)), line);
    if (fromVerb.then === 'data') openData();
    return settle(fromVerb, line);
  }

  /** Pauses the deadlines while the session waits for other parts. */
  async function inOurTime(work: () => Promise<CommandAnswer>, line: string): Promise<CommandAnswer> {
    deadlines.pause();
    try {
      return await work();
    } catch (error) {
      return fault(error, line);
    } finally {
      deadlines.resume(clock.monotonic());
    }
  }

  return frozen({
    deadlines,
    /** To be called once a second. Returns the reply that ends the session if a deadline has passed. */
    overdue(now: number) {
      const crowded = deps.crowded() && state.login === undefined;
      if (crowded && reception) note(deadlines.isSlow() ? 'slow' : 'data');
      return deadlines.overdue(now, crowded);
    },
    /** Runs one command line (without its line end); await the answer before the next. Never throws. */
    command(line: string): CommandAnswer | Promise<CommandAnswer> {
      try {
        const fromGate = gate?.hear(line);
        return fromGate instanceof Promise
          ? inOurTime(async () => answer(await fromGate, line), 'AUTH')
          : answer(fromGate, line);
      } catch (error) {
        return fault(error, line);
      }
    },
    /** Takes bytes after an answer with `then: 'data'`; await the result before the next. Never throws. */
    async data(chunk: Buffer): Promise<DataAnswer> {
      const present = reception;
      if (!present) return {};
      deadlines.receivedData(chunk.length);
      deadlines.pause();
      writing = true;
      const progress = await present.take(chunk);
      writing = false;
      deadlines.resume(clock.monotonic());
      const { transaction } = state;
      if (progress.ended) {
        return { answer: settle({ reply: closeData(progress.ended) }, 'DATA', transaction), rest: progress.rest };
      }
      if (over) await present.abort();
      return {};
    },
    /** Notes the end of the TLS handshake. */
    secured(version: string | null) {
      state.secure(version);
      deps.meters.secured(version);
      deadlines.secured();
    },
    /** Notes why the session is about to end; the first reason counts. */
    ending(why: string) {
      reason ??= why;
    },
    /** Postern is about to end the session with this reply. */
    finishing(reply: Reply) {
      sessionLog.finished(reply, reception ? 'DATA' : 'COMMAND');
      reason ??= reply.line.trimEnd();
    },
    /** Ends the session: aborts a message in DATA, and writes the session's log line. */
    ended() {
      if (over) return;
      over = true;
      // During a write, `data` aborts the message when the write ends.
      if (!writing) void reception?.abort();
      sessionLog.end(reason ?? 'disconnect', clock.monotonic() - deadlines.startedAt);
    },
  });
}

/** Joins words for one log field; undefined if there are none. */
function listed(words: Iterable<string>): string | undefined {
  return [...words].join(' ') || undefined;
}
