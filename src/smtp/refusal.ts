/** One reply as the client gets it. */
export interface Reply {
  readonly code: number;
  /** RFC 3463; empty where RFC 2034 section 3 forbids one (greeting, HELO, EHLO, 354). */
  readonly enhanced: string;
  /** The line itself, with its CRLF. */
  readonly line: string;
}

function reply(code: number, enhanced: string, text: string): Reply {
  return Object.freeze({ code, enhanced, line: `${code} ${enhanced}${enhanced && ' '}${text}\r\n` });
}

/**
 * Every "no" that we choose. A text never says why in words of ours that change with the error: what a fault was stands
 * in the log, and one text for all unknown mailboxes leaves nothing to harvest.
 */
export const REFUSALS = Object.freeze({
  // 421: we end the session
  tooManySessions: reply(421, '4.3.2', 'Too many sessions, come back later'),
  busy: reply(421, '4.3.2', 'Too busy, come back later'),
  tooManyFromAddress: reply(421, '4.7.0', 'Too many sessions from your address'),
  tooManyRefused: reply(421, '4.7.0', 'Too many refused recipients'),
  tooManyMessages: reply(421, '4.7.0', 'Enough messages for one session, come back for more'),
  tooManyCommands: reply(421, '4.7.0', 'Too many commands without a message'),
  tooManyUnknown: reply(421, '4.7.0', 'Too many unknown commands'),
  notHttp: reply(421, '4.7.0', 'This is not a web server'),
  commandTooSlow: reply(421, '4.4.2', 'Timeout while waiting for the end of a command'),
  idle: reply(421, '4.4.2', 'Timeout while waiting for a command'),
  sessionTooLong: reply(421, '4.4.2', 'Session took too long'),
  dataTooSlow: reply(421, '4.4.2', 'Message arrives too slowly'),
  shutdown: reply(421, '4.3.0', 'Shutting down, come back later'),
  // 45x: the client tries again
  fault: reply(451, '4.3.0', 'Trouble on our side, try again later'),
  full: reply(452, '4.3.1', 'No room for mail now, try again later'),
  backlog: reply(452, '4.2.2', 'Too much mail waits for this recipient, try again later'),
  tooManyRecipients: reply(452, '4.5.3', 'Too many recipients in one transaction'),
  // 5xx: for good
  lineTooLong: reply(500, '5.5.2', 'Line too long'),
  unknownCommand: reply(500, '5.5.2', 'Command not recognized'),
  badArgument: reply(501, '5.5.4', 'Syntax error in arguments'),
  badSender: reply(501, '5.1.7', 'Bad sender address syntax'),
  badRecipient: reply(501, '5.1.3', 'Bad recipient address syntax'),
  badHelo: reply(501, '', 'Syntax: EHLO hostname'),
  notImplemented: reply(502, '5.5.1', 'Command not implemented'),
  noHelo: reply(503, '5.5.1', 'Say EHLO first'),
  noMail: reply(503, '5.5.1', 'Say MAIL first'),
  noRecipient: reply(554, '5.5.1', 'No valid recipients'),
  nestedMail: reply(503, '5.5.1', 'A transaction is open already'),
  tlsActive: reply(503, '5.5.1', 'TLS is active already'),
  bareLineEnding: reply(521, '5.5.2', 'Lines end in CRLF: a bare CR, a bare LF or a NUL is refused'),
  noMailbox: reply(550, '5.1.1', 'No such mailbox here'),
  noRelay: reply(550, '5.7.1', 'We take no mail for that domain'),
  tooBig: reply(552, '5.3.4', 'Message too big'),
  needsUtf8: reply(553, '5.6.7', 'Such an address needs SMTPUTF8'),
  mailLoop: reply(554, '5.4.6', 'Too many Received lines: the message goes in a circle'),
  unknownParameter: reply(555, '5.5.4', 'Parameter not recognized'),
});

/** The rest: what we say when all is well. */
export const REPLIES = Object.freeze({
  ok: reply(250, '2.0.0', 'OK'),
  senderOk: reply(250, '2.1.0', 'Sender OK'),
  recipientOk: reply(250, '2.1.5', 'Recipient OK'),
  bye: reply(221, '2.0.0', 'Bye'),
  startTls: reply(220, '2.0.0', 'Ready to start TLS'),
  help: reply(214, '2.0.0', 'EHLO HELO STARTTLS MAIL RCPT DATA RSET NOOP VRFY QUIT, see RFC 5321'),
  // RFC 5321 section 3.5.3: what a server says that does not tell.
  cannotVerify: reply(252, '2.5.0', 'Send mail and see'),
  sendData: reply(354, '', 'End data with <CR><LF>.<CR><LF>'),
});

/** The 220 that opens a session. */
export const greeting = (hostname: string): Reply => reply(220, '', `${hostname} ESMTP Postern`);

/** The answer to HELO. */
export const helloPlain = (hostname: string): Reply => reply(250, '', hostname);

/** The answer to EHLO, a line for each extension. */
export function hello(hostname: string, extensions: readonly string[]): Reply {
  const words = [hostname, ...extensions];
  const lines = words.map((word, i) => `250${i === words.length - 1 ? ' ' : '-'}${word}\r\n`);
  return { code: 250, enhanced: '', line: lines.join('') };
}

/** The 250 that says: this message is ours now. */
export const queued = (messageId: string): Reply => reply(250, '2.0.0', `OK: queued as ${messageId}`);
