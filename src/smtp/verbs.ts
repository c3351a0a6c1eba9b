import { readMail, readRcpt, splitCommand } from './command-line.ts';
import type { ListenerSettings } from './listener.ts';
import { hello, helloPlain, REFUSALS, REPLIES, type Reply } from './replies.ts';
import type { Gate, Side } from './session.ts';
import type { SessionState } from './session-state.ts';

/** What a command is answered, and what the connection does then. */
export interface Answer {
  readonly reply: Reply;
  /** close: end the session · data: the bytes of a message come next · tls: begin the handshake. */
  readonly then?: 'close' | 'data' | 'tls' | undefined;
  /** How long the answer waits, in milliseconds. */
  readonly delayMs?: number;
}

/** What the verbs work with. */
interface Dialog {
  readonly settings: ListenerSettings;
  readonly side: Side;
  readonly offersTls: boolean;
  /** Undefined: nobody has to log in. */
  readonly gate: Gate | undefined;
  readonly state: SessionState;
}

/** How long an answer waits once a session has collected too many refused recipients. */
const SLOW_ANSWER_MS = 500;
// Verbs that exist and that we do not offer.
const NOT_OFFERED = new Set('EXPN AUTH BDAT ETRN ATRN TURN SEND SOML SAML XCLIENT XFORWARD'.split(' '));
const HTTP = /^(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH|TRACE|CONNECT) .* HTTP\/\d/i;
// Nothing that a header line or a log could not carry. Beyond that all is let pass: real clients say the oddest names.
const HELO = /^[^\s\p{Cc}\p{Cf}\ufffd]{1,255}$/u;

/** Obeys one command line (without its line end). */
export function obey(dialog: Dialog, line: string): Answer {
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

function rcpt(dialog: Dialog, rest: string): Answer {
  const { settings, state } = dialog;
  if (state.helo === null) return { reply: REFUSALS.noHelo };
  if (!state.transaction) return { reply: REFUSALS.noMail };
  if (state.badRecipients >= settings.endAfterRefusals) return { reply: REFUSALS.tooManyRefused };
  // Known and unknown mailboxes wait alike, or the wait would tell which is which.
  const slow = state.badRecipients > 0 && state.badRecipients >= settings.slowAfterRefusals;
  const reply = addRecipient(dialog, rest) ?? REPLIES.recipientOk;
  if (reply.code === 550) state.refuseRecipient();
  return slow ? { reply, delayMs: SLOW_ANSWER_MS } : { reply };
}

/** Adds the recipient to the transaction, or answers why not. */
function addRecipient({ settings, side, state }: Dialog, rest: string): Reply | undefined {
  const { transaction } = state;
  if (!transaction) return REFUSALS.noMail;
  const command = readRcpt(rest, transaction.utf8, settings.hostname);
  if (command.refused) return command.refused;
  const { address, dsn } = command.value;
  const key = `${address.mailbox}@${address.domain}`.toLowerCase();
  if (transaction.recipients.has(key)) return undefined;
  if (transaction.recipients.size >= settings.maxRecipients) return REFUSALS.tooManyRecipients;
  const match = side.recipient(address);
  if (match.refused) return match.refused;
  state.addRecipient(key, { recipient: address.text, match: match.value, dsn });
  return undefined;
}

function data({ side, state }: Dialog, rest: string): Answer {
  const { helo, transaction } = state;
  if (helo === null) return { reply: REFUSALS.noHelo };
  if (rest !== '') return { reply: REFUSALS.badArgument };
  if (!transaction) return { reply: REFUSALS.noMail };
  if (transaction.recipients.size === 0) return { reply: REFUSALS.noRecipient };
  const refused = side.data();
  return refused ? { reply: refused } : { reply: REPLIES.sendData, then: 'data' };
}

function startTls({ offersTls, state }: Dialog, rest: string): Answer {
  if (!offersTls) return { reply: REFUSALS.notImplemented };
  if (state.tls !== null) return { reply: REFUSALS.tlsActive };
  return rest === '' ? { reply: REPLIES.startTls, then: 'tls' } : { reply: REFUSALS.badArgument };
}

function unknown(state: SessionState, verb: string, line: string): Reply {
  if (HTTP.test(line)) return REFUSALS.notHttp;
  if (NOT_OFFERED.has(verb)) return REFUSALS.notImplemented;
  return state.countUnknown() ? REFUSALS.tooManyUnknown : REFUSALS.unknownCommand;
}
