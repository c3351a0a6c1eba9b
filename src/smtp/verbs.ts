import { MAX_IDLE_COMMANDS, MAX_UNKNOWN_COMMANDS, SLOW_ANSWER_MS } from './limits.ts';
import type { Policy, Transaction } from './policy.ts';
import { hello, helloPlain, REFUSALS, REPLIES, type Reply } from './refusal.ts';
import type { ListenerSettings } from './settings.ts';

/** What a command is answered, and what the connection does then. */
export interface Answer {
  readonly reply: Reply;
  /** close: end the session · data: the bytes of a message come next · tls: begin the handshake. */
  readonly then?: 'close' | 'data' | 'tls' | undefined;
  /** How long the answer waits, in milliseconds. */
  readonly delayMs?: number;
}

/** What the commands of a session have said so far. */
export interface Said {
  helo: string | null;
  /** EHLO and not HELO. */
  extended: boolean;
  /** The TLS version, null while nothing is encrypted. */
  tls: string | null;
  transaction: Transaction | undefined;
  /** Who logged in, where that is asked for. */
  who: Who | undefined;
  badRecipients: number;
  /** Commands since the last message. */
  idleCommands: number;
  unknownCommands: number;
  messages: number;
}

/** The account that mail is handed over for, and the `id` of the key that showed it. */
export interface Who {
  readonly account: string;
  readonly key: string;
}

/** What the verbs work with. */
export interface Speaker {
  readonly settings: ListenerSettings;
  readonly policy: Policy;
  readonly offersTls: boolean;
  /** More words for the answer to EHLO. */
  offers(): readonly string[];
  readonly said: Said;
}

/** The state of a session in which nothing was said. */
export function saidNothing(): Said {
  return {
    helo: null,
    extended: false,
    tls: null,
    transaction: undefined,
    who: undefined,
    badRecipients: 0,
    idleCommands: 0,
    unknownCommands: 0,
    messages: 0,
  };
}

/** The word for our Received line (RFC 3848, RFC 6531 section 4.3). */
export function protocolOf({ tls, extended, transaction, who }: Said): string {
  const secure = `${tls === null ? '' : 'S'}${who === undefined ? '' : 'A'}`;
  if (transaction?.utf8) return `UTF8SMTP${secure}`;
  return extended || secure ? `ESMTP${secure}` : 'SMTP';
}

// Verbs that exist and that we do not offer.
const NOT_OFFERED = new Set([
  'EXPN',
  'AUTH',
  'BDAT',
  'ETRN',
  'ATRN',
  'TURN',
  'SEND',
  'SOML',
  'SAML',
  'XCLIENT',
  'XFORWARD',
]);
const HTTP = /^(?:GET|POST|PUT|HEAD|OPTIONS|DELETE|PATCH|TRACE|CONNECT) .* HTTP\/\d/i;
// Nothing that a header line or a log could not carry. Beyond that all is let pass: real clients say the oddest names.
const HELO = /^[^\s\p{Cc}\p{Cf}\ufffd]{1,255}$/u;

/** Obeys one command line (without its line end). */
export function obey(speaker: Speaker, line: string): Answer {
  const { said } = speaker;
  const { verb, rest } = splitCommand(line);
  if (verb === 'RCPT') return rcpt(speaker, rest);
  if (verb === 'DATA') return data(speaker, rest);
  if (verb === 'QUIT') return { reply: REPLIES.bye, then: 'close' };
  if (++said.idleCommands > MAX_IDLE_COMMANDS) return { reply: REFUSALS.tooManyCommands };
  switch (verb) {
    case 'MAIL':
      return { reply: mail(speaker, rest) };
    case 'EHLO':
      return { reply: greet(speaker, rest, true) };
    case 'HELO':
      return { reply: greet(speaker, rest, false) };
    case 'RSET':
      said.transaction = undefined;
      return { reply: REPLIES.ok };
    case 'NOOP':
      return { reply: REPLIES.ok };
    case 'STARTTLS':
      return startTls(speaker, rest);
    case 'VRFY':
      return { reply: rest === '' ? REFUSALS.badArgument : REPLIES.cannotVerify };
    case 'HELP':
      return { reply: REPLIES.help };
    default:
      return { reply: unknown(said, verb, line) };
  }
}

function greet({ settings, offersTls, offers, said }: Speaker, name: string, extended: boolean): Reply {
  if (!HELO.test(name)) return REFUSALS.badHelo;
  said.helo = name;
  said.extended = extended;
  said.transaction = undefined;
  if (!extended) return helloPlain(settings.hostname);
  const extensions = [
    'PIPELINING',
    `SIZE ${settings.maxMessageBytes}`,
    '8BITMIME',
    'SMTPUTF8',
    'DSN',
    'ENHANCEDSTATUSCODES',
    ...offers(),
  ];
  return hello(settings.hostname, offersTls && said.tls === null ? [...extensions, 'STARTTLS'] : extensions);
}

