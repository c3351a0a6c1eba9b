import { isIP, type LookupFunction, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { TLSSocket } from 'node:tls';
import { buildConnector, Client, type Dispatcher } from 'undici';
import { truncate } from '../../base/characters.ts';
import { frozen } from '../../base/frozen.ts';
import { withPort } from '../../base/networks.ts';
import { namesIn } from '../../base/tables.ts';
import type { AttemptError } from '../../queue/settle.ts';
import { type AnswerReading, MAX_HEAD_BYTES, readHeads } from './answer-head.ts';
import type { FileBody } from './file-body.ts';
import type { AttemptNotes, OpenedConnection, Request } from './notes.ts';
import { tlsCause } from './tls-faults.ts';

/** The outcome of one request on one connection. */
export type WireEnding =
  | { readonly kind: 'answered'; readonly status: number; readonly retryAfter: string | null; readonly answer: string }
  | ({ readonly kind: 'unanswered'; readonly connected: boolean } & Failure);

/** Why there was no answer. */
export interface Failure {
  readonly error: AttemptError;
  /** The details, as text. */
  readonly cause?: string | undefined;
}

/** One undici connection, for one request at a time, opened on first use. */
export interface Wire {
  /** `file` reads the body if that is a file. */
  dispatch(request: Request, file: FileBody | undefined, handler: Handler): void;
  /** Whether everything written has been passed to the kernel. */
  sent(): boolean;
  /** The status in the first line of the response, which may be incomplete. */
  status(): number | undefined;
  /** Undefined until it is open. */
  opened(): OpenedConnection | undefined;
  /** Closes it immediately, even during a request. */
  destroy(): void;
}

/** undici's callbacks for one response; `expire` ends the request at its deadline. */
interface Handler extends Dispatcher.DispatchHandler {
  expire(): void;
}

/**
 * Connects only to the checked addresses, even if DNS has changed since. SNI, certificate check and Host header use the
 * name.
 */
export function connectorTo(addresses: readonly string[], timeout: number): buildConnector.connector {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  const lookup: LookupFunction = (_hostname, options, callback) => {
    const [first] = found;
    if (options.all) callback(null, found);
    else callback(null, first?.address ?? '', first?.family);
  };
  // Try the next address after half a second (RFC 8305), so that broken IPv6 does not fail the attempt.
  return buildConnector({
    allowH2: false,
    timeout,
    lookup,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: 500,
  });
}

/** `now` is a steady clock. */
export function openWire(
  origin: string,
  connect: buildConnector.connector,
  now: () => number,
  onClose: (wire: Wire) => void,
): Wire {
  let socket: Socket | undefined;
  let opened: OpenedConnection | undefined;
  let answers: AnswerReading | undefined;
  const client = new Client(origin, {
    connect(options, callback) {
      const began = now();
      let connected: number | undefined;
      // undici returns the socket, which its type does not say.
      const opening: unknown = connect(options, (...made) => {
        socket = made[1] ?? undefined;
        opened = socket && toOpened(socket, began, connected, now());
        answers = socket && readHeads(socket);
        callback(...made);
      });
      if (opening instanceof TLSSocket) {
        opening.once('connect', () => {
          connected = now();
        });
      }
    },
    allowH2: false,
    pipelining: 1,
    maxHeaderSize: MAX_HEAD_BYTES,
    // Disabled: the deadline of the attempt covers both.
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: 4000,
    keepAliveMaxTimeout: 60_000,
  });
  const wire: Wire = {
    dispatch(request, file, handler) {
      answers?.expect();
      client.dispatch(toOptions(request, file), handler);
    },
    sent: () => socket?.writableLength === 0,
    status: () => answers?.status(),
    opened: () => opened,
    destroy() {
      client.destroy().catch(() => {});
    },
  };
  client.on('disconnect', () => onClose(wire));
  return wire;
}

/** `connected`: when TLS began. */
function toOpened(socket: Socket, began: number, connected: number | undefined, now: number): OpenedConnection {
  return {
    address: withPort(socket.remoteAddress ?? '', socket.remotePort ?? 0),
    tls: socket instanceof TLSSocket ? (socket.getProtocol() ?? undefined) : undefined,
    connectMs: (connected ?? now) - began,
    tlsMs: connected === undefined ? undefined : now - connected,
  };
}

function toOptions({ method, path, headers, body }: Request, file: FileBody | undefined): Dispatcher.DispatchOptions {
  if (body?.kind === 'file')
    return {
      method,
      path,
      headers: { ...headers, 'content-length': String(body.size) },
      body: file ? toUndici(file.chunks) : null,
    };
  return { method, path, headers, body: body?.bytes ?? null };
}

function toUndici(chunks: AsyncIterable<Uint8Array>): Readable {
  // biome-ignore lint/plugin: undici accepts any async iterable, but its types do not say so
  return chunks as unknown as Readable;
}

/**
 * Collects one response. For undici's `dispatch` rather than `request`: it creates no stream per response, and reading
 * can stop at an exact limit.
 */
export function createHandler(
  secure: boolean,
  notes: AttemptNotes,
  firstLine: () => number | undefined,
  finish: (ending: WireEnding, reusable: boolean) => void,
): Handler {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let connected = false;
  let ended = false;
  let status: number | undefined;
  let retryAfter: string | null = null;

  const end = (failure: () => Failure, reusable: boolean): void => {
    if (ended) return;
    ended = true;
    // The status decides; a response body that is truncated, slow or endless does not change the outcome.
    if (status !== undefined)
      return finish({ kind: 'answered', status, retryAfter, answer: toAnswerText(chunks) }, reusable);
    const failed = failure();
    const said = firstLine();
    // Success does not depend on missing fields (RFC 9112 section 8).
    if (failed.error === 'connection reset' && said !== undefined && said >= 200 && said < 300)
      finish({ kind: 'answered', status: said, retryAfter, answer: '' }, false);
    else finish({ kind: 'unanswered', connected, ...failed }, false);
  };

  return {
    expire: () => end(() => ({ error: 'timeout' }), false),
    onRequestStart() {
      connected = true;
      notes.sentAt = notes.now();
    },
    onResponseStarted() {
      notes.firstByte ??= notes.now();
    },
    onResponseStart(
      _controller: unknown,
      code: number,
      headers: Readonly<Record<string, string | string[] | undefined>>,
    ) {
      if (code < 200) return;
      status = code;
      notes.response = headers;
      const value = headers['retry-after'];
      retryAfter = (Array.isArray(value) ? value[0] : value) ?? null;
    },
    onResponseData(_controller: unknown, chunk: Buffer) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= ANSWER_BYTES) end(() => ({ error: 'malformed answer' }), false);
    },
    onResponseEnd() {
      end(() => ({ error: 'malformed answer' }), true);
    },
    onResponseError(_controller: unknown, error: unknown) {
      end(() => toFailure(error, { connected, secure }), false);
    },
  };
}

