import type { LookupFunction, Socket } from 'node:net';
import { isIP } from 'node:net';
import type { Readable } from 'node:stream';
import { buildConnector, Client, type Dispatcher } from 'undici';
import type { AttemptError, PostBody } from '../types.ts';
import { ANSWER_BYTES, toAnswerText } from './answer.ts';
import { toAttemptError } from './attempt-error.ts';
import type { Connection } from './connections.ts';
import type { FileBody } from './file-body.ts';

/** One request, as it goes over a wire. */
export interface Request {
  readonly method: 'POST' | 'HEAD';
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: PostBody | null;
  readonly secure: boolean;
}

/** How the exchange over one connection ended. */
export type Ending =
  | { readonly kind: 'answered'; readonly status: number; readonly retryAfter: string | null; readonly answer: string }
  | { readonly kind: 'unanswered'; readonly error: AttemptError; readonly connected: boolean };

/** One connection of undici. */
export interface Wire extends Connection {
  /** `file`: what reads the body, when that is a file. */
  dispatch(request: Request, file: FileBody | undefined, handler: Handler): void;
  /** Whether all that was written is with the system. */
  sent(): boolean;
}

/** What undici tells of an answer; `expire` ends the exchange because its time is over. */
interface Handler extends Dispatcher.DispatchHandler {
  expire(): void;
}

/** Opens connections to the checked addresses only, whatever the name says by then; the name stays for SNI, certificate and Host. */
export function connectorTo(addresses: readonly string[], timeout: number): buildConnector.connector {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  const lookup: LookupFunction = (_hostname, options, callback) => {
    const [first] = found;
    if (options.all) callback(null, found);
    else callback(null, first?.address ?? '', first?.family);
  };
  // With several addresses the next one is tried after half a second (RFC 8305), so that a broken IPv6 costs no attempt.
  return buildConnector({
    allowH2: false,
    timeout,
    lookup,
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: 500,
  });
}

export function openWire(origin: string, connect: buildConnector.connector, onClose: (wire: Wire) => void): Wire {
  let socket: Socket | undefined;
  const client = new Client(origin, {
    connect: (options, callback) =>
      connect(options, (...made) => {
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
  const wire: Wire = {
    dispatch(request, file, handler) {
      client.dispatch(toOptions(request, file), handler);
    },
    sent: () => socket?.writableLength === 0,
    destroy() {
      client.destroy().catch(() => {});
    },
  };
  client.on('disconnect', () => onClose(wire));
  return wire;
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

/** undici takes any async iterable, which its type does not say. */
function toUndici(chunks: AsyncIterable<Uint8Array>): Readable {
  return chunks as unknown as Readable;
}

/**
 * Collects one answer. undici's `dispatch` and not its `request`: no stream is made for each answer, and reading stops at
 * the byte where we say so.
 */
export function createHandler(secure: boolean, finish: (ending: Ending, reusable: boolean) => void): Handler {
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
    onRequestStart() {
      connected = true;
    },
    onResponseStart(
      _controller: unknown,
      code: number,
      headers: Readonly<Record<string, string | string[] | undefined>>,
    ) {
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
    onResponseEnd() {
      end(() => 'malformed answer', true);
    },
    onResponseError(_controller: unknown, error: unknown) {
      end(() => toAttemptError(error, { connected, secure }), false);
    },
  };
}