function mail({ settings, policy, said }: Speaker, rest: string): Reply {
  if (said.helo === null) return REFUSALS.noHelo;
  if (said.transaction) return REFUSALS.nestedMail;
  if (said.messages >= settings.maxMessagesPerSession) return REFUSALS.tooManyMessages;
  const opened = policy.mail(rest);
  if (opened.refused) return opened.refused;
  said.transaction = opened.value;
  return REPLIES.senderOk;
}

function rcpt({ settings, policy, said }: Speaker, rest: string): Answer {
  if (said.helo === null) return { reply: REFUSALS.noHelo };
  if (!said.transaction) return { reply: REFUSALS.noMail };
  if (said.badRecipients >= settings.endAfterRefusals) return { reply: REFUSALS.tooManyRefused };
  // Known and unknown mailboxes wait alike, or the wait would tell which is which.
  const slow = said.badRecipients > 0 && said.badRecipients >= settings.slowAfterRefusals;
  const reply = policy.rcpt(rest, said.transaction) ?? REPLIES.recipientOk;
  if (reply.code === 550) said.badRecipients++;
  return slow ? { reply, delayMs: SLOW_ANSWER_MS } : { reply };
}

function data({ policy, said }: Speaker, rest: string): Answer {
  if (said.helo === null) return { reply: REFUSALS.noHelo };
  if (rest !== '') return { reply: REFUSALS.badArgument };
  const refused = policy.data(said.transaction);
  return refused ? { reply: refused } : { reply: REPLIES.sendData, then: 'data' };
}

function startTls({ offersTls, said }: Speaker, rest: string): Answer {
  if (!offersTls) return { reply: REFUSALS.notImplemented };
  if (said.tls !== null) return { reply: REFUSALS.tlsActive };
  return rest === '' ? { reply: REPLIES.startTls, then: 'tls' } : { reply: REFUSALS.badArgument };
}

function unknown(said: Said, verb: string, line: string): Reply {
  if (HTTP.test(line)) return REFUSALS.notHttp;
  if (NOT_OFFERED.has(verb)) return REFUSALS.notImplemented;
  return ++said.unknownCommands >= MAX_UNKNOWN_COMMANDS ? REFUSALS.tooManyUnknown : REFUSALS.unknownCommand;
}

/** What MAIL FROM or RCPT TO said: the path without brackets and its parameters, names in upper case. */
export interface PathCommand {
  readonly path: string;
  readonly params: ReadonlyMap<string, string | true>;
}

/** path: the address is not written as one · params: a parameter is malformed or comes twice. */
export type PathFault = 'path' | 'params';

// A quoted string may hold brackets and blanks. The two branches share no first character, so this is linear.
const PATH = /^[ \t]*<((?:"(?:[^"\\]|\\.)*"|[^<>"\\ \t])*)>(?:[ \t]+(.*))?$/;
// RFC 5321 section 4.1.2 esmtp-param; a value beyond ASCII comes with RFC 6531.
const PARAM = /^([a-z0-9][a-z0-9-]*)(?:=([^\s=\p{Cc}]+))?$/iu;

/** The verb of a command line, in upper case, and what stands behind it. */
export function splitCommand(line: string): { readonly verb: string; readonly rest: string } {
  const end = line.indexOf(' ');
  if (end < 0) return { verb: line.toUpperCase(), rest: '' };
  return { verb: line.slice(0, end).toUpperCase(), rest: line.slice(end + 1).trim() };
}

// RFC 5321 section 4.1.2 A-d-l: the hosts that a message once was to pass on its way. Labels are looked at no closer than that.
const SOURCE_ROUTE = /^@[^@,:\s"<>[\]\\]+(?:,@[^@,:\s"<>[\]\\]+)*:(?=.+@)/;

/**
 * Reads what stands behind MAIL (`keyword` FROM) or RCPT (`keyword` TO). A blank after the colon is let pass: many send one.
 * A source route is taken and ignored (RFC 5321 section 4.1.2 and appendix C): only the mailbox behind it counts.
 */
export function parsePath(keyword: 'FROM' | 'TO', rest: string): PathCommand | PathFault {
  const colon = rest.indexOf(':');
  if (rest.slice(0, colon).trimEnd().toUpperCase() !== keyword) return 'path';
  const parts = PATH.exec(rest.slice(colon + 1));
  const path = parts?.[1];
  if (path === undefined) return 'path';
  const params = parseParams(parts?.[2]);
  return params === undefined ? 'params' : { path: path.replace(SOURCE_ROUTE, ''), params };
}

const NONE: ReadonlyMap<string, string | true> = new Map();

function parseParams(text: string | undefined): ReadonlyMap<string, string | true> | undefined {
  if (text === undefined || text === '') return NONE;
  const params = new Map<string, string | true>();
  for (const word of text.split(/[ \t]+/)) {
    const parts = PARAM.exec(word);
    const name = parts?.[1]?.toUpperCase();
    if (name === undefined || params.has(name)) return undefined;
    params.set(name, parts?.[2] ?? true);
  }
  return params;
}
