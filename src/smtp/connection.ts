import { once } from 'node:events';
import type { Server as NetServer, Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { SMTPServer, type SMTPServerSession } from 'smtp-server';
import { SMTPConnection } from 'smtp-server/lib/smtp-connection.js';
import { SMTPStream } from 'smtp-server/lib/smtp-stream.js';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import type { ListenEntry, TlsSettings } from './listener.ts';
import { greeting, REFUSALS, type Reply } from './replies.ts';
import type { Session } from './session.ts';
import { duplicateSocket } from './threads/duplicate-socket.ts';
import type { CommandAnswer } from './verbs.ts';

/**
 * The only file that uses smtp-server. The library listens, splits bytes into command lines with backpressure, upgrades
 * to TLS and discards all plaintext received before, and closes sockets. Replies and the bytes of messages are handled
 * by Postern (session.ts), because the library rewrites addresses, derives enhanced codes from the reply code alone,
 * answers errors without a code with a permanent 550, and accepts bare line ends.
 *
 * Postern uses its options (`secure` with `needsUpgrade`, `socketTimeout`, `onSecure`, `onClose`), its events, and its
 * public methods and fields. Three private members have no public counterpart:
 *
 * - `_setListeners`: the public `init` greets after 100 ms, and after a reverse lookup or its `onConnect`.
 * - `_createParser`: the only way to install a custom parser. DATA needs one: `onData` gets bytes that have already
 *   lost their bare line ends.
 * - `_dataMode`: ends the parser's command mode within a chunk; the public `startDataMode` ends only at its own end of
 *   data.
 *
 * With `override` and the library's types, the compiler reports a member that an update renames; its version is pinned.
 */

/** How long a stop waits for messages in DATA, and then for clients to close. Milliseconds. */
export const GRACE_MS = 10_000;
export const CLOSE_MS = 1000;

/** Creates the connection of an admitted socket; `leave` is called when the connection is closed. */
type Connect = (session: Session, leave: () => void) => Connection;

/** What all connections of a listener share. */
interface Shared {
  readonly clock: Clock;
  /** The handshake comes before the greeting (RFC 8314 section 3.3). */
  readonly implicitTls: boolean;
  stopping(): boolean;
  /** Called when a session has ended that a stop may be waiting for. */
  settled(): void;
  fault(error: unknown): void;
}

/** The listening sockets of a listener. `onSocket` gets each accepted socket, and decides whether it is served. */
export function createServers(
  { hostname, listen }: { readonly hostname: string; readonly listen: readonly ListenEntry[] },
  { shared, log }: { readonly shared: Shared; readonly log: Log },
  onSocket: (socket: Socket, connect: Connect) => void,
) {
  const servers = listen.map((entry) => ({ entry, library: new Server(hostname, shared, onSocket) }));

  async function open({ entry, library }: (typeof servers)[number]): Promise<void> {
    library.on('error', (fault) => {
      // Errors before it listens are thrown by `once`.
      if (library.server.listening) log.error('smtp.fault', { fault });
    });
    await once(library.listen(await toListen(entry)), 'listening');
  }

  /** Accepts no more connections; resolves when the existing ones are closed. */
  async function close(): Promise<void> {
    await Promise.all(servers.map(({ library }) => new Promise<void>((closed) => library.close(closed))));
  }

  return frozen({
    /** Opens all of them, or none. */
    async open() {
      const opened = await Promise.allSettled(servers.map(open));
      const failed = opened.find((one) => one.status === 'rejected');
      if (!failed) return;
      await close();
      throw failed.reason;
    },
    close,
    addresses: (): { readonly address: string; readonly port: number }[] =>
      servers.map(({ library }) => addressOf(library.server)),
    listening: (): boolean => servers.length > 0 && servers.every(({ library }) => library.server.listening),
    /** Uses this certificate for new handshakes. Throws if key and certificate do not match. */
    useTls(tls: TlsSettings) {
      const context = tlsOptions(tls);
      createSecureContext(context); // throws before the library drops the old one
      for (const { library } of servers) library.updateSecureContext(context);
    },
  });
}

function tlsOptions({ cert, key, minVersion, ticketKeys }: TlsSettings) {
  return { cert, key, minVersion, ...(ticketKeys && { ticketKeys: Buffer.from(ticketKeys) }) };
}

/** Throws if key and certificate do not match. */
export function checkTls(tls: TlsSettings): void {
  createSecureContext(tlsOptions(tls));
}

/** Threads share an address by SO_REUSEPORT, where the kernel distributes connections, and a socket by descriptors. */
async function toListen(entry: ListenEntry): Promise<object> {
  if ('fd' in entry) return entry.shared ? duplicateSocket(entry.fd) : { fd: entry.fd };
  return { host: entry.host, port: entry.port, reusePort: entry.shared === true };
}

function addressOf(server: NetServer): { readonly address: string; readonly port: number } {
  const address = server.address();
  if (address === null) return { address: '', port: 0 };
  return typeof address === 'string' ? { address, port: 0 } : { address: address.address, port: address.port };
}

/** The longest timer that Node allows: deadlines.ts has the timeouts, and checks all sessions at once. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
/** Bytes of a command line. RFC 5321 section 4.5.3.1.4 requires 512; SMTPUTF8 and parameters need some more. */
const MAX_LINE = 2048;

/** How long a client may take to read that its session has yielded to another. Milliseconds. */
const EVICTION_MS = 2000;

/** One listening socket. */
class Server extends SMTPServer {
  readonly #shared: Shared;
  readonly #onSocket: (socket: Socket, connect: Connect) => void;
  readonly #connections: WeakMap<SMTPServerSession, Connection>;

  constructor(name: string, shared: Shared, onSocket: (socket: Socket, connect: Connect) => void) {
    const connections = new WeakMap<SMTPServerSession, Connection>();
    super({
      name,
      logger: false,
      secure: shared.implicitTls,
      needsUpgrade: shared.implicitTls, // within the session, so that its deadlines apply
      socketTimeout: NO_TIMEOUT_MS,
      // A client may close its side after its last command and still wait for the replies.
      allowHalfOpen: true,
      noDelay: true,
      onSecure(socket, session, done) {
        connections.get(session)?.secured(socket);
        done();
      },
      onClose: (session) => connections.get(session)?.closed(),
    });
    this.#shared = shared;
    this.#onSocket = onSocket;
    this.#connections = connections;
  }

  /** The library would create a connection for every socket. */
  override connect(socket: Socket): void {
    this.#onSocket(socket, (session, leave) => {
      const connection = new Connection(this, socket, session, this.#shared, leave);
      this.#connections.set(connection.session, connection);
      return connection;
    });
  }
}

