import { isAscii, isUtf8 } from 'node:buffer';
import { connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import SMTPConnection from 'nodemailer/lib/smtp-connection';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import type { Hop } from './hops.ts';

/** One message for one recipient, as the commands and DATA will say it. */
export interface Letter {
  readonly mailFrom: string;
  readonly recipient: string;
  readonly bytes: Uint8Array;
}

/**
 * What became of a letter. `replied`: the reply that decided, the server's or one of ours. `lost`: the session ended
 * before anything was decided. `given`: the message was on its way, so that a server may have it even if no reply came.
 */
export type Handover =
  | ({ readonly kind: 'replied'; readonly given: boolean } & Reply)
  | { readonly kind: 'lost'; readonly reason: string; readonly given: boolean };

/** A session with a server that takes mail, ready for MAIL FROM. */
export interface Session {
  /** Encrypted. */
  readonly tls: boolean;
  /** The address of ours that it leaves from. */
  readonly source: string | null;
  /** How many messages it was asked to take. */
  sent(): number;
  alive(): boolean;
  send(letter: Letter): Promise<Handover>;
  /** Clears what the last transaction left; false when the session is of no more use. */
  reset(): Promise<boolean>;
  /** QUIT. */
  end(): void;
  destroy(): void;
}

/** nodemailer's own deadlines, which the machine's clock drives. Ours come long before. */
const NEVER_MS = 24 * 3_600_000;
/** RFC 5321 section 4.5.3.1.5 says 512 octets a line; EHLO has some dozens. */
const LONGEST_REPLY = 64 * 1024;
/** For the server to answer QUIT and to close. */
const CLOSE_MS = 2000;

/**
 * Brings a connection as far as MAIL FROM: greeting, EHLO, STARTTLS, AUTH. Throws what nodemailer throws; the socket is
 * gone then.
 */
export async function openSession(socket: Socket, hop: Hop, name: string, signal: AbortSignal): Promise<Session> {
  const source = socket.localAddress ?? null;
  const connection = connectionOver(socket, hop, name);
  connection.on('error', () => {}); // what nobody waits for; `alive` tells
  const cut = () => socket.destroy(tookTooLong());
  signal.addEventListener('abort', cut, { once: true });
  try {
    if (signal.aborted) throw tookTooLong();
    await step(connection, (done) => connection.connect(done));
    // to EHLO: nodemailer keeps what it read out of it to itself
    const greeting = String(connection.lastServerResponse);
    const { auth } = hop;
    if (auth) await step(connection, (done) => connection.login({ ...auth }, done));
    return sessionOf(connection, socket, source, /^\d{3}[ -]SMTPUTF8\b/im.test(greeting));
  } catch (error) {
    connection.close();
    socket.destroy();
    throw hop.tls !== 'none' && isUpgrading(connection) && error instanceof Error
      ? Object.assign(error, { code: 'ETLS' })
      : error;
  } finally {
    signal.removeEventListener('abort', cut);
  }
}

function connectionOver(socket: Socket, { host, port, secure, tls }: Hop, name: string): SMTPConnection {
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
    logger: false,
  });
}

/** A connection that ends at STARTTLS or in the handshake is trouble of the socket to nodemailer. */
function isUpgrading({ upgrading, secure, lastServerResponse }: SMTPConnection): boolean {
  return upgrading === true || (!secure && /^\d{3}[ -]STARTTLS\b/im.test(String(lastServerResponse)));
}

function sessionOf(connection: SMTPConnection, socket: Socket, source: string | null, takesUtf8: boolean): Session {
  let sent = 0;
  let utf8 = false;
  askForUtf8(connection, () => utf8);

  function destroy() {
    connection.close();
    socket.destroy();
  }

  async function send({ mailFrom, recipient, bytes }: Letter): Promise<Handover> {
    sent++;
    let given = false;
    const needs = utf8Needs(mailFrom + recipient, bytes);
    if (needs !== 'nothing' && !takesUtf8)
      return {
        kind: 'replied',
        given,
        code: 550,
        diag: '5.6.7 The server does not take internationalized mail (SMTPUTF8)',
      };
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
      const { response } = await step<{ response: string }>(connection, (done) =>
        connection.send(envelope, content, done),
      );
      // a second reply that nobody asked for ends the session now, not the next message
      await new Promise(setImmediate);
      return { kind: 'replied', given, ...(parseReply(response) ?? { code: 250, diag: '' }) };
    } catch (error) {
      return handoverOf(error, given, bytes.length, destroy);
    }
  }

  return frozen({
    tls: connection.secure,
    source,
    send,
    destroy,
    sent: () => sent,
    alive: () => !connection.destroyed && !socket.destroyed && socket.writable,
    reset: () =>
      step<boolean | undefined>(connection, (done) => connection.reset(done)).then(
        () => true,
        () => {
          destroy();
          return false;
        },
      ),
    end() {
      if (connection.destroyed) return destroy();
      connection.quit();
      // The server may answer or not: we have nothing more to say, and half a connection keeps no process alive.
      const { _socket: secured } = connection;
      for (const one of [socket, secured]) if (one) one.setTimeout(CLOSE_MS, () => one.destroy()).unref();
    },
  });
}

