import type { RefusalName } from './replies.ts';

/** The reasons that are made for one message, besides the fixed refusals. */
type Reason = RefusalName | 'unknownThing' | 'faultyTemplate';

const RETRY = 'The sending server tries again by itself.';
const CLIENT = 'Correct the client; nothing has to be changed here.';
const LOAD = `${RETRY} If this happens often, raise the limit, or share the work among more hosts.`;

/** For each reason of a refusal what it means, and what can be done about it. */
const ADVICE: Readonly<Record<Reason, string>> = {
  // Sessions that were ended
  tooManySessions: `This host had as many sessions as it may have (smtp.max_sessions). ${LOAD}`,
  crowded: `This host had as many sessions as it may have (smtp.max_sessions), and this one had sent no mail for longest, so another client got its place. ${LOAD}`,
  busy: `This host was too slow to let more clients in at that moment. ${LOAD}`,
  tooManyFromAddress: `The client had too many connections at a time (smtp.max_sessions_per_address). ${RETRY}`,
  tooManyRefused:
    'Too many recipients of the session were refused, as when somebody guesses addresses. Check which ones: a sender may have an old list.',
  tooManyMessages: `The session had as many messages as it may have. ${RETRY}`,
  tooManyCommands: `The client gave many commands and sent no message. ${CLIENT}`,
  tooManyUnknown: `The client gave many commands that do not exist. It is probably no mail server. ${CLIENT}`,
  notHttp: 'A browser or an HTTP client connected to the SMTP port. Use the port of the API (http.listen).',
  commandTooSlow: `The client began a command and did not end it in time. Check its network. ${RETRY}`,
  idle: `The client said nothing for too long. ${RETRY}`,
  sessionTooLong: `The session took longer than a session may. ${RETRY}`,
  dataTooSlow: `The message came in too slowly. Check the network of the client. ${RETRY}`,
  shutdown: `Postern was being stopped or restarted. ${RETRY}`,
  tooManyFailedLogins: 'The session tried several wrong keys. Check the API key in the settings of the client.',

  // Temporary
  cannotLogIn: 'The key could not be checked, because the store was unavailable. The client tries again.',
  accountBacklog:
    'Too much mail of the account is waiting to be sent. Wait until it has left, or look for what holds it up.',
  accountFull: 'The account has reached its storage limit. Delete what it no longer needs, or raise the limit.',
  fault: `Something failed on this host, such as the disk or the store; the log says what. ${RETRY}`,
  unscanned: `A scanner was away, and scan.when is before; the log says which one. Get it to run again. ${RETRY}`,
  full: `The disk of this host is nearly full (spool.min_free_percent, spool.min_free_bytes). Free some space. ${RETRY}`,
  backlog: `Too much mail of the account is waiting for its webhook, or takes its share of the disk. Get the webhook to answer again. ${RETRY}`,
  tooManyRecipients: `The message has more recipients than one may have (smtp.max_recipients). The sending server sends the others in another message.`,
  tooMuchInAll: `The message is large and has more recipients than this host prepares it for at one time. The sending server sends it to the others in another transaction.`,
  oneRecipient: `The routes of this recipient, or of the one before it, may refuse the message for what it says, so each gets a message of its own. ${RETRY}`,

  // Permanent
  unrouted:
    'A route with the action reject took the message, or no route takes what it says. Test the routes with its sender and its content (/inbound/test-route).',
  unwanted: 'A scanner found a virus in the message or said that it must be refused (scan.when is before).',
  lineTooLong: `The client sent a line that is longer than SMTP allows. ${CLIENT}`,
  unknownCommand: `The client gave a command that does not exist. ${CLIENT}`,
  badArgument: `The client gave a command with a wrong argument. ${CLIENT}`,
  badSender: `The sender is not an email address. ${CLIENT}`,
  badRecipient: `The recipient is not an email address. ${CLIENT}`,
  badHelo: `The client named itself by something that is not a host name. ${CLIENT}`,
  badResponse: `The client answered the login with something that cannot be read. ${CLIENT}`,
  loginCancelled: 'The client broke off its login.',
  notImplemented: `The client asked for something that this server does not offer. ${CLIENT}`,
  noHelo: `The client did not say EHLO first. ${CLIENT}`,
  noMail: `The client did not say MAIL first. ${CLIENT}`,
  loggedInAlready: `The client logged in twice. ${CLIENT}`,
  loginTooLate: `The client logged in while it was sending a message. ${CLIENT}`,
  unknownMechanism: 'The client logs in by a method that is not supported. Choose PLAIN or LOGIN in its settings.',
  noRecipient: 'No recipient of the message was accepted. Look at the refusals before this one.',
  nestedMail: `The client began a message inside of another. ${CLIENT}`,
  tlsActive: `The client asked for TLS twice. ${CLIENT}`,
  bareLineEnding:
    'The message has line endings that hide other messages in it from some servers (SMTP smuggling). Correct the program that made the message: lines must end in CR LF.',
  loginFirst: 'Mail is accepted on this port after a login only. Set an API key as the password of the client.',
  startTlsFirst: 'Mail is accepted on this port over TLS only. Turn on STARTTLS in the client.',
  wrongKey: 'The password was not a valid API key. Check the key, and whether it was revoked.',
  needsTls: 'A login is accepted over TLS only. Turn on TLS or STARTTLS in the client.',
  noMailbox:
    'No route of the domain matches the mailbox. Add a route for it (/inbound/add-route), or try which one matches (/inbound/test-route).',
  expiredAddress:
    'The reply address was made to expire, and it has. The sender is told; make later addresses for longer (expires_at of /inbound/reply-address).',
  noRelay:
    'The domain of the recipient is not an inbound domain here. If it should be, add it (/inbound/add-domain) and publish its proof; else somebody tried to relay mail.',
  foreignSender:
    'The account may not send from the domain of the sender. Verify the domain (/senders/add-domain), or send from another.',
  noLiteral: 'The recipient is an IP address instead of a domain. Use a domain name.',
  badHeader: `The header of the message is longer than is accepted. ${CLIENT}`,
  badFrom:
    'The message has no From with exactly one address that all mail programs read alike. Correct the program that made the message.',
  badBody: 'The parts of the message cannot be told apart. Correct the program that made the message.',
  templateTooLong: 'The template and what it was filled with are too long together. Shorten one of them.',
  tooBig: 'The message is larger than is accepted (smtp.max_message_bytes). Send a link instead of an attachment.',
  needsUtf8:
    'The address has letters beyond ASCII, and the client did not ask for that (SMTPUTF8). Use a client that can, or another address.',
  mailLoop:
    'The message has passed through too many servers: somewhere it is forwarded in a circle. Look at its Received fields.',
  unknownParameter: `The client used a parameter that this server does not offer. ${CLIENT}`,

  // Made for one message
  unknownThing: 'The message names a template or a subaccount that the account does not have; the reply says which.',
  faultyTemplate: 'The template has an error; the reply says where. Correct it and publish it again.',
};

/** For a refusal that another version noted. */
const UNKNOWN = 'This version does not know the reason; the reply says what is known.';

export const REFUSAL_REASONS: readonly string[] = Object.keys(ADVICE);

const BY_REASON = new Map<string, string>(Object.entries(ADVICE));

/** What a refusal means and what to do about it, in plain words, by its reason in the history. */
export const adviceOf = (reason: string): string => BY_REASON.get(reason) ?? UNKNOWN;
