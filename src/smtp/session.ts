import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { Match } from '../inbound/types.ts';
import type { Address } from '../mail/address.ts';
import { pathIn, splitCommand } from './command-line.ts';
import { createDeadlines, type Deadlines } from './deadlines.ts';
import type { ListenerSettings } from './listener.ts';
import type { Received, Reception } from './reception.ts';
import { REFUSALS, type Reply } from './replies.ts';
import { createSessionLog, type Meters, type Parties } from './session-log.ts';
import { createSessionState, type SessionState, type Transaction } from './session-state.ts';
import { type Answer, obey } from './verbs.ts';

/** One SMTP connection from greeting to end, apart from its socket. */
export interface Session {
  readonly deadlines: Deadlines;
  /** Obeys one command line (without its line end); wait for the answer before the next. Never throws. */
  command(line: string): Answer | Promise<Answer>;
  /** Takes bytes after an answer with `then: 'data'`; wait for its answer before the next. Never throws. */
  data(chunk: Buffer): Promise<DataAnswer>;
  /** The TLS handshake is done. */
  secured(version: string | null): void;
  /** Notes why the session is about to end; the first reason counts. */
  ending(reason: string): void;
  /** The session is over: what was in DATA is given up, and the log gets its line. */
  ended(): void;
}

/**
 * What a chunk of DATA is answered: nothing while more is to come, else the answer and the bytes behind the message.
 */
type DataAnswer =
  | { readonly answer?: undefined; readonly rest?: undefined }
  | { readonly answer: Answer; readonly rest: Buffer };

/**
 * What a listener is there for. Everything about sessions is the same for all; a side says who may speak, what is
 * taken, and where a message goes.
 */
export interface Side {
  /** How its numbers are told apart. */
  readonly name: 'smtp' | 'submission';
  /** Why no transaction may begin now. */
  mail(): Reply | undefined;
  /** Where mail for an address goes, or why it is not taken. */
  recipient(address: Address): Routed | Promise<Routed>;
  /** Why no message may come now. */
  data(): Reply | undefined;
  /** Opens the place that the bytes of the present transaction go to. */
  receive(state: SessionState, address: string): Reception;
  /** One for each session; undefined: nobody has to say who they are. */
  gate?(state: SessionState, client: Client): Gate;
}

/** Where mail goes (null: out into the world), or why it is not taken, and by which account. */
export type Routed =
  | { readonly refused: Reply; readonly owner?: string | undefined }
  | { readonly refused?: undefined; readonly value: Match | null };

/** Hears a session before the verbs do, and lets through whom it knows. */
export interface Gate {
  /** Words for the answer to EHLO. */
  offers(): readonly string[];
  /** Answers a line, or leaves it to the verbs (undefined). */
  hear(line: string): Answer | undefined | Promise<Answer | undefined>;
}

/** The other end of a session, and whether STARTTLS is there for it. */
export interface Client {
  readonly address: string;
  readonly offersTls: boolean;
}

/** A session of a client that was just let in. */
export function createSession(
  settings: ListenerSettings,
  deps: { readonly side: Side; readonly clock: Clock; readonly log: Log; readonly meters: Meters },
  client: Client,
): Session {
  const { side, clock, log } = deps;
  const { address, offersTls } = client;
  const deadlines = createDeadlines(settings, clock.monotonic());
  const state = createSessionState();
  const gate = side.gate?.(state, client);
  const dialog = { settings, side, offersTls, gate, state };
  const sessionLog = createSessionLog(address, state, deps);
  let reception: Reception | undefined;
  let writing = false;
  let reason: string | undefined;
  let over = false;

  /** RFC 5321 section 3.8: a 421 is the end of the session; after a 521 nothing of the input can be believed. */
  function settle(answer: Answer, command: string, transaction = state.transaction): Answer {
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
  }

  function closeData({ reply, messageId, size }: Received): Reply {
    const recipients = state.transaction?.recipients.size ?? 0;
    if (messageId === undefined) state.reset();
    else {
      state.accept();
      sessionLog.accepted(messageId, recipients, size);
    }
    deadlines.endData();
    reception = undefined;
    return reply;
  }

  function fault(error: unknown, line: string): Answer {
    log.error('smtp.fault', { client: address, fault: error });
    return settle({ reply: REFUSALS.fault }, line);
  }

  /** What the gate has nothing to say about is for the verbs. */
  function answer(fromGate: Answer | undefined, line: string): Answer | Promise<Answer> {
    // The lines of a login hold the key: none of them is logged.
    if (fromGate) return settle(fromGate, /^MAIL FROM:/i.test(line) ? line : 'AUTH');
    const fromVerb = obey(dialog, line);
    if (fromVerb instanceof Promise) return inOurTime(() => fromVerb.then((later) => settle(later, line)), line);
    if (fromVerb.then === 'data') openData();
    return settle(fromVerb, line);
  }

  /** While we wait for other parts no deadline runs. */
  async function inOurTime(work: () => Promise<Answer>, line: string): Promise<Answer> {
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
    command(line): Answer | Promise<Answer> {
      try {
        const fromGate = gate?.hear(line);
        return fromGate instanceof Promise
          ? inOurTime(async () => answer(await fromGate, line), 'AUTH')
          : answer(fromGate, line);
      } catch (error) {
        return fault(error, line);
      }
    },
    async data(chunk): Promise<DataAnswer> {
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
    secured(version) {
      state.secure(version);
      deps.meters.secured(version);
      deadlines.secured();
    },
    ending(why) {
      reason ??= why;
    },
    ended() {
      if (over) return;
      over = true;
      // While bytes are on their way to the disk they are given up behind them.
      if (!writing) void reception?.abort();
      sessionLog.end(reason ?? 'disconnect', clock.monotonic() - deadlines.startedAt);
    },
  });
}

/** Several of a kind in one field of the log; undefined when there are none. */
function listed(words: Iterable<string>): string | undefined {
  return [...words].join(' ') || undefined;
}
