import { isAscii, isUtf8 } from 'node:buffer';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Hop } from './hops.ts';
import type { HopNotes } from './transcript.ts';

/** One message for one recipient, as the SMTP commands and DATA send it. */
export interface SmtpMessage {
  readonly mailFrom: string;
  readonly recipient: string;
  readonly bytes: Uint8Array;
}

/**
 * The result of sending. `replied`: the deciding reply, from the server or ours. `lost`: the session ended before a
 * decision. `given`: data was being sent, so the server may have the message even without a reply.
 */
export type TransactionResult =
  | ({ readonly kind: 'replied'; readonly given: boolean } & Reply)
  | { readonly kind: 'lost'; readonly reason: string; readonly given: boolean };

/** A session with a mail server, ready for MAIL FROM. */
export type ClientSession = ReturnType<typeof sessionOf>;

/** Disables nodemailer's own deadlines, which run by the machine's clock. Ours end much earlier. */
const NEVER_MS = 24 * 3_600_000;
/** RFC 5321 section 4.5.3.1.5 allows 512 octets per line; EHLO has some dozens of lines. */
const LONGEST_REPLY = 64 * 1024;
/** The time limit for the server to answer QUIT and close. */
const CLOSE_MS = 2000;

/** Takes a connection through greeting, EHLO, STARTTLS and AUTH. Throws as nodemailer, with the socket destroyed. */
export async function openSession(
  socket: Socket,
  hop: Hop,
  name: string,
  signal: AbortSignal,
  notes: HopNotes,
): Promise<ClientSession> {
  const source = socket.localAddress ?? null;
  const scribe: DialogRecorder = { notes, secret: false };
  const connection = connectionOver(socket, hop, name, scribe);
  connection.on('error', () => {}); // late errors; `alive` shows them
  const cut = () => socket.destroy(tookTooLong());
  signal.addEventListener('abort', cut, { once: true });
  try {
    if (signal.aborted) throw tookTooLong();
    await step(connection, (done) => connection.connect(done));
    // the reply to EHLO, which nodemailer parses but does not expose
    const greeting = String(connection.lastServerResponse);
    const { auth } = hop;
    if (auth) {
      scribe.secret = true;
      await step(connection, (done) => connection.login({ ...auth }, done));
      scribe.secret = false;
    }
    notes.opened(source, tlsVersionOf(connection));
    return sessionOf(connection, socket, source, /^\d{3}[ -]SMTPUTF8\b/im.test(greeting), scribe);
  } catch (error) {
    notes.opened(source, tlsVersionOf(connection));
    connection.close();
    socket.destroy();
    throw hop.tls !== 'none' && isUpgrading(connection) && error instanceof Error
      ? Object.assign(error, { code: 'ETLS' })
      : error;
  } finally {
    signal.removeEventListener('abort', cut);
  }
}

/** Records the dialog of a session. While it is `secret`, our lines are credentials. */
interface DialogRecorder {
  notes: HopNotes | undefined;
  secret: boolean;
}

/** Undefined without TLS, and before its handshake is over. */
function tlsVersionOf({ _socket: socket }: SMTPConnection): string | undefined {
  return socket instanceof TLSSocket ? (socket.getProtocol() ?? undefined) : undefined;
}

/** nodemailer logs commands and replies as `client` and `server`, and the end of the content as `message`. */
function logTo(scribe: DialogRecorder) {
  const hear = (entry: { readonly tnx?: unknown; readonly outByteCount?: unknown }, text: unknown) => {
    if (entry.tnx === 'client') scribe.notes?.sent(scribe.secret ? withoutCredentials(String(text)) : String(text));
    if (entry.tnx === 'server') scribe.notes?.received(String(text));
    if (entry.tnx === 'message') scribe.notes?.sent(`(${entry.outByteCount} bytes)`);
  };
  return { debug: hear, info: hear };
}

/** Masks credentials: keeps only the mechanism of AUTH, and nothing of the lines after it. */
function withoutCredentials(line: string): string {
  return `${/^AUTH [A-Z0-9_-]+/i.exec(line)?.[0] ?? ''} (credentials)`.trimStart();
}

function connectionOver(
  socket: Socket,
  { host, port, secure, tls }: Hop,
  name: string,
  scribe: DialogRecorder,
): SMTPConnection {
  return new SMTPConnection({
    host,
    port,
    connection: socket,
    name,
    secure,
    ignoreTLS: tls === 'none',
    requireTLS: !secure && (tls === 'verified' || tls === 'encrypted'),
    tls: { rejectUnauthorized: tls === 'verified' },
    connectionTimeout: NEVER_MS,
    greetingTimeout: NEVER_MS,
    socketTimeout: NEVER_MS,
    socketCloseTimeout: CLOSE_MS,
    maxResponseSize: LONGEST_REPLY,
    logger: logTo(scribe),
    transactionLog: true,
  });
}

