import { readMail, readRcpt, splitCommand } from './command-line.ts';
import type { ListenerSettings } from './listener.ts';
import { hello, helloPlain, REFUSALS, REPLIES, type Reply } from './replies.ts';
import type { LoginGate, Routed, Side } from './session.ts';
import type { SessionState, Transaction } from './session-state.ts';
import { exceedsWorkload } from './workload.ts';

/** The reply to a command, and what the connection does next. */
export interface CommandAnswer {
  readonly reply: Reply;
  /** close: end the session · data: the bytes of a message follow · tls: start the handshake. */
  readonly then?: 'close' | 'data' | 'tls' | undefined;
  /** Delay of the reply, in milliseconds. */
  readonly delayMs?: number;
  /** The account whose mail is refused, for the log. */
  readonly owner?: string | undefined;
}

/** The context of the verbs: one session and its settings. */
interface Dialog {
  readonly settings: ListenerSettings;
  readonly side: Side;
  readonly offersTls: boolean;
  /** Undefined: no login is required. */
  readonly gate: LoginGate | undefined;
  readonly state: SessionState;
}

/** Delay of replies to RCPT once a session has too many refused recipients. */
const SLOW_ANSWER_MS = 500;
// Existing verbs that Postern does not offer.
const NOT_OFFERED = new Set('EXPN AUTH BDAT ETRN ATRN TURN SEND SOML SAML XCLIENT XFORWARD'.split(' '));
const HTTP = /^(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH|TRACE|CONNECT) .* HTTP\/\d/i;
// Excludes only what a header field or a log line cannot carry: real clients send the oddest names.
const HELO = /^[^\s\p{Cc}\p{Cf}\ufffd]{1,255}$/u;

/** Runs one command line (without its line end). Only RCPT may return a promise, for the routing of the recipient. */
export function obey(dialog: Dialog, line: string): CommandAnswer | Promise<CommandAnswer> {
  const { state } = dialog;
  const { verb, rest } = splitCommand(line);
  if (verb === 'RCPT') return rcpt(dialog, rest);
  if (verb === 'DATA') return data(dialog, rest);
  if (verb === 'QUIT') return { reply: REPLIES.bye, then: 'close' };
  if (state.countIdle()) return { reply: REFUSALS.tooManyCommands };
  switch (verb) {
    case 'MAIL':
      return { reply: mail(dialog, rest) };
    case 'EHLO':
      return { reply: greet(dialog, rest, true) };
    case 'HELO':
      return { reply: greet(dialog, rest, false) };
    case 'RSET':
      state.reset();
      return { reply: REPLIES.ok };
    case 'NOOP':
      return { reply: REPLIES.ok };
    case 'STARTTLS':
      return startTls(dialog, rest);
    case 'VRFY':
      return { reply: rest === '' ? REFUSALS.badArgument : REPLIES.cannotVerify };
    case 'HELP':
      return { reply: REPLIES.help };
    default:
      return { reply: unknown(state, verb, line) };
  }
}

function greet({ settings, offersTls, gate, state }: Dialog, name: string, extended: boolean): Reply {
  if (!HELO.test(name)) return REFUSALS.badHelo;
  state.greet(name, extended);
  if (!extended) return helloPlain(settings.hostname);
  const extensions = [
    'PIPELINING',
    `SIZE ${settings.maxMessageBytes}`,
    '8BITMIME',
    'SMTPUTF8',
    'DSN',
    'ENHANCEDSTATUSCODES',
    ...(gate?.offers() ?? []),
  ];
  return hello(settings.hostname, offersTls && state.tls === null ? [...extensions, 'STARTTLS'] : extensions);
}

function mail({ settings, side, gate, state }: Dialog, rest: string): Reply {
  if (state.helo === null) return REFUSALS.noHelo;
  if (state.transaction) return REFUSALS.nestedMail;
  if (state.messages >= settings.maxMessagesPerSession) return REFUSALS.tooManyMessages;
  const refused = side.mail();
  if (refused) return refused;
  const command = readMail(rest, { maxMessageBytes: settings.maxMessageBytes, offersAuth: gate !== undefined });
  if (command.refused) return command.refused;
  state.begin(command.value);
  return REPLIES.senderOk;
}

