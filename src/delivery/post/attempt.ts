import type { LookupFunction, Socket } from 'node:net';
import { isIP } from 'node:net';
import type { Readable } from 'node:stream';
import { buildConnector, Client, type Dispatcher } from 'undici';
import type { Clock } from '../../base/clock.ts';
import { ANSWER_BYTES, toAnswerText } from './answer.ts';
import { toAttemptError } from './attempt-error.ts';
import { type Connection, createConnections } from './connections.ts';
import { type Deadline, startDeadline } from './deadline.ts';
import { createFileBody, type FileBody } from './file-body.ts';
import type { Guard, Verdict } from './guard.ts';
import type { AttemptError, AttemptResult, PostBody, Poster } from '../types.ts';

export interface PosterSettings {
  /** For one request: name, connection, TLS, request and answer together. */
  readonly timeoutMs: number;
  /** `Postern/<version>`. */
  readonly userAgent: string;
  /** Idle connections that are kept for one origin. */
  readonly connections: number;
}

interface Request {
  readonly method: 'POST' | 'HEAD';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: PostBody | null;
  readonly secure: boolean;
}

/** How the exchange over one connection ended. */
type Ending =
  | { readonly kind: 'answered'; readonly status: number; readonly retryAfter: string | null; readonly answer: string }
  | { readonly kind: 'unanswered'; readonly error: AttemptError; readonly connected: boolean };

interface Wire extends Connection {
  readonly client: Client;
  /** Whether all that was written is with the system. */
  sent(): boolean;
}

/** What posts to endpoints: guarded, under one deadline, over connections that are used again while DNS still names their address. */
export function createPoster(settings: PosterSettings, deps: { readonly guard: Guard; readonly clock: Clock }): Poster {
  const { guard, clock } = deps;
  const connections = createConnections<Wire>(settings.connections, (origin, addresses) => {
    const connect = connectorTo(addresses, settings.timeoutMs);
    return () => openWire(origin, connect, (wire) => connections.closed(wire));
  });
  let stopped = false;

  async function attempt(method: 'POST' | 'HEAD', url: string, headers: Readonly<Record<string, string>>, body: PostBody | null): Promise<AttemptResult> {
    const started = clock.monotonic();
    const deadline = startDeadline(clock, settings.timeoutMs);
    try {
      const ending = await guarded(method, url, headers, body, deadline);
      return { ...ending, durationMs: Math.round(clock.monotonic() - started) };
    } finally {
      deadline.cancel();
    }
  }

  async function guarded(
    method: 'POST' | 'HEAD', url: string, headers: Readonly<Record<string, string>>, body: PostBody | null, deadline: Deadline,
  ): Promise<Ending> {
    const parsed = URL.parse(url);
    if (!parsed) return { kind: 'unanswered', error: 'host not found', connected: false };
    const verdict = await checked(guard, parsed, deadline);
    if (!verdict.ok) return { kind: 'unanswered', error: verdict.error, connected: false };
    if (stopped) return { kind: 'unanswered', error: 'connection failed', connected: false };
    const request: Request = {
      method,
      path: parsed.pathname + parsed.search,
      headers: { ...headers, ...standing(parsed, settings.userAgent) },
      body,
      secure: parsed.protocol === 'https:',
    };
    return send(request, parsed.origin, verdict.addresses, deadline);
  }

  async function send(request: Request, origin: string, addresses: readonly string[], deadline: Deadline): Promise<Ending> {
    const { connection, used } = connections.take(origin, addresses);
    const ending = await exchange(connection, request, deadline);
    // A server may close an idle connection in the very moment we use it again. That says nothing about the endpoint and
    // must not cost an attempt, so it is tried once more on a new connection; the receiver knows a repeat by webhook-id.
    const stale = used && ending.kind === 'unanswered' && ending.error === 'connection reset' && !deadline.passed() && !stopped;
    return stale ? exchange(connections.fresh(origin, addresses), request, deadline) : ending;
  }

  /** One request on one connection; gives the connection back or drops it. */
  function exchange(wire: Wire, request: Request, deadline: Deadline): Promise<Ending> {
    return new Promise((resolve) => {
      const file = request.body?.kind === 'file' ? createFileBody(request.body, wire.sent) : undefined;
      const finish = (ending: Ending, reusable: boolean): void => {
        file?.close();
        if (reusable) connections.giveBack(wire);
        else connections.drop(wire);
        resolve(ending);
      };
      const handler = createHandler(request.secure, finish);
      deadline.onPass(handler.expire);
      if (deadline.passed()) return;
      wire.client.dispatch(toOptions(request, file), handler);
    });
  }

  return Object.freeze({
    post: (url: string, headers: Readonly<Record<string, string>>, body: PostBody) => attempt('POST', url, headers, body),
    head: (url: string) => attempt('HEAD', url, {}, null),
    async stop() {
      stopped = true;
      connections.destroy();
    },
  });
}