/** Maximum number of response bytes to read; the connection is closed at this limit. */
const ANSWER_BYTES = 16 * 1024;
/** Maximum number of its characters kept in the history. */
const ANSWER_CHARACTERS = 512;

const UNPRINTABLE = /[\p{Cc}\p{Cf}\u2028\u2029]/gu;

/** The start of a response as text for the history: no control or bidi characters, white space as single spaces. */
function toAnswerText(chunks: readonly Uint8Array[]): string {
  if (chunks.length === 0) return '';
  // A character has at most four bytes.
  const [first] = chunks;
  const whole =
    chunks.length === 1 && first
      ? Buffer.from(first.buffer, first.byteOffset, first.byteLength)
      : Buffer.concat(chunks);
  const bytes = whole.subarray(0, 4 * ANSWER_CHARACTERS);
  const text = bytes.toString('utf8').replace(/\s+/g, ' ').replace(UNPRINTABLE, '\ufffd').trim();
  return truncate(text, ANSWER_CHARACTERS);
}

/** The state of an attempt when it failed. */
interface Progress {
  /** True once the request was being sent; false while connecting. */
  readonly connected: boolean;
  readonly secure: boolean;
}

const UNREACHABLE = namesIn(
  'ENETUNREACH EHOSTUNREACH ETIMEDOUT EADDRNOTAVAIL ENETDOWN EHOSTDOWN EMFILE ENFILE EACCES EPERM EINVAL',
);
const TIMEOUTS = namesIn('UND_ERR_CONNECT_TIMEOUT UND_ERR_HEADERS_TIMEOUT UND_ERR_BODY_TIMEOUT');
const MALFORMED = namesIn('UND_ERR_HEADERS_OVERFLOW UND_ERR_RES_CONTENT_LENGTH_MISMATCH UND_ERR_RES_EXCEEDED_MAX_SIZE');
const CUT = namesIn('ECONNRESET EPIPE UND_ERR_SOCKET UND_ERR_CLOSED UND_ERR_DESTROYED');

/** Maps an error to the terms shown to users, who never see the error texts of libraries. */
function toFailure(error: unknown, progress: Progress): Failure {
  const code = codeOf(error);
  const term = toAttemptError(code, progress);
  const cause = term === 'TLS failure' ? tlsCause(error, code) : undefined;
  return { error: term, ...(cause && { cause }) };
}