/** One connection: passes lines and bytes between the socket and the session. */
export class Connection extends SMTPConnection {
  readonly #own: Session;
  readonly #shared: Shared;
  readonly #leave: () => void;
  #socket: Socket;
  #handshaking = false;
  #closing = false;
  #held: string | undefined;

  constructor(server: SMTPServer, socket: Socket, session: Session, shared: Shared, leave: () => void) {
    super(server, socket);
    this.#socket = socket;
    this.#own = session;
    this.#shared = shared;
    this.#leave = leave;
    this.#watch(socket);
    // A broken connection or handshake is not a fault of Postern: it is noted in the session's log line.
    this.on('error', () => this.close());
  }

  /** Sends the greeting at once, or after the handshake with implicit TLS. */
  override init(): void {
    this._setListeners(() => this.#say(greeting(this.name)));
  }

  /** Runs a command line from this parser. */
  obey(line: Buffer, next: () => void, input: ParserStream): void {
    // Plaintext after STARTTLS is discarded.
    if (this.#handshaking) return next();
    const answer = this.#own.command(line.toString());
    if (!(answer instanceof Promise)) return this.#answer(answer, next, input);
    answer.then((later) => this.#answer(later, next, input)).catch((error: unknown) => this.#fail(error));
  }

  /** Passes bytes of DATA to the session; `next` gets the bytes after the message, or nothing while it continues. */
  take(chunk: Buffer, input: ParserStream, next: (rest?: Buffer) => void): void {
    this.#own
      .data(chunk)
      .then(({ answer, rest }) => {
        if (!answer) return next();
        input.endData();
        this.#answer(answer, () => next(rest), input);
      })
      .catch((error: unknown) => this.#fail(error));
  }

  /** Holds replies back until `release`: one string costs less than a corked socket, which would write a list. */
  hold(): void {
    this.#held ??= '';
  }

  /** Sends the held replies: at most those to one chunk, and `#whenWritable` then waits until they are sent. */
  release(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held && this.#socket.writable) this.#socket.write(held, 'latin1');
  }

  /** Notes bytes received in command mode. */
  received(chunk: Buffer): void {
    this.#own.deadlines.received(chunk, this.#shared.clock.monotonic());
  }

  /** Ends the session with a last reply. */
  finish(reply: Reply): void {
    this.#own.finishing(reply);
    this.#say(reply);
    this.close();
  }

  /** Closes the socket once all replies are sent. */
  leave(): void {
    this.#socket.destroySoon();
  }

  /** Ends the session in favour of another client; its socket does not linger. */
  evict(): void {
    if (this.#closing) return this.cut();
    this.finish(REFUSALS.crowded);
    const cancel = this.#shared.clock.after(EVICTION_MS, () => this.cut());
    this.#socket.once('close', cancel);
  }

  /** Closes the socket at once, and discards unsent replies. */
  cut(): void {
    this.#socket.destroy();
  }

  /** Ends the session when one of its deadlines has passed. */
  keepDeadlines(now: number): void {
    const late = this.#closing ? undefined : this.#own.overdue(now);
    if (late) this.finish(late);
  }

  inData(): boolean {
    return !this.#closing && this.#own.deadlines.inData();
  }

  /** Notes the end of the TLS handshake, and switches to the TLS socket. */
  secured(socket: Socket): void {
    this.#handshaking = false;
    this.#socket = socket;
    this.#watch(socket);
    socket.allowHalfOpen = true;
    this.#own.secured(socket instanceof TLSSocket ? socket.getProtocol() : null);
  }

  /** Called when the socket is closed. */
  closed(): void {
    this.#closing = true;
    this.#own.ended();
    this.#leave();
  }

  override upgrade(next: () => void, then?: () => void): void {
    this.#handshaking = true;
    this.#own.deadlines.handshake(this.#shared.clock.monotonic());
    // The 220 must be sent before TLS takes over the socket.
    this.release();
    // Nothing reads from the TLS socket before the handshake ends: a client that closes its side then would stay.
    this.#socket.allowHalfOpen = false;
    super.upgrade(next, then);
  }

  /** Ends the session at once, though its socket may linger until the client has read the last reply. */
  override close(): void {
    if (this.#handshaking) this.#own.ending('TLS handshake failed');
    this.#closing = true;
    this.release();
    super.close();
    this.#own.ended();
  }

  override _createParser(): SMTPStream {
    const parser = new ParserStream(this);
    // The library reports a line that is too long as a stream error, which ends the stream.
    parser.on('error', () => this.finish(REFUSALS.lineTooLong));
    // The client has closed its side, and all that it sent is answered.
    parser.on('finish', () => this.close());
    return parser;
  }

  #answer({ reply, then, delayMs = 0 }: CommandAnswer, next: () => void, input: ParserStream): void {
    // Too late: the session ended while the command waited for another part.
    if (this.#closing) return next();
    if (delayMs > 0) return this.#answerLater({ reply, then }, delayMs, next, input);
    this.#say(reply);
    if (then === 'tls') return this.upgrade(next);
    if (then === 'data') input.beginData();
    else if (then === 'close') this.close();
    else if (this.#shared.stopping()) {
      this.finish(REFUSALS.shutdown);
      this.#shared.settled();
    }
    this.#whenWritable(next);
  }

  #answerLater(answer: CommandAnswer, delayMs: number, next: () => void, input: ParserStream): void {
    const { clock } = this.#shared;
    const { deadlines } = this.#own;
    deadlines.pause();
    this.release();
    clock.after(delayMs, () => {
      deadlines.resume(clock.monotonic());
      this.#answer(answer, next, input);
    });
  }

  /** Writes nothing during a handshake, where plaintext would corrupt it. */
  #say(reply: Reply): void {
    if (this.#handshaking || !this.#socket.writable) return;
    if (this.#held === undefined) this.#socket.write(reply.line, 'latin1');
    else this.#held += reply.line;
  }

  /** Reads no more commands from a client that does not read its replies. */
  #whenWritable(next: () => void): void {
    if (this.#socket.writableNeedDrain && !this.#socket.destroyed) this.#socket.once('drain', next);
    else next();
  }

  #fail(error: unknown): void {
    this.#shared.fault(error);
    this.finish(REFUSALS.fault);
  }

  #watch(socket: Socket): void {
    socket.on('error', ({ code }: NodeJS.ErrnoException) => this.#own.ending(code ?? 'disconnect'));
  }
}

/** The parser of one connection: the library parses command lines, Postern parses DATA. */
class ParserStream extends SMTPStream {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    super({ maxCommandLength: MAX_LINE });
    this.#connection = connection;
  }

  /** The bytes of a message follow. */
  beginData(): void {
    this._dataMode = true;
  }

  endData(): void {
    this._dataMode = false;
  }

  override oncommand(line: Buffer, next: () => void = ignore): void {
    this.#connection.obey(line, next, this);
  }

  override _write(chunk: Buffer, encoding: BufferEncoding | 'buffer', next: (error?: Error | null) => void): void {
    if (this.isClosed || chunk.length === 0) return next();
    const connection = this.#connection;
    if (this._dataMode)
      return connection.take(chunk, this, (rest) => (rest ? this._write(rest, 'buffer', next) : next()));
    connection.received(chunk);
    // Pipelined commands are answered together, even if one of them waits for another thread.
    if (chunk.indexOf(10) < chunk.length - 1) connection.hold();
    super._write(chunk, encoding, (error) => {
      connection.release();
      next(error);
    });
  }

  /** Discards an unfinished line at the end of the input: a closed parser does not run it. */
  override _final(done: () => void): void {
    this.isClosed = true;
    done();
  }
}

function ignore() {}
