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
import type { Answer } from './verbs.ts';

/**
 * The one file that knows smtp-server. The library listens, turns bytes into command lines with backpressure, upgrades
 * to TLS with everything that arrived in plaintext thrown away, and closes sockets. What is answered, and everything
 * about the bytes of a message, is ours (session.ts): the library rewrites addresses, derives enhanced codes from the
 * number alone, answers errors without a code by a permanent 550, and lets bare line ends through.
 *
 * It is used by its options (`secure` with `needsUpgrade`, `socketTimeout`, `onSecure`, `onClose`), its events, and
 * methods and fields that it publishes. Three private members have no public counterpart:
 *
 * - `_setListeners`: the public `init` greets after 100 ms, and after a reverse look-up or its `onConnect`.
 * - `_createParser`: the only place where a parser of one's own can be put in. DATA needs one: what `onData` is handed
 *   has lost its bare line ends already.
 * - `_dataMode`: ends the parser's command mode within a chunk; the public `startDataMode` has no way back but its own
 *   end.
 *
 * `override` and the library's own types make the compiler say so when an update renames one; its version is pinned.
 */

/** The sockets that a listener listens on. */
interface Servers {
  /** Opens all of them, or none. */
  open(): Promise<void>;
  /** Takes no more connections; resolves when those that were taken are gone. */
  close(): Promise<void>;
  addresses(): { readonly address: string; readonly port: number }[];
  listening(): boolean;
  /** Handshakes from now on get this certificate. Throws when key and certificate do not belong together. */
  useTls(tls: TlsSettings): void;
}

/** Makes a connection of a socket that was let in; `leave` is called when the connection is gone. */
type Connect = (session: Session, leave: () => void) => Connection;

/** What all connections of a listener share. */
interface Shared {
  readonly clock: Clock;
  /** The handshake comes before the greeting (RFC 8314 section 3.3). */
  readonly implicitTls: boolean;
  stopping(): boolean;
  /** Something ended that a stop may be waiting for. */
  settled(): void;
  /** We end a session of our own accord. */
  refused(reply: Reply): void;
  fault(error: unknown): void;
}

/** `onSocket` gets every socket that comes in, and decides whether it becomes a connection. */
export function createServers(
  { hostname, listen }: { readonly hostname: string; readonly listen: readonly ListenEntry[] },
  { shared, log }: { readonly shared: Shared; readonly log: Log },
  onSocket: (socket: Socket, connect: Connect) => void,
): Servers {
  const servers = listen.map((entry) => ({ entry, library: new Server(hostname, shared, onSocket) }));

  async function open({ entry, library }: (typeof servers)[number]): Promise<void> {
    library.on('error', (fault) => {
      // What keeps it from listening is thrown.
      if (library.server.listening) log.error('smtp.fault', { fault });
    });
    await once(library.listen(await toListen(entry)), 'listening');
  }

  async function close(): Promise<void> {
    await Promise.all(servers.map(({ library }) => new Promise<void>((closed) => library.close(closed))));
  }

  return frozen({
    async open() {
      const opened = await Promise.allSettled(servers.map(open));
      const failed = opened.find((one) => one.status === 'rejected');
      if (!failed) return;
      await close();
      throw failed.reason;
    },
    close,
    addresses: () => servers.map(({ library }) => placeOf(library.server)),
    listening: () => servers.length > 0 && servers.every(({ library }) => library.server.listening),
    useTls(tls) {
      const context = tlsOptions(tls);
      createSecureContext(context); // throws before the library forgets the old one
      for (const { library } of servers) library.updateSecureContext(context);
    },
  });
}

function tlsOptions({ cert, key, minVersion, ticketKeys }: TlsSettings) {
  return { cert, key, minVersion, ...(ticketKeys && { ticketKeys: Buffer.from(ticketKeys) }) };
}

/** Throws when key and certificate do not belong together. */
export function checkTls(tls: TlsSettings): void {
  createSecureContext(tlsOptions(tls));
}

/** Threads share an address by the kernel, which deals connections out, and a socket by a descriptor each. */
async function toListen(entry: ListenEntry): Promise<object> {
  if ('fd' in entry) return entry.shared ? duplicateSocket(entry.fd) : { fd: entry.fd };
  return { host: entry.host, port: entry.port, reusePort: entry.shared === true };
}

function placeOf(server: NetServer): { readonly address: string; readonly port: number } {
  const place = server.address();
  if (place === null) return { address: '', port: 0 };
  return typeof place === 'string' ? { address: place, port: 0 } : { address: place.address, port: place.port };
}

/** Deadlines are ours (deadlines.ts), for all sessions at once: the longest that a timer of Node's can be. */
const NO_TIMEOUT_MS = 2 ** 31 - 1;
/** Bytes of a command line. RFC 5321 section 4.5.3.1.4 asks for 512, SMTPUTF8 and parameters for some more. */
const MAX_LINE = 2048;

/** One socket that listens. */
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
      needsUpgrade: shared.implicitTls, // within the session, whose deadlines hold for the handshake
      socketTimeout: NO_TIMEOUT_MS,
      // A client may end its side behind its last command and still wait for the answers.
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

  /** The library would make a connection of every socket. */
  override connect(socket: Socket): void {
    this.#onSocket(socket, (session, leave) => {
      const connection = new Connection(this, socket, session, this.#shared, leave);
      this.#connections.set(connection.session, connection);
      return connection;
    });
  }
}