/** nodemailer reports a connection that ends during STARTTLS or the handshake as a socket error. */
function isUpgrading({ upgrading, secure, lastServerResponse }: SMTPConnection): boolean {
  return upgrading === true || (!secure && /^\d{3}[ -]STARTTLS\b/im.test(String(lastServerResponse)));
}

function sessionOf(
  connection: SMTPConnection,
  socket: Socket,
  source: string | null,
  takesUtf8: boolean,
  scribe: DialogRecorder,
) {
  let sent = 0;
  let utf8 = false;
  askForUtf8(connection, () => utf8);

  function destroy() {
    connection.close();
    socket.destroy();
  }

  async function send({ mailFrom, recipient, bytes }: SmtpMessage): Promise<TransactionResult> {
    sent++;
    let given = false;
    const needs = utf8Needs(mailFrom + recipient, bytes);
    if (needs !== 'nothing' && !takesUtf8) {
      const diag = '5.6.7 The server does not take internationalized mail (SMTPUTF8)';
      scribe.notes?.failed(diag);
      return { kind: 'replied', given, code: 550, diag };
    }
    utf8 = needs === 'header';
    const content = new Readable({
      read() {
        given = true;
        this.push(bytes);
        this.push(null);
      },
    });
    const envelope = { from: mailFrom, to: [recipient], size: bytes.length, use8BitMime: !isAscii(bytes) };
    try {
      const sent = await step<{ response: string }>(connection, (done) => connection.send(envelope, content, done));
      // an unsolicited second reply must end the session now, not with the next message
      await new Promise(setImmediate);
      return { kind: 'replied', given, ...(parseReply(sent?.response ?? '') ?? { code: 250, diag: '' }) };
    } catch (error) {
      const handover = handoverOf(error, given, bytes.length, destroy);
      if (handover.kind === 'lost' || isTooLarge(error)) scribe.notes?.failed(failureReason(error));
      return handover;
    }
  }

  return frozen({
    /** Whether TLS is active. */
    tls: connection.secure,
    /** `TLSv1.3`; undefined without TLS. */
    tlsVersion: tlsVersionOf(connection),
    /** Our source address. */
    source,
    /** Records the dialog from now on; undefined: none. */
    noteTo(notes: HopNotes | undefined) {
      scribe.notes = notes;
    },
    send,
    destroy,
    /** The number of messages sent, accepted or not. */
    sent: () => sent,
    alive: () => !connection.destroyed && !socket.destroyed && socket.writable,
    /** Sends RSET; false if the session is no longer usable. */
    reset: () =>
      step<boolean>(connection, (done) => connection.reset(done)).then(
        () => true,
        (error: unknown) => {
          scribe.notes?.failed(failureReason(error));
          destroy();
          return false;
        },
      ),
    /** Sends QUIT and closes. */
    end() {
      if (connection.destroyed) return destroy();
      connection.quit();
      // Do not wait for the reply, and do not let a half-open connection keep the process alive.
      const { _socket: secured } = connection;
      for (const one of [socket, secured]) if (one) one.setTimeout(CLOSE_MS, () => one.destroy()).unref();
    },
  });
}

function handoverOf(error: unknown, given: boolean, size: number, destroy: () => void): TransactionResult {
  const refusal = refusalIn(error);
  if (refusal) {
    // The refusal may have come before all data was sent, and the rest must not mix with the next commands.
    if (given || refusal.code === 421) destroy();
    return { kind: 'replied', given, ...refusal };
  }
  if (isTooLarge(error))
    return {
      kind: 'replied',
      given,
      code: 552,
      diag: `5.3.4 The message is larger than the server takes (${size} bytes)`,
    };
  destroy();
  return { kind: 'lost', reason: failureReason(error), given };
}

/** The reason for SMTPUTF8 (RFC 6531 section 3.4): an address, or a header in UTF-8. */
function utf8Needs(addresses: string, bytes: Uint8Array): 'address' | 'header' | 'nothing' {
  if (!isAscii(Buffer.from(addresses))) return 'address';
  const end = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).indexOf('\r\n\r\n');
  const header = bytes.subarray(0, end < 0 ? bytes.length : end);
  return !isAscii(header) && isUtf8(header) ? 'header' : 'nothing';
}

/**
 * nodemailer requests SMTPUTF8 if an address needs it, but cannot be told to because of a header: the command line is
 * amended as it is sent.
 */
function askForUtf8(connection: SMTPConnection, needed: () => boolean): void {
  const command: unknown = Reflect.get(connection, '_sendCommand');
  if (typeof command !== 'function') throw new Error('nodemailer has no _sendCommand any more');
  const amended = (line: string) => (needed() && line.startsWith('MAIL FROM:') ? `${line} SMTPUTF8` : line);
  Reflect.set(connection, '_sendCommand', (line: string, shown?: string) => {
    Reflect.apply(command, connection, [amended(line), shown]);
  });
}

