import type { RefusalName } from './replies.ts';

/** Reasons whose text depends on the message, besides the fixed refusals. */
type Reason = RefusalName | 'unknownThing' | 'faultyTemplate';

const RETRY = 'The sending server retries automatically.';
const CLIENT = 'Fix the client; nothing needs to change here.';
const LOAD = `${RETRY} If this happens often, raise the limit, or share the work among more hosts.`;

/** The meaning of each refusal, and what to do about it. */
const ADVICE: Readonly<Record<Reason, string>> = {
  // Ended sessions
  tooManySessions: `This host had reached its limit of sessions (smtp.max_sessions). ${LOAD}`,
  crowded:
    'This host had reached its limit of sessions (smtp.max_sessions), and ended the one that had sent no mail for ' +
    `longest. ${LOAD}`,
  busy: `This host was overloaded and accepted no more sessions at that moment. ${LOAD}`,
  tooManyFromAddress: `The client had too many connections at a time (smtp.max_sessions_per_address). ${RETRY}`,
  tooManyRefused:
    'Too many recipients of the session were refused. Check which ones: the sender may have an old list, or may be ' +
    'guessing addresses.',
  tooManyMessages: `The session had reached its limit of messages (smtp.max_messages_per_session). ${RETRY}`,
  tooManyCommands: `The client sent many commands without a message. ${CLIENT}`,
  tooManyUnknown: `The client sent many unknown commands. It is probably not a mail server. ${CLIENT}`,
  notHttp: 'A browser or an HTTP client connected to the SMTP port. Use the port of the API (http.listen).',
  commandTooSlow: `The client started a command and did not finish it in time. Check its network. ${RETRY}`,
  idle: `The client sent nothing for too long. ${RETRY}`,
  sessionTooLong: `The session reached its time limit. ${RETRY}`,
  dataTooSlow: `The message arrived too slowly. Check the network of the client. ${RETRY}`,
  shutdown: `Postern was stopping or restarting. ${RETRY}`,
  tooManyFailedLogins:
    'Several logins of the session failed with wrong keys. Check the API key in the settings of the client.',

  // Temporary
  cannotLogIn: 'The key could not be checked, because the store was unavailable. The client retries.',
  accountBacklog:
    'Too much mail of the account is waiting to be sent. Wait until it has been sent, or find out what delays it.',
  accountFull: 'The account has reached its storage limit. Delete what it no longer needs, or raise the limit.',
  fault: `Something failed on this host, such as the disk or the store; see the log. ${RETRY}`,
  tooNew:
    'A newer Postern on another host changed the domain or a matching route; postern host list shows the versions. ' +
    `Upgrade this host. ${RETRY}`,
  unscanned: `A scanner was unavailable, and scan.when is before; see the log. Start it again. ${RETRY}`,
  uncopied:
    'No second copy of the message could be made, because the store is unavailable or refused it, and ' +
    `queue.without_copies is defer; see the log. ${RETRY}`,
  full:
    'The disk of this host is nearly full (spool.min_free_percent, spool.min_free_bytes). Free some space. ' +
    `${RETRY}`,
  backlog:
    'Too much mail of the account is waiting for its webhook, or uses its share of the disk. Fix the webhook or the ' +
    `application behind it. ${RETRY}`,
  tooManyRecipients:
    'The message has too many recipients (smtp.max_recipients). The sending server sends it to the others ' +
    'separately.',
  tooMuchInAll:
    'The message is too large for this many recipients at a time. The sending server sends it to the others ' +
    'separately.',
  oneRecipient:
    'The routes of this recipient, or of the previous one, may refuse the message for its content, so each ' +
    `recipient gets it separately. ${RETRY}`,

  // Permanent
  unrouted:
    'A route with the action reject matched the message, or no route matches its content. Test the routes with ' +
    'its sender and content (/inbound/test-route).',
  unwanted: 'A scanner found a virus in the message, or its verdict was to refuse it (scan.when is before).',
  lineTooLong: `The client sent a line that is longer than SMTP allows. ${CLIENT}`,
  unknownCommand: `The client sent an unknown command. ${CLIENT}`,
  badArgument: `The client sent a command with an invalid argument. ${CLIENT}`,
  badSender: `The sender is not an email address. ${CLIENT}`,
  badRecipient: `The recipient is not an email address. ${CLIENT}`,
  badHelo: `The name in HELO or EHLO is not a host name. ${CLIENT}`,
  badResponse: `The client sent an invalid login response. ${CLIENT}`,
  loginCancelled: 'The client cancelled its login.',
  notImplemented: `The client used a command that this server does not support. ${CLIENT}`,
  noHelo: `The client did not send EHLO first. ${CLIENT}`,
  noMail: `The client did not send MAIL first. ${CLIENT}`,
  loggedInAlready: `The client logged in twice. ${CLIENT}`,
  loginTooLate: `The client logged in during a message. ${CLIENT}`,
  unknownMechanism: 'The login method of the client is not supported. Choose PLAIN or LOGIN in its settings.',
  noRecipient: 'No recipient of the message was accepted. See the refusals before this one.',
  nestedMail: `The client started a message inside another one. ${CLIENT}`,
  tlsActive: `The client started TLS twice. ${CLIENT}`,
  bareLineEnding:
    'The message has line endings that can hide another message in it (SMTP smuggling). Fix the program that ' +
    'created it: lines must end with CR LF.',
  loginFirst: 'This port accepts mail only after a login. Set an API key as the password of the client.',
  startTlsFirst: 'This port accepts mail only over TLS. Turn on STARTTLS in the client.',
  wrongKey: 'The password was not a valid API key. Check the key, and whether it was revoked.',
  needsTls: 'Logins are accepted only over TLS. Turn on TLS or STARTTLS in the client.',
  noMailbox:
    'No route of the domain matches the mailbox. Add a route for it (/inbound/add-route), or test the existing ' +
    'ones (/inbound/test-route).',
  expiredAddress:
    'The reply address has expired, and the sender is notified. To avoid this, set a later expires_at in ' +
    '/inbound/reply-address.',
  noRelay:
    'The domain of the recipient is not an inbound domain here. If it should be, add it (/inbound/add-domain) ' +
    'and publish its TXT record; otherwise somebody tried to relay mail.',
  foreignSender:
    'The account may not send from the domain of the sender. Verify the domain (/senders/verify-domain), or use ' +
    'another one.',
  noLiteral: 'The recipient is an IP address instead of a domain. Use a domain name.',
  badHeader: `The header of the message is too long. ${CLIENT}`,
  badFrom:
    'The message needs one From field with one address that all mail programs read in the same way. Fix the program ' +
    'that created it.',
  badBody: 'The parts of the message are ambiguous. Fix the program that created it.',
  templateTooLong: 'The template with its content is too long. Shorten one of them.',
  tooBig: 'The message is too large (smtp.max_message_bytes). Send a link instead of an attachment.',
  needsUtf8:
    'The address has non-ASCII letters, and the client did not request SMTPUTF8. Use a client that supports it, ' +
    'or another address.',
  mailLoop:
    'The message has passed through too many servers: it is probably forwarded in a loop. Check its Received fields.',
  unknownParameter: `The client used a parameter that this server does not support. ${CLIENT}`,

  // With a text of their own for each message
  unknownThing: 'The message names a template or a subaccount that the account does not have; the reply says which.',
  faultyTemplate: 'The template has an error; the reply says where. Fix it and publish it again.',
};

/** For a refusal recorded by another version. */
const UNKNOWN = 'This version does not know the reason; see the reply.';

export const REFUSAL_REASONS: readonly string[] = Object.keys(ADVICE);

const BY_REASON = new Map<string, string>(Object.entries(ADVICE));

/** The meaning of a refusal and what to do about it, by its reason in the history. */
export const adviceOf = (reason: string): string => BY_REASON.get(reason) ?? UNKNOWN;
