import type { Socket } from 'node:net';
import { createSecureContext, TLSSocket } from 'node:tls';
import { SMTPServer } from 'smtp-server';
import { SMTPConnection } from 'smtp-server/lib/smtp-connection.js';
import { SMTPStream } from 'smtp-server/lib/smtp-stream.js';
import type { Clock } from '../base/clock.ts';
import type { Service } from '../base/service.ts';
import { createDoor } from './door.ts';
import { MAX_LINE, notePulse, overdue } from './limits.ts';
import { createInbound } from './inbound.ts';
import { createMeters } from './meters.ts';
import { createPorts } from './ports.ts';
import { greeting, REFUSALS, type Reply } from './refusal.ts';
import { createSession, type Session } from './session.ts';
import type { ListenerDeps, ListenerSettings, TlsSettings } from './settings.ts';
import type { Side } from './side.ts';
import type { Answer } from './verbs.ts';

/**
 * The one file that knows smtp-server. Of it we use the connection: lines out of bytes with backpressure, STARTTLS with
 * everything that arrived in plaintext thrown away, and the closing of sockets. What is answered, and everything about
 * the bytes of a message, is ours (session.ts), because the library rewrites addresses, derives enhanced codes from the
 * number alone, answers errors without a code by a permanent 550, and lets bare line ends through.
 *
 * `override` makes the compiler say so when an update of the library renames what we stand on; its version is pinned.
 */

/** What a connection shares with all others. */
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

/** The parser of one connection: command lines by the library, DATA by us. */
class Input extends SMTPStream {
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
    connection.own.data(chunk).then(({ answer, rest }) => {
      if (!answer) return next();
      this._dataMode = false;
      this._remainder = '';
      connection.answer(answer, () => this._write(rest, 'buffer', next));
    }).catch((error: unknown) => connection.fail(error));
  }
}

/** One connection: moves lines and bytes between the socket and the session. */
class Connection extends SMTPConnection {
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
    this._setListeners(() => this.#shared.implicitTls ? this.#startTls(ignore, greet) : greet());
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
    this.own.ending(this._upgrading ? 'TLS handshake failed' : error.code ?? 'disconnect');
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
    this.upgrade(next, () => { this.#secured(); then(); });
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

/** The SMTP side of the daemon. */
export interface Listener extends Service {
  /** Finishes what is in DATA for at most `graceMs` (10 s), says 421 4.3.0 to everybody else, and closes. */
  stop(graceMs?: number): Promise<void>;
  addresses(): { readonly address: string; readonly port: number }[];
  /** New sessions get this certificate. Throws when key and certificate do not fit; the old ones stay. */
  reload(tls: TlsSettings | undefined): Promise<void>;
  healthy(): boolean;
}

const SWEEP_MS = 1000;
const GRACE_MS = 10_000;
const FAREWELL_MS = 1000;

/** Listens for mail that comes in. */
export function createListener(settings: ListenerSettings, deps: ListenerDeps): Listener {
  return createListenerFor(createInbound(settings, deps), settings, deps);
}

/** Listens for what the side is there for. */
export function createListenerFor(side: Side, settings: ListenerSettings, deps: Pick<ListenerDeps, 'clock' | 'log' | 'metrics'>): Listener {
  const { clock, log } = deps;
  const meters = createMeters(side.name === 'submission' && settings.implicitTls ? 'submissions' : side.name, deps.metrics);
  const library = new SMTPServer({ name: settings.hostname, logger: false });
  const open = new Set<Connection>();
  let stopping = false;
  let tls = settings.tls !== undefined;
  let wake = ignore;
  let cancelSweep = ignore;

  const shared: Shared = {
    clock,
    implicitTls: settings.implicitTls ?? false,
    stopping: () => stopping,
    settled: () => wake(),
    refused: meters.refused,
    fault: (fault) => log.error('smtp.fault', { fault }),
  };
  const door = createDoor(settings, { clock, log, meters }, (socket, address, leave) => {
    const session = createSession(settings, { clock, log, side, meters }, { address, offersTls: tls });
    const connection = new Connection(library, socket, session, shared, () => {
      leave();
      open.delete(connection);
      wake();
    });
    open.add(connection);
    connection.init();
  });
  const ports = createPorts(settings.listen, door.knock, log);

  function sweep() {
    const now = clock.monotonic();
    for (const connection of open) {
      const late = connection._closing ? undefined : overdue(connection.own.pulse, now, settings);
      if (late) connection.finish(late);
    }
    cancelSweep = clock.after(SWEEP_MS, sweep);
  }

  function until(condition: () => boolean, ms: number): Promise<void> {
    return new Promise((resolve) => {
      const cancel = clock.after(ms, resolve);
      wake = () => {
        if (!condition()) return;
        cancel();
        resolve();
      };
      wake();
    });
  }

  function sayGoodbye(to: Iterable<Connection>) {
    for (const connection of to) {
      connection.finish(REFUSALS.shutdown);
      connection.leave();
    }
  }

  function useTls(next: TlsSettings | undefined) {
    // Made before anything is changed: it throws when key and certificate do not belong together.
    if (next) library.secureContext.set('*', createSecureContext({ cert: next.cert, key: next.key, minVersion: next.minVersion }));
    tls = next !== undefined;
    meters.certificate(next?.cert);
  }

  return Object.freeze({
    async start() {
      useTls(settings.tls);
      await ports.open();
      door.open();
      sweep();
    },
    async stop(graceMs = GRACE_MS) {
      stopping = true;
      door.close();
      const closed = ports.close();
      sayGoodbye([...open].filter((connection) => !inData(connection)));
      await until(() => ![...open].some(inData), graceMs);
      sayGoodbye([...open]);
      await until(() => open.size === 0, FAREWELL_MS);
      for (const connection of open) connection._socket.destroy();
      cancelSweep();
      await closed;
    },
    addresses: ports.addresses,
    async reload(next: TlsSettings | undefined) {
      useTls(next);
      log.info('smtp.tls_reloaded', { offered: tls });
    },
    healthy: () => !stopping && ports.listening(),
  });
}

function inData(connection: Connection): boolean {
  return !connection._closing && connection.own.pulse.data !== undefined;
}

function ignore() {}
