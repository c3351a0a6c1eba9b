import { frozen } from '../base/frozen.ts';
import type { Match } from '../inbound/types.ts';
import type { DsnRequest, RecipientDsn } from '../mail/addresses/envelope.ts';
import type { MailCommand } from './command-line.ts';

/** Limit of commands without progress (NOOP, RSET, MAIL, EHLO, …) between two messages. Postfix has the same limit. */
const MAX_IDLE_COMMANDS = 100;
/** The session ends at this many unknown commands. */
const MAX_UNKNOWN_COMMANDS = 10;

interface Recipient {
  /** The address as the client gave it. */
  readonly recipient: string;
  /** Null for outgoing mail. */
  readonly match: Match | null;
  readonly dsn: RecipientDsn | undefined;
}

/** A mail transaction, from MAIL to the final dot or RSET. */
export interface Transaction extends MailCommand {
  /** By lower-case address, so that a recipient named twice counts once. */
  readonly recipients: ReadonlyMap<string, Recipient>;
}

/** The account that a client logged in to, and the `id` of its API key. */
export interface Login {
  readonly account: string;
  readonly key: string;
}

/** The state of a session. Any part may read it; only its own functions change it. */
export type SessionState = ReturnType<typeof createSessionState>;

/** Creates the state of a new session. */
export function createSessionState() {
  let helo: string | null = null;
  let extended = false;
  let tls: string | null = null;
  let login: Login | undefined;
  let transaction: (MailCommand & { readonly recipients: Map<string, Recipient> }) | undefined;
  let transactions = 0;
  let badRecipients = 0;
  let idleCommands = 0;
  let unknownCommands = 0;
  let messages = 0;

  return frozen({
    get helo(): string | null {
      return helo;
    },
    /** The client sent EHLO, not HELO. */
    get extended(): boolean {
      return extended;
    },
    /** The TLS version; null without TLS. */
    get tls(): string | null {
      return tls;
    },
    /** Undefined until the client logs in, and on listeners without login. */
    get login(): Login | undefined {
      return login;
    },
    get transaction(): Transaction | undefined {
      return transaction;
    },
    /** How many transactions have begun. */
    get transactions(): number {
      return transactions;
    },
    get badRecipients(): number {
      return badRecipients;
    },
    get messages(): number {
      return messages;
    },
    /** Notes HELO or EHLO, which ends the transaction. */
    greet(name: string, isExtended: boolean) {
      helo = name;
      extended = isExtended;
      transaction = undefined;
    },
    /** Notes the end of the TLS handshake, and discards the state from before it (RFC 3207 section 4.2). */
    secure(version: string | null) {
      // The counters stay: STARTTLS must not reset them.
      helo = null;
      extended = false;
      transaction = undefined;
      login = undefined;
      tls = version ?? 'TLS';
    },
    /** Undefined: the login is no longer valid. */
    logIn(next: Login | undefined) {
      login = next;
    },
    begin(command: MailCommand) {
      transactions++;
      transaction = { ...command, recipients: new Map() };
    },
    addRecipient(key: string, recipient: Recipient) {
      transaction?.recipients.set(key, recipient);
    },
    refuseRecipient() {
      badRecipients++;
    },
    /** Ends the transaction without a message. */
    reset() {
      transaction = undefined;
    },
    /** Ends the transaction with an accepted message. */
    accept() {
      transaction = undefined;
      idleCommands = 0;
      messages++;
    },
    /** Counts a command without progress; true if there were too many. */
    countIdle: () => ++idleCommands > MAX_IDLE_COMMANDS,
    /** Counts an unknown command; true if there were too many. */
    countUnknown: () => ++unknownCommands >= MAX_UNKNOWN_COMMANDS,
  });
}

/** Returns the protocol keyword for the Received field (RFC 3848, RFC 6531 section 4.3). */
export function protocolOf({ tls, extended, transaction, login }: SessionState): string {
  const secure = `${tls === null ? '' : 'S'}${login === undefined ? '' : 'A'}`;
  if (transaction?.utf8) return `UTF8SMTP${secure}`;
  return extended || secure ? `ESMTP${secure}` : 'SMTP';
}

/** Returns the DSN request of a transaction (RFC 3461); undefined if there is none. */
export function dsnOf({ mailFrom, dsn, recipients }: Transaction): DsnRequest | undefined {
  const wishes = [...recipients.values()].flatMap(({ recipient, dsn: wish }) =>
    wish ? [[recipient, wish] as const] : [],
  );
  if (wishes.length === 0 && dsn.ret === null && dsn.envid === null) return undefined;
  return { ...dsn, recipients: Object.fromEntries(wishes), returnTo: mailFrom };
}