function toAttemptError(code: string, { connected, secure }: Progress): AttemptError {
  if (TIMEOUTS.has(code)) return 'timeout';
  if (connected) return MALFORMED.has(code) || code.startsWith('HPE_') ? 'malformed answer' : 'connection reset';
  if (code === 'ECONNREFUSED') return 'connection refused';
  if (UNREACHABLE.has(code)) return 'connection failed';
  // The connection ended during the TLS handshake: the server does not speak TLS, or rejected ours.
  if (secure) return 'TLS failure';
  return CUT.has(code) ? 'connection reset' : 'connection failed';
}

/** The code of an error. If several addresses failed, their common code; if the codes differ, EHOSTUNREACH. */
function codeOf(error: unknown): string {
  if (error instanceof AggregateError) {
    const codes = new Set(error.errors.map(codeOf));
    const [code] = codes;
    return codes.size === 1 && code !== undefined ? code : 'EHOSTUNREACH';
  }
  // Errors of the HTTP parser do not always have a code.
  if (error instanceof Error && error.name === 'HTTPParserError') return 'HPE_INVALID';
  if (typeof error !== 'object' || error === null || !('code' in error)) return '';
  return typeof error.code === 'string' ? error.code : '';
}

/** The connections to one origin at one set of checked addresses. */
interface Group {
  readonly origin: string;
  readonly addresses: string;
  readonly open: () => Wire;
  readonly idle: Wire[];
  /** Including connections in use. */
  size: number;
}

// Maximum number of idle connections for all origins. Each holds a file descriptor, and a busy origin quickly opens new
// ones.
const KEEP_IN_ALL = 512;

/**
 * A pool of connections that are reused for the same origin. Keeps at most `keep` idle connections per origin.
 * `opener` is called once per origin and set of checked addresses; the function it returns opens connections to
 * these addresses only.
 */
export function createConnections(keep: number, opener: (origin: string, addresses: readonly string[]) => () => Wire) {
  const groups = new Map<string, Group>();
  const owners = new Map<Wire, Group>();
  let idle = 0;

  function groupOf(origin: string, addresses: readonly string[]): Group {
    const joined = addresses.length === 1 ? (addresses[0] ?? '') : [...addresses].sort().join(' ');
    const group = groups.get(origin);
    if (group?.addresses === joined) return group;
    // Connections in use are closed after their request: giveBack sees that their group is no longer current.
    if (group) for (const connection of [...group.idle]) drop(connection);
    const made = { origin, addresses: joined, open: opener(origin, addresses), idle: [], size: 0 };
    groups.set(origin, made);
    return made;
  }

  function open(group: Group): Wire {
    const connection = group.open();
    owners.set(connection, group);
    group.size++;
    return connection;
  }

  /** Closes it, even if in use. */
  function drop(connection: Wire): void {
    const group = owners.get(connection);
    if (!group) return;
    owners.delete(connection);
    group.size--;
    if (forgetIdle(group, connection)) idle--;
    if (group.size === 0 && groups.get(group.origin) === group) groups.delete(group.origin);
    connection.destroy();
  }

  return frozen({
    /** Takes the most recently used connection, or a new one. Closes idle connections to any other set of addresses. */
    take(origin: string, addresses: readonly string[]): { readonly connection: Wire; readonly used: boolean } {
      const group = groupOf(origin, addresses);
      const connection = group.idle.pop();
      if (!connection) return { connection: open(group), used: false };
      idle--;
      return { connection, used: true };
    },
    /** As `take`, but always a new connection. */
    fresh: (origin: string, addresses: readonly string[]) => open(groupOf(origin, addresses)),
    /** Returns it to the pool, or closes it if its addresses are out of date or the pool is full. */
    giveBack(connection: Wire) {
      const group = owners.get(connection);
      if (!group || groups.get(group.origin) !== group || group.idle.length >= keep || idle >= KEEP_IN_ALL)
        return drop(connection);
      group.idle.push(connection);
      idle++;
    },
    drop,
    /** The server closed it: removes it from the pool if idle. */
    closed(connection: Wire) {
      if (owners.get(connection)?.idle.includes(connection)) drop(connection);
    },
    /** Closes all connections, even those in use. */
    destroy() {
      for (const connection of [...owners.keys()]) drop(connection);
    },
  });
}

function forgetIdle(group: Group, connection: Wire): boolean {
  const at = group.idle.indexOf(connection);
  if (at < 0) return false;
  group.idle.splice(at, 1);
  return true;
}
