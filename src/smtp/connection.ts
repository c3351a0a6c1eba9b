import type { Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { SMTPServer } from 'smtp-server';
import { SMTPConnection } from 'smtp-server/lib/smtp-connection.js';
import { SMTPStream } from 'smtp-server/lib/smtp-stream.js';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import { MAX_LINE, notePulse, overdue } from './limits.ts';
import { greeting, REFUSALS, type Reply } from './refusal.ts';
import type { Session } from './session.ts';
import type { ListenerSettings, TlsSettings } from './settings.ts';
import type { Answer } from './verbs.ts';

/**
 * This file and input.ts are the two that know smtp-server. Of it we use the connection: lines out of bytes with backpressure,
 * STARTTLS with everything that arrived in plaintext thrown away, and the closing of sockets. What is answered, and everything
 * about the bytes of a message, is ours (session.ts), because the library rewrites addresses, derives enhanced codes from the
 * number alone, answers errors without a code by a permanent 550, and lets bare line ends through.
 *
 * `override` makes the compiler say so when an update of the library renames what we stand on; its version is pinned.
 */

/** What a connection shares with all others. */
export interface Shared {
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

/** One connection: moves lines and bytes between the socket and the session. */
export class Connection extends SMTPConnection {
  readonly own: Session;
  readonly #shared: Shared;
  readonly #leave: () => void;
  #held: string | undefined;

  constructor(server: SMTPServer, socket: Socket, session: Session, shared: Shared, leave: () => void) {
    super(server, socket);
    this.own = session;
    this.#shared = shared;
    this.#leave = leave;
  }

  /** Greets at once. The library waits 100 ms for early talkers, and once more for a name of the client. */
  override init(): void {
    const greet = () => this.#say(greeting(this.name));
    this._setListeners(() => (this.#shared.implicitTls ? this.#startTls(ignore, greet) : greet()));
  }

  obey(line: Buffer, next: () => void): void {
    // What stood behind STARTTLS in plaintext is nobody's command.
    if (this._upgrading) return next();
    const answer = this.own.command(line.toString());
    if (!(answer instanceof Promise)) return this.answer(answer, next);
    answer.then((later) => this.answer(later, next)).catch((error: unknown) => this.fail(error));
  }

  answer({ reply, then, delayMs = 0 }: Answer, next: () => void): void {
    if (delayMs > 0) return this.#answerLater({ reply, then }, delayMs, next);
    this.#say(reply);
    if (then === 'tls') return this.#startTls(next);
    if (then === 'data' && this._parser) this._parser._dataMode = true;
    else if (then === 'close') this.close();
    else if (this.#shared.stopping()) {
      this.finish(REFUSALS.shutdown);
      this.#shared.settled();
    }
    this._whenWritable(next);
  }

  /** Keeps replies back until `release`: one text costs less than a corked socket, which would hand over a list of them. */
  hold(): void {
    this.#held ??= '';
  }

  /** Sends what was kept back; never more than answers one chunk, and the next chunk waits until it is gone. */
  release(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held && this._socket.writable) this._socket.write(held, 'latin1');
  }

  noteBytes(chunk: Buffer): void {
    notePulse(this.own.pulse, chunk, this.#shared.clock.monotonic());
  }

  /** Ends the session from our side. */
  finish(reply: Reply): void {
    this.#shared.refused(reply);
    this.own.ending(reply.line.trimEnd());
    this.#say(reply);
    this.close();
  }

  /** Ends the connection for good, once what was said is sent. */
  leave(): void {
    this._socket.destroySoon();
  }

  /** Ends the connection, whatever of it is still to be sent. */
  cut(): void {
    this._socket.destroy();
  }

  /** Ends the session when one of its deadlines has passed. */
  keepDeadlines(now: number, settings: ListenerSettings): void {
    const late = this._closing ? undefined : overdue(this.own.pulse, now, settings);
    if (late) this.finish(late);
  }

  inData(): boolean {
    return !this._closing && this.own.pulse.data !== undefined;
  }

  fail(error: unknown): void {
    this.#shared.fault(error);
    this.finish(REFUSALS.fault);
  }

  override _createParser(): SMTPStream {
    const parser = new Input(this);
    // The library refuses a line that is too long by an error of the stream, which ends it.
    parser.on('error', () => this.finish(REFUSALS.lineTooLong));
    // The client has ended its side, and all that it sent is answered.
    parser.on('finish', () => this.close());
    return parser;
  }

  /** Deadlines are kept by limits.ts for all sessions at once. */
  override _armTimeout(): void {}

  /** The session is over when we end it, though its socket may linger until the client has read the last reply. */
  override close(): void {
    this.release();
    super.close();
    this.own.ended();
  }

  /** A broken connection or handshake is the client's affair: it stands in the session's line. */
  override _onError(error: Error & { code?: string | undefined }): void {
    this.own.ending(this._upgrading ? 'TLS handshake failed' : (error.code ?? 'disconnect'));
    this.close();
  }

  override _onClose(): void {
    const first = !this._closed;
    super._onClose();
    if (!first) return;
    this.own.ended();
    this.#leave();
  }

  #answerLater(answer: Answer, delayMs: number, next: () => void): void {
    this.own.pulse.busy = true;
    this.#shared.clock.after(delayMs, () => {
      this.own.pulse.busy = false;
      this.answer(answer, next);
    });
  }

  #startTls(next: () => void, then: () => void = ignore): void {
    // A handshake may take as long as a command line.
    this.own.pulse.lineSince = this.#shared.clock.monotonic();
    // The socket is about to belong to TLS: its 220 has to be gone.
    this.release();
    // Nobody reads from the TLS socket before the handshake is done: a client that ends its side then would stay for ever.
    this._socket.allowHalfOpen = false;
    this.upgrade(next, () => {
      this.#secured();
      then();
    });
  }

  #secured(): void {
    this._socket.allowHalfOpen = true;
    this.own.secured(this._socket instanceof TLSSocket ? this._socket.getProtocol() : null);
  }

  /** During a handshake nothing may be written: it would be plaintext in the middle of it. */
  #say(reply: Reply): void {
    if (this._upgrading || !this._socket.writable) return;
    if (this.#held === undefined) this._socket.write(reply.line, 'latin1');
    else this.#held += reply.line;
  }
}