/** One connection: moves lines and bytes between the socket and the session. */
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
    // A broken connection or handshake is the client's affair: it stands in the session's line.
    this.on('error', () => this.close());
  }

  /** Greets at once, or after the handshake where that comes first. */
  override init(): void {
    this._setListeners(() => this.#say(greeting(this.name)));
  }

  /** Obeys a command line that came by this parser. */
  obey(line: Buffer, next: () => void, input: Input): void {
    // What stood behind STARTTLS in plaintext is nobody's command.
    if (this.#handshaking) return next();
    const answer = this.#own.command(line.toString());
    if (!(answer instanceof Promise)) return this.#answer(answer, next, input);
    answer.then((later) => this.#answer(later, next, input)).catch((error: unknown) => this.#fail(error));
  }

  /** Hands bytes of DATA to the session; `next` gets those behind the message, or nothing while it goes on. */
  take(chunk: Buffer, input: Input, next: (rest?: Buffer) => void): void {
    this.#own
      .data(chunk)
      .then(({ answer, rest }) => {
        if (!answer) return next();
        input.endData();
        this.#answer(answer, () => next(rest), input);
      })
      .catch((error: unknown) => this.#fail(error));
  }

  /**
   * Keeps replies back until `release`: one text costs less than a corked socket, which would hand over a list of them.
   */
  hold(): void {
    this.#held ??= '';
  }

  /** Sends what was kept back; never more than answers one chunk, and the next chunk waits until it is gone. */
  release(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held && this.#socket.writable) this.#socket.write(held, 'latin1');
  }

  /** Bytes came in command mode. */
  received(chunk: Buffer): void {
    this.#own.deadlines.received(chunk, this.#shared.clock.monotonic());
  }

  /** Ends the session from our side. */
  finish(reply: Reply): void {
    this.#shared.refused(reply);
    this.#own.ending(reply.line.trimEnd());
    this.#say(reply);
    this.close();
  }

  /** Ends the connection for good, once what was said is sent. */
  leave(): void {
    this.#socket.destroySoon();
  }

  /** Ends the connection, whatever of it is still to be sent. */
  cut(): void {
    this.#socket.destroy();
  }

  /** Ends the session when one of its deadlines has passed. */
  keepDeadlines(now: number): void {
    const late = this.#closing ? undefined : this.#own.deadlines.overdue(now);
    if (late) this.finish(late);
  }

  inData(): boolean {
    return !this.#closing && this.#own.deadlines.inData();
  }

  /** The handshake is done: from here on the connection is this socket. */
  secured(socket: Socket): void {
    this.#handshaking = false;
    this.#socket = socket;
    this.#watch(socket);
    socket.allowHalfOpen = true;
    this.#own.secured(socket instanceof TLSSocket ? socket.getProtocol() : null);
  }

  /** The socket is gone. */
  closed(): void {
    this.#closing = true;
    this.#own.ended();
    this.#leave();
  }

  override upgrade(next: () => void, then?: () => void): void {
    this.#handshaking = true;
    this.#own.deadlines.handshake(this.#shared.clock.monotonic());
    // The socket is about to belong to TLS: its 220 has to be gone.
    this.release();
    // Nobody reads from the TLS socket before the handshake is done: a client that ends its side then would stay for
    // ever.
    this.#socket.allowHalfOpen = false;
    super.upgrade(next, then);
  }

  /** The session is over when we end it, though its socket may linger until the client has read the last reply. */
  override close(): void {
    if (this.#handshaking) this.#own.ending('TLS handshake failed');
    this.#closing = true;
    this.release();
    super.close();
    this.#own.ended();
  }

  override _createParser(): SMTPStream {
    const parser = new Input(this);
    // The library refuses a line that is too long by an error of the stream, which ends it.
    parser.on('error', () => this.finish(REFUSALS.lineTooLong));
    // The client has ended its side, and all that it sent is answered.
    parser.on('finish', () => this.close());
    return parser;
  }

  #answer({ reply, then, delayMs = 0 }: Answer, next: () => void, input: Input): void {
    // It came too late: the session ended while it waited for another part.
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

  #answerLater(answer: Answer, delayMs: number, next: () => void, input: Input): void {
    const { clock } = this.#shared;
    const { deadlines } = this.#own;
    deadlines.pause();
    this.release();
    clock.after(delayMs, () => {
      deadlines.resume(clock.monotonic());
      this.#answer(answer, next, input);
    });
  }

  /** During a handshake nothing may be written: it would be plaintext in the middle of it. */
  #say(reply: Reply): void {
    if (this.#handshaking || !this.#socket.writable) return;
    if (this.#held === undefined) this.#socket.write(reply.line, 'latin1');
    else this.#held += reply.line;
  }

  /** A client that does not read its replies is not asked for more commands. */
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

/** The parser of one connection: command lines by the library, DATA by us. */
class Input extends SMTPStream {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    super({ maxCommandLength: MAX_LINE });
    this.#connection = connection;
  }

  /** The bytes of a message come next. */
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
    // Commands that come together are answered together, even if one of them waits for another thread.
    if (chunk.indexOf(10) < chunk.length - 1) connection.hold();
    super._write(chunk, encoding, (error) => {
      connection.release();
      next(error);
    });
  }

  /** An unfinished line at the end of the input is no command: a closed parser leaves it alone. */
  override _final(done: () => void): void {
    this.isClosed = true;
    done();
  }
}

function ignore() {}