/** Runs one step of a session. nodemailer reports a broken connection by events, and does not always call back then. */
function step<T>(
  connection: SMTPConnection,
  run: (done: (error?: Error | null, result?: T) => void) => void,
): Promise<T | undefined> {
  return new Promise((resolve, reject) => {
    const settle = (error?: Error | null, result?: T) => {
      connection.off('error', settle).off('end', ended);
      if (error) reject(error);
      else resolve(result);
    };
    // Deferred: on a 421 the connection closes before the callback receives the reply.
    const ended = () => setImmediate(() => settle(new Error('the connection was closed')));
    connection.on('error', settle).on('end', ended);
    run(settle);
  });
}

/** The time limit for one address to accept the connection. */
const CONNECT_MS = 20_000;

interface Destination {
  readonly address: string;
  readonly port: number;
  /** Our source address; undefined: the system chooses. */
  readonly source: string | undefined;
}

/** Opens a connection within `CONNECT_MS`. An abort destroys it until it is open. */
export function openConnection(
  { address, port, source }: Destination,
  clock: Clock,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port, ...(source !== undefined && { localAddress: source }) });
    const end = () => socket.destroy(tookTooLong());
    const cancel = clock.after(CONNECT_MS, end);
    const settled = () => {
      cancel();
      signal.removeEventListener('abort', end);
    };
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    socket.once('connect', () => {
      settled();
      resolve(socket);
    });
    // Kept after settling: an unhandled error would end the process.
    socket.on('error', (error) => {
      settled();
      reject(error);
    });
  });
}

/** The error for a connection destroyed by a deadline. */
function tookTooLong(): Error {
  return Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' });
}

// nodemailer's errors, parsed in one place: `code` is the error class, `originalCode` Node's code, `command` the state
// of the session, `response` the server's reply.

/** A 4xx or 5xx reply on one line: its code, and its text with the enhanced code. */
interface Reply {
  readonly code: number;
  readonly diag: string;
}

const LONGEST = 500;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\ufffd\s]+/gu;
const ENHANCED = /^[245]\.\d{1,3}\.\d{1,3}(?=\s|$)/;

/** A server's text on one line, safe for a log and a header, truncated. */
function toLine(text: string): string {
  return text
    .slice(0, 4 * LONGEST)
    .replace(UNPRINTABLE, ' ')
    .trim()
    .slice(0, LONGEST)
    .toWellFormed();
}

/**
 * Parses a reply of one or more lines (RFC 5321 section 4.2.1), without repeated enhanced codes (RFC 2034). Undefined
 * if it is not a reply.
 */
function parseReply(response: string): Reply | undefined {
  const code = /^[2-5]\d\d(?=[ \r\n-]|$)/.exec(response)?.[0];
  if (code === undefined) return undefined;
  const lines = response.split(/\r?\n/, 100).map((line) => line.replace(/^\d{3}(?:[ -]|$)/, '').trim());
  const enhanced = ENHANCED.exec(lines[0] ?? '')?.[0];
  const rest = lines
    .slice(1)
    .map((line) =>
      enhanced !== undefined && ENHANCED.exec(line)?.[0] === enhanced ? line.slice(enhanced.length) : line,
    );
  return { code: Number(code), diag: toLine([lines[0] ?? '', ...rest].join(' ')) };
}

const field = (error: unknown, name: string): string => {
  const value: unknown = typeof error === 'object' && error !== null ? Reflect.get(error, name) : undefined;
  return typeof value === 'string' ? value : '';
};

/** The reason of a failure, on one line: the server's reply, else our error message. */
export function failureReason(error: unknown): string {
  return toLine(field(error, 'response') || (error instanceof Error ? error.message : 'unknown error'));
}

/** Whether TLS failed, so that plain text may work. */
export function isTlsFault(error: unknown): boolean {
  return (
    field(error, 'code') === 'ETLS' ||
    field(error, 'command') === 'STARTTLS' ||
    /^(?:ERR_SSL|ERR_TLS|EPROTO)/.test(field(error, 'originalCode'))
  );
}

/** Whether the requested source address is not on this machine. */
export function isSourceMissing(error: unknown): boolean {
  return field(error, 'code') === 'EADDRNOTAVAIL';
}

/** The refusal in an error; undefined if there is none: the connection broke, or the reply was not a refusal. */
function refusalIn(error: unknown): Reply | undefined {
  const reply = parseReply(field(error, 'response'));
  if (!reply || reply.code < 400) return undefined;
  // `CONN` is a reply outside any command, and only a 421 may come unsolicited (RFC 5321 section 3.8).
  return field(error, 'command') !== 'CONN' || reply.code === 421 ? reply : undefined;
}

/** Whether nodemailer refused a message larger than the server's SIZE (RFC 1870 section 6.1), before MAIL FROM. */
function isTooLarge(error: unknown): boolean {
  return (
    field(error, 'code') === 'EMESSAGE' && field(error, 'command') === 'MAIL FROM' && field(error, 'response') === ''
  );
}