/** Makes connections of sockets. */
export interface Connector {
  /** `leave` is called when the connection is gone. */
  connect(socket: Socket, session: Session, leave: () => void): Connection;
  /** Handshakes from now on get this certificate. Throws when key and certificate do not belong together. */
  useTls(tls: TlsSettings): void;
}

export function createConnector(hostname: string, shared: Shared): Connector {
  const library = new SMTPServer({ name: hostname, logger: false });
  return frozen({
    connect: (socket, session, leave) => new Connection(library, socket, session, shared, leave),
    useTls({ cert, key, minVersion }) {
      library.secureContext.set('*', createSecureContext({ cert, key, minVersion }));
    },
  });
}

function ignore() {}

/** The parser of one connection: command lines by the library, DATA by us. */
export class Input extends SMTPStream {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    super({ maxCommandLength: MAX_LINE });
    this.#connection = connection;
  }

  override oncommand(line: Buffer, next: () => void = ignore): void {
    this.#connection.obey(line, next);
  }

  override _write(chunk: Buffer, encoding: BufferEncoding | 'buffer', next: (error?: Error | null) => void): void {
    if (this.isClosed || chunk.length === 0) return next();
    if (this._dataMode) return this.#takeData(chunk, next);
    this.#connection.noteBytes(chunk);
    // Commands that come together are answered together.
    if (chunk.indexOf(10) < chunk.length - 1) this.#connection.hold();
    super._write(chunk, encoding, next);
    this.#connection.release();
  }

  /** An unfinished line at the end of the input is no command. */
  override _flushData(): void {}

  #takeData(chunk: Buffer, next: (error?: Error | null) => void): void {
    const connection = this.#connection;
    connection.own
      .data(chunk)
      .then(({ answer, rest }) => {
        if (!answer) return next();
        this._dataMode = false;
        this._remainder = '';
        connection.answer(answer, () => this._write(rest, 'buffer', next));
      })
      .catch((error: unknown) => connection.fail(error));
  }
}
