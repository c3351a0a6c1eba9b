import { frozen } from '../base/frozen.ts';

/** One reply as the client gets it. */
export interface Reply {
  readonly code: number;
  /** RFC 3463; empty where RFC 2034 section 3 forbids one (greeting, HELO, EHLO, 354). */
  readonly enhanced: string;
  /** The line with its CRLF. */
  readonly line: string;
}

function reply(code: number, enhanced: string, text: string): Reply {
  return frozen({ code, enhanced, line: `${code} ${enhanced}${enhanced && ' '}${text}\r\n` });
}

/**
 * All refusals with a fixed text. The text does not depend on the error: the details of a fault go to the log, and one
 * text for all unknown mailboxes gives harvesters nothing.
 */
export const REFUSALS = frozen({
  // 421: Postern ends the session
  tooManySessions: reply(421, '4.3.2', 'Too many connections, try again later'),
  crowded: reply(421, '4.3.2', 'Too many connections, and this one was idle longest; try again later'),
  busy: reply(421, '4.3.2', 'Server is busy, try again later'),
  tooManyFromAddress: reply(421, '4.7.0', 'Too many connections from your address, try again later'),
  tooManyRefused: reply(421, '4.7.0', 'Too many rejected recipients'),
  tooManyMessages: reply(421, '4.7.0', 'Too many messages in this session, please reconnect'),
  tooManyCommands: reply(421, '4.7.0', 'Too many commands without a message'),
  tooManyUnknown: reply(421, '4.7.0', 'Too many unrecognized commands'),
  notHttp: reply(421, '4.7.0', 'This is an SMTP server, not an HTTP server'),
  commandTooSlow: reply(421, '4.4.2', 'Timeout waiting for the end of a command'),
  idle: reply(421, '4.4.2', 'Timeout waiting for a command'),
  sessionTooLong: reply(421, '4.4.2', 'Session time limit exceeded'),
  dataTooSlow: reply(421, '4.4.2', 'Data transfer is too slow'),
  shutdown: reply(421, '4.3.2', 'Service shutting down, try again later'),
  tooManyFailedLogins: reply(421, '4.7.0', 'Too many failed logins'),
  // 45x: the client retries
  cannotLogIn: reply(454, '4.7.0', 'Temporary authentication failure, try again later'),
  accountBacklog: reply(452, '4.3.1', 'Account queue is full, try again later'),
  accountFull: reply(452, '4.2.2', 'Account storage limit reached, try again later'),
  fault: reply(451, '4.3.0', 'Local error in processing, try again later'),
  tooNew: reply(451, '4.3.0', 'Mailbox not available on this host yet, try again later'),
  unscanned: reply(451, '4.7.1', 'Content scanner unavailable, try again later'),
  uncopied: reply(451, '4.3.0', 'Message cannot be stored safely at the moment, try again later'),
  full: reply(452, '4.3.1', 'Insufficient system storage, try again later'),
  backlog: reply(452, '4.2.2', 'Mailbox queue is full, try again later'),
  tooManyRecipients: reply(452, '4.5.3', 'Too many recipients'),
  tooMuchInAll: reply(452, '4.5.3', 'Too many recipients for a message of this size'),
  oneRecipient: reply(452, '4.5.3', 'Too many recipients: send a separate message to this one'),
  // 5xx: permanent
  lineTooLong: reply(500, '5.5.2', 'Line too long'),
  unknownCommand: reply(500, '5.5.2', 'Command not recognized'),
  badArgument: reply(501, '5.5.4', 'Syntax error in parameters or arguments'),
  badSender: reply(501, '5.1.7', 'Bad sender address syntax'),
  badRecipient: reply(501, '5.1.3', 'Bad recipient address syntax'),
  badHelo: reply(501, '', 'Syntax: EHLO hostname'),
  badResponse: reply(501, '5.5.2', 'Invalid authentication response'),
  loginCancelled: reply(501, '5.7.0', 'Authentication cancelled'),
  notImplemented: reply(502, '5.5.1', 'Command not implemented'),
  noHelo: reply(503, '5.5.1', 'Send HELO/EHLO first'),
  noMail: reply(503, '5.5.1', 'Need MAIL command first'),
  loggedInAlready: reply(503, '5.5.1', 'Already authenticated'),
  loginTooLate: reply(503, '5.5.1', 'AUTH is not allowed during a mail transaction'),
  unknownMechanism: reply(504, '5.5.4', 'Unsupported authentication mechanism, use PLAIN or LOGIN'),
  noRecipient: reply(554, '5.5.1', 'No valid recipients'),
  nestedMail: reply(503, '5.5.1', 'Nested MAIL command'),
  tlsActive: reply(503, '5.5.1', 'TLS already active'),
  bareLineEnding: reply(521, '5.5.2', 'Bare CR, bare LF or NUL received; lines must end in CRLF'),
  loginFirst: reply(530, '5.7.0', 'Authentication required'),
  startTlsFirst: reply(530, '5.7.0', 'Must issue a STARTTLS command first'),
  wrongKey: reply(535, '5.7.8', 'Authentication failed: use any user name and an API key as the password'),
  needsTls: reply(538, '5.7.11', 'Encryption required for authentication'),
  noMailbox: reply(550, '5.1.1', 'No such mailbox here'),
  expiredAddress: reply(550, '5.7.1', 'This reply address has expired'),
  noRelay: reply(550, '5.7.1', 'Relay access denied'),
  unwanted: reply(550, '5.7.1', 'Message content rejected'),
  unrouted: reply(550, '5.7.1', 'Message rejected by recipient policy'),
  foreignSender: reply(550, '5.7.1', 'Sender address rejected: not owned by this account'),
  noLiteral: reply(550, '5.1.2', 'Address literals are not accepted; use a domain name'),
  badHeader: reply(550, '5.6.0', 'Message header is too long'),
  badFrom: reply(550, '5.6.0', 'Message must have one From field with exactly one unambiguous address'),
  badBody: reply(550, '5.6.0', 'MIME parts cannot be parsed'),
  templateTooLong: reply(552, '5.3.4', 'Template with this content is too long'),
  tooBig: reply(552, '5.3.4', 'Message size exceeds the limit'),
  needsUtf8: reply(553, '5.6.7', 'Must declare SMTPUTF8 to use an internationalized address'),
  mailLoop: reply(554, '5.4.6', 'Too many hops: mail loop detected'),
  unknownParameter: reply(555, '5.5.4', 'Unsupported parameter'),
});