/** The guard's verdict, or `timeout` when the name servers take longer than the attempt may. */
function checked(guard: Guard, url: URL, deadline: Deadline): Promise<Verdict> {
  return new Promise((resolve) => {
    deadline.onPass(() => resolve({ ok: false, error: 'timeout' }));
    guard.check(url).then(resolve, () => resolve({ ok: false, error: 'DNS failure' }));
  });
}

/** Headers that every request carries. A user and password in the URL go where HTTP wants them, as consumers of Mandrill expect. */
function standing(url: URL, userAgent: string): Record<string, string> {
  const headers = { 'user-agent': userAgent, accept: '*/*' };
  if (url.username === '' && url.password === '') return headers;
  const pair = `${decoded(url.username)}:${decoded(url.password)}`;
  return { ...headers, authorization: `Basic ${Buffer.from(pair, 'utf8').toString('base64')}` };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function toOptions({ method, path, headers, body }: Request, file: FileBody | undefined): Dispatcher.DispatchOptions {
  if (body?.kind === 'file') return { method, path, headers: { ...headers, 'content-length': String(body.size) }, body: file ? toUndici(file.chunks) : null };
  return { method, path, headers, body: body?.bytes ?? null };
}

/** undici takes any async iterable, which its type does not say. */
function toUndici(chunks: AsyncIterable<Uint8Array>): Readable {
  return chunks as unknown as Readable;
}

/**
 * Collects one answer. undici's `dispatch` and not its `request`: no stream is made for each answer, and reading stops at
 * the byte where we say so.
 */
function createHandler(secure: boolean, finish: (ending: Ending, reusable: boolean) => void) {
  const chunks: Uint8Array[] = [];
  let size = 0;
  let connected = false;
  let ended = false;
  let status: number | undefined;
  let retryAfter: string | null = null;

  const end = (error: () => AttemptError, reusable: boolean): void => {
    if (ended) return;
    ended = true;
    // Once there is a status the endpoint has said what it thinks of the request; a body that is cut, drips or never ends changes nothing.
    if (status === undefined) finish({ kind: 'unanswered', error: error(), connected }, false);
    else finish({ kind: 'answered', status, retryAfter, answer: toAnswerText(chunks) }, reusable);
  };

  return {
    expire: () => end(() => 'timeout', false),
    onRequestStart() { connected = true; },
    onResponseStart(_controller: unknown, code: number, headers: Readonly<Record<string, string | string[] | undefined>>) {
      if (code < 200) return;
      status = code;
      const value = headers['retry-after'];
      retryAfter = (Array.isArray(value) ? value[0] : value) ?? null;
    },
    onResponseData(_controller: unknown, chunk: Buffer) {
      chunks.push(chunk);
      size += chunk.length;
      if (size >= ANSWER_BYTES) end(() => 'malformed answer', false);
    },
    onResponseEnd() { end(() => 'malformed answer', true); },
    onResponseError(_controller: unknown, error: unknown) { end(() => toAttemptError(error, { connected, secure }), false); },
  };
}

/** Opens connections to the checked addresses only, whatever the name says by then; the name stays for SNI, certificate and Host. */
function connectorTo(addresses: readonly string[], timeout: number): buildConnector.connector {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  const lookup: LookupFunction = (_hostname, options, callback) => {
    const [first] = found;
    if (options.all) callback(null, found);
    else callback(null, first?.address ?? '', first?.family);
  };
  // With several addresses the next one is tried after half a second (RFC 8305), so that a broken IPv6 costs no attempt.
  return buildConnector({ allowH2: false, timeout, lookup, autoSelectFamily: true, autoSelectFamilyAttemptTimeout: 500 });
}

function openWire(origin: string, connect: buildConnector.connector, onClose: (wire: Wire) => void): Wire {
  let socket: Socket | undefined;
  const client = new Client(origin, {
    connect: (options, callback) => connect(options, (...made) => {
      socket = made[1] ?? undefined;
      callback(...made);
    }),
    allowH2: false,
    pipelining: 1,
    maxHeaderSize: 16 * 1024,
    // The deadline of the attempt is the only one.
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: 4000,
    keepAliveMaxTimeout: 60_000,
  });
  const wire: Wire = { client, sent: () => socket?.writableLength === 0, destroy: () => { client.destroy().catch(() => {}); } };
  client.on('disconnect', () => onClose(wire));
  return wire;
}
