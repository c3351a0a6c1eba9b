import { frozen } from '../base/frozen.ts';
import type { Match } from '../inbound/types.ts';
import type { DsnRequest, RecipientDsn } from '../mail/envelope.ts';
import type { MailCommand } from './command-line.ts';

/** Commands that bring no message forward (NOOP, RSET, MAIL, EHLO, …) between two messages. Postfix ends at 100 too. */
const MAX_IDLE_COMMANDS = 100;
/** Unknown commands in a session. */
const MAX_UNKNOWN_COMMANDS = 10;

/** Somebody that the transaction is for. */
interface Recipient {
  /** The address as the client gave it. */
  readonly recipient: string;
  /** Null for mail that goes out. */
  readonly match: Match | null;
  readonly dsn: RecipientDsn | undefined;
}

/** MAIL FROM to final dot or RSET. */
export interface Transaction extends MailCommand {
  /** By mailbox and domain, letters in lower case: a recipient named twice is one. */
  readonly recipients: ReadonlyMap<string, Recipient>;
}

/** The account that mail is handed over for, and the `id` of the key that showed it. */
export interface Login {
  readonly account: string;
  readonly key: string;
}

/** What is known of a session so far. Everybody may read it; only its own functions change it. */
export interface SessionState {
  readonly helo: string | null;
  /** EHLO and not HELO. */
  readonly extended: boolean;
  /** The TLS version, null while nothing is encrypted. */
  readonly tls: string | null;
  /** Who logged in, where that is asked for. */
  readonly login: Login | undefined;
  readonly transaction: Transaction | undefined;
  readonly badRecipients: number;
  readonly messages: number;
  /** HELO or EHLO; it ends the transaction. */
  greet(name: string, extended: boolean): void;
  /** The TLS handshake is done: everything said before it is forgotten (RFC 3207 section 4.2). */
  secure(version: string | null): void;
  /** Undefined: the login does not hold any more. */
  logIn(login: Login | undefined): void;
  begin(command: MailCommand): void;
  /** Adds a recipient to the transaction. */
  addRecipient(key: string, recipient: Recipient): void;
  refuseRecipient(): void;
  /** The transaction is over without a message. */
  reset(): void;
  /** The message of the transaction is ours. */
  accept(): void;
  /** Counts a command that brings no message forward; true when there were too many. */
  countIdle(): boolean;
  /** Counts an unknown command; true when there were too many. */
  countUnknown(): boolean;
}

/** The state of a session in which nothing was said. */
export function createSessionState(): SessionState {
  let helo: string | null = null;
  let extended = false;
  let tls: string | null = null;
  let login: Login | undefined;
  let transaction: (MailCommand & { readonly recipients: Map<string, Recipient> }) | undefined;
  let badRecipients = 0;
  let idleCommands = 0;
  let unknownCommands = 0;
  let messages = 0;

  return frozen({
    get helo() {
      return helo;
    },
    get extended() {
      return extended;
    },
    get tls() {
      return tls;
    },
    get login() {
      return login;
    },
    get transaction() {
      return transaction;
    },
    get badRecipients() {
      return badRecipients;
    },
    get messages() {
      return messages;
    },
    greet(name, isExtended) {
      helo = name;
      extended = isExtended;
      transaction = undefined;
    },
    secure(version) {
      // What counts against the client stays: encryption is no way to begin anew.
      helo = null;
      extended = false;
      transaction = undefined;
      login = undefined;
      tls = version ?? 'TLS';
    },
    logIn(next) {
      login = next;
    },
    begin(command) {
      transaction = { ...command, recipients: new Map() };
    },
    addRecipient(key, recipient) {
      transaction?.recipients.set(key, recipient);
    },
    refuseRecipient() {
      badRecipients++;
    },
    reset() {
      transaction = undefined;
    },
    accept() {
      transaction = undefined;
      idleCommands = 0;
      messages++;
    },
    countIdle: () => ++idleCommands > MAX_IDLE_COMMANDS,
    countUnknown: () => ++unknownCommands >= MAX_UNKNOWN_COMMANDS,
  });
}

/** The word for our Received line (RFC 3848, RFC 6531 section 4.3). */
export function protocolOf({ tls, extended, transaction, login }: SessionState): string {
  const secure = `${tls === null ? '' : 'S'}${login === undefined ? '' : 'A'}`;
  if (transaction?.utf8) return `UTF8SMTP${secure}`;
  return extended || secure ? `ESMTP${secure}` : 'SMTP';
}

/** What a transaction asked to be told (RFC 3461); undefined when it asked for nothing. */
export function dsnOf({ mailFrom, dsn, recipients }: Transaction): DsnRequest | undefined {
  const wishes = [...recipients.values()].flatMap(({ recipient, dsn: wish }) =>
    wish ? [[recipient, wish] as const] : [],
  );
  if (wishes.length === 0 && dsn.ret === null && dsn.envid === null) return undefined;
  return { ...dsn, recipients: Object.fromEntries(wishes), returnTo: mailFrom };
}