function rcpt(dialog: Dialog, rest: string): CommandAnswer | Promise<CommandAnswer> {
  const { settings, state } = dialog;
  if (state.helo === null) return { reply: REFUSALS.noHelo };
  if (!state.transaction) return { reply: REFUSALS.noMail };
  if (state.badRecipients >= settings.endAfterRefusals) return { reply: REFUSALS.tooManyRefused };
  // Known and unknown mailboxes are delayed alike, or the delay would reveal which is which.
  const slow = state.badRecipients > 0 && state.badRecipients >= settings.slowAfterRefusals;
  const toAnswer = (answer: CommandAnswer): CommandAnswer => {
    if (answer.reply.code === 550) state.refuseRecipient();
    return slow ? { ...answer, delayMs: SLOW_ANSWER_MS } : answer;
  };
  const added = addRecipient(dialog, state.transaction, rest);
  return added instanceof Promise ? added.then(toAnswer) : toAnswer(added);
}

/** Adds the recipient to the transaction, or refuses it. */
function addRecipient(
  { settings, side, state }: Dialog,
  transaction: Transaction,
  rest: string,
): CommandAnswer | Promise<CommandAnswer> {
  const { utf8, mailFrom, recipients } = transaction;
  const command = readRcpt(rest, utf8, settings.hostname);
  if (command.refused) return { reply: command.refused };
  const { address, dsn } = command.value;
  const key = `${address.mailbox}@${address.domain}`.toLowerCase();
  if (recipients.has(key)) return { reply: REPLIES.recipientOk };
  if (recipients.size >= settings.maxRecipients) return { reply: REFUSALS.tooManyRecipients };
  const add = (found: Routed): CommandAnswer => {
    if (found.refused) return { reply: found.refused, owner: found.owner };
    // After the content there is one reply for all recipients (RFC 5321 section 4.5.3.1.10 has senders come again).
    const others = [...recipients.values()].map(({ match }) => match);
    if (others.length > 0 && [found.value, ...others].some((match) => match?.refusable))
      return { reply: REFUSALS.oneRecipient };
    if (exceedsWorkload(transaction, found.value, settings.maxMessageBytes)) return { reply: REFUSALS.tooMuchInAll };
    state.addRecipient(key, { recipient: address.text, match: found.value, dsn });
    return { reply: REPLIES.recipientOk };
  };
  const found = side.recipient(address, mailFrom);
  return found instanceof Promise ? found.then(add) : add(found);
}

function data({ side, state }: Dialog, rest: string): CommandAnswer {
  const { helo, transaction } = state;
  if (helo === null) return { reply: REFUSALS.noHelo };
  if (rest !== '') return { reply: REFUSALS.badArgument };
  if (!transaction) return { reply: REFUSALS.noMail };
  if (transaction.recipients.size === 0) return { reply: REFUSALS.noRecipient };
  const refused = side.data();
  return refused ? { reply: refused } : { reply: REPLIES.sendData, then: 'data' };
}

function startTls({ offersTls, state }: Dialog, rest: string): CommandAnswer {
  if (!offersTls) return { reply: REFUSALS.notImplemented };
  if (state.tls !== null) return { reply: REFUSALS.tlsActive };
  return rest === '' ? { reply: REPLIES.startTls, then: 'tls' } : { reply: REFUSALS.badArgument };
}

function unknown(state: SessionState, verb: string, line: string): Reply {
  if (HTTP.test(line)) return REFUSALS.notHttp;
  if (NOT_OFFERED.has(verb)) return REFUSALS.notImplemented;
  return state.countUnknown() ? REFUSALS.tooManyUnknown : REFUSALS.unknownCommand;
}