function handoverOf(error: unknown, given: boolean, size: number, destroy: () => void): Handover {
  const refusal = refusalIn(error);
  if (refusal) {
    // A refusal may come before the message has gone out to its end, and the rest of it must not meet the next
    // commands.
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
  return { kind: 'lost', reason: reasonOf(error), given };
}

/** What asks for SMTPUTF8 (RFC 6531 section 3.4): an address, or a header that is written in UTF-8. */
function utf8Needs(addresses: string, bytes: Uint8Array): 'address' | 'header' | 'nothing' {
  if (!isAscii(Buffer.from(addresses))) return 'address';
  const end = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).indexOf('\r\n\r\n');
  const header = bytes.subarray(0, end < 0 ? bytes.length : end);
  return !isAscii(header) && isUtf8(header) ? 'header' : 'nothing';
}

/**
 * nodemailer asks for SMTPUTF8 when an address needs it, and has no way to ask because of a header: the line is amended
 * on its way out.
 */
function askForUtf8(connection: SMTPConnection, needed: () => boolean): void {
  const command: unknown = Reflect.get(connection, '_sendCommand');
  if (typeof command !== 'function') throw new Error('nodemailer has no _sendCommand any more');
  const amended = (line: string) => (needed() && line.startsWith('MAIL FROM:') ? `${line} SMTPUTF8` : line);
  Reflect.set(connection, '_sendCommand', (line: string, shown?: string) => {
    Reflect.apply(command, connection, [amended(line), shown]);
  });
}

/** One step of a session. nodemailer tells of a broken connection by its events, and does not always call back then. */
function step<T>(
  connection: SMTPConnection,
  run: (done: (error?: Error | null, result?: T) => void) => void,
): Promise<T> {
  return new Promise((resolve, reject) => {
    const settle = (error?: Error | null, result?: T) => {
      connection.off('error', settle).off('end', ended);
      if (error) reject(error);
      // The callback has a result wherever T is more than undefined: nodemailer's types say so of each method.
      else resolve(result as T);
    };
    // Later: of a 421 the connection is closed first, and then the callback hears of the reply.
    const ended = () => setImmediate(() => settle(new Error('the connection was closed')));
    connection.on('error', settle).on('end', ended);
    run(settle);
  });
}

/** For one address to answer. */
const CONNECT_MS = 20_000;

interface Destination {
  readonly address: string;
  readonly port: number;
  /** The address of ours that it leaves from; undefined: the one that the system takes. */
  readonly source: string | undefined;
}

/** A connection that answered in time. An abort destroys it as long as it is not there yet. */
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
    // Stays: an error that comes when nobody listens any more would end the process.
    socket.on('error', (error) => {
      settled();
      reject(error);
    });
  });
}

/** What a connection is destroyed with when time is up. */
function tookTooLong(): Error {
  return Object.assign(new Error('timed out'), { code: 'ETIMEDOUT' });
}

// What nodemailer throws, read once: `code` is a kind of trouble, `originalCode` what Node called it, `command` where
// the session was, `response` what the server said.

/** A reply that refuses, in one line: its code, and its text with the enhanced code. */
interface Reply {
  readonly code: number;
  readonly diag: string;
}

const LONGEST = 500;
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\ufffd\s]+/gu;
const ENHANCED = /^[245]\.\d{1,3}\.\d{1,3}(?=\s|$)/;

/** A server's words on one line, safe for a log and a header, and not longer than anybody reads. */
function toLine(text: string): string {
  return text
    .slice(0, 4 * LONGEST)
    .replace(UNPRINTABLE, ' ')
    .trim()
    .slice(0, LONGEST)
    .toWellFormed();
}

/**
 * A reply of one or more lines (RFC 5321 section 4.2.1), the enhanced code (RFC 2034) said once. Undefined for what is
 * none.
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

/** What went wrong, in one line: what the server said, else what we say. */
export function reasonOf(error: unknown): string {
  return toLine(field(error, 'response') || (error instanceof Error ? error.message : 'unknown error'));
}

/** Whether encryption is what failed, so that plain text may work. */
export function isTlsFault(error: unknown): boolean {
  return (
    field(error, 'code') === 'ETLS' ||
    field(error, 'command') === 'STARTTLS' ||
    /^(?:ERR_SSL|ERR_TLS|EPROTO)/.test(field(error, 'originalCode'))
  );
}

/** Whether the address that a connection should leave from is not on this machine. */
export function isSourceMissing(error: unknown): boolean {
  return field(error, 'code') === 'EADDRNOTAVAIL';
}

/**
 * The refusal that an error is; undefined when nobody decided: the connection broke, or what came was no such reply.
 */
function refusalIn(error: unknown): Reply | undefined {
  const reply = parseReply(field(error, 'response'));
  if (!reply || reply.code < 400) return undefined;
  // `CONN` is a reply to nothing in particular, and only a 421 is said unasked (RFC 5321 section 3.8).
  return field(error, 'command') !== 'CONN' || reply.code === 421 ? reply : undefined;
}

/**
 * Whether it is larger than the server said that it takes (RFC 1870 section 6.1): nodemailer looks before MAIL FROM.
 */
function isTooLarge(error: unknown): boolean {
  return (
    field(error, 'code') === 'EMESSAGE' && field(error, 'command') === 'MAIL FROM' && field(error, 'response') === ''
  );
}