export type RefusalName = keyof typeof REFUSALS;

const NAMES = new Map<Reply, string>(Object.entries(REFUSALS).map(([name, refusal]) => [refusal, name]));

/** Returns the name by which a refusal is sent between threads; undefined for one made for a single message. */
export function nameOfRefusal(refusal: Reply): RefusalName | undefined {
  const name = NAMES.get(refusal);
  return name !== undefined && isRefusalName(name) ? name : undefined;
}

/** The reason for a refusal, as metrics and the history name it. */
export function refusalReason(refusal: Reply): string {
  return NAMES.get(refusal) ?? (refusal.code === 554 ? 'faultyTemplate' : 'unknownThing');
}

const isRefusalName = (name: string): name is RefusalName => Object.hasOwn(REFUSALS, name);

/** The positive replies. */
export const REPLIES = frozen({
  ok: reply(250, '2.0.0', 'OK'),
  senderOk: reply(250, '2.1.0', 'Sender OK'),
  recipientOk: reply(250, '2.1.5', 'Recipient OK'),
  bye: reply(221, '2.0.0', 'Bye'),
  startTls: reply(220, '2.0.0', 'Ready to start TLS'),
  help: reply(214, '2.0.0', 'Commands: EHLO HELO STARTTLS MAIL RCPT DATA RSET NOOP VRFY QUIT (RFC 5321)'),
  // RFC 5321 section 3.5.3: the reply of a server that does not verify.
  cannotVerify: reply(252, '2.5.0', 'Cannot VRFY user, send some mail and see'),
  loggedIn: reply(235, '2.7.0', 'Authentication successful'),
  // RFC 4954 section 4: a challenge is base64; PLAIN has an empty one.
  askPlain: reply(334, '', ''),
  askUser: reply(334, '', Buffer.from('Username:').toString('base64')),
  askPassword: reply(334, '', Buffer.from('Password:').toString('base64')),
  sendData: reply(354, '', 'End data with <CR><LF>.<CR><LF>'),
});

/** The 550 for an object that the message names and the account does not have; `words` are those of the API. */
export const unknownThing = (words: string, name: string): Reply =>
  reply(550, '5.7.1', `${words} ${name.replace(/[^ -~]/g, '?').slice(0, 100)}`);

/** The 554 for a template that cannot be merged, with the error for its author. */
export const faultyTemplate = (fault: string): Reply =>
  reply(554, '5.6.0', `Template error: ${fault.replace(/[^ -~]/g, '?').slice(0, 200)}`);

/** The 220 that opens a session. */
export const greeting = (hostname: string): Reply => reply(220, '', `${hostname} ESMTP Postern`);

/** The reply to HELO. */
export const helloPlain = (hostname: string): Reply => reply(250, '', hostname);

/** The reply to EHLO, with a line for each extension. */
export function hello(hostname: string, extensions: readonly string[]): Reply {
  const words = [hostname, ...extensions];
  const lines = words.map((word, i) => `250${i === words.length - 1 ? ' ' : '-'}${word}\r\n`);
  return { code: 250, enhanced: '', line: lines.join('') };
}

/** The 250 for an accepted message. */
export const queued = (messageId: string): Reply => reply(250, '2.0.0', `OK: queued as ${messageId}`);
