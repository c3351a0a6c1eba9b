import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';

/** A request as it arrived. */
export interface Received {
  readonly method: string;
  /** Path and query. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  /** Milliseconds since 1970. */
  readonly at: number;
}

/** How a webhook receiver may behave, well or badly. */
export type How =
  | { readonly status: number; readonly headers?: Readonly<Record<string, string>>; readonly body?: string | Buffer }
  /**
   * hang: never answers · reset: TCP reset · close: ends without a byte · close-after-headers: ends where the body
   * should come
   * · drip-headers, drip-body: a byte a second · endless: a body without end · malformed: not HTTP · cut: a status line
   *   and no more.
   */
  | 'hang'
  | 'reset'
  | 'close'
  | 'close-after-headers'
  | 'drip-headers'
  | 'drip-body'
  | 'endless'
  | 'malformed'
  | 'cut'
  /** A header of this many bytes. */
  | { readonly hugeHeader: number }
  | { readonly redirect: string; readonly status?: number };

/** A webhook receiver on 127.0.0.1 with scripted answers. */
export interface Receiver {
  /** `http://127.0.0.1:port/hook`. */
  readonly url: string;
  readonly port: number;
  /** Everything that arrived whole, in order. */
  readonly requests: Received[];
  /** TCP connections so far. */
  connections(): number;
  /** TCP connections that are open now. */
  open(): number;
  /** From now on, for everything but HEAD; a function answers each request for itself. 200 at first. */
  answer(how: How | ((request: Received) => How | Promise<How>)): void;
  /** The next requests only, in order; then as `answer` said. */
  answerOnce(...how: How[]): void;
  /** HEAD requests from now on. 200 at first. */
  answerHead(how: How): void;
  stop(): Promise<void>;
}

interface ReceiverOptions {
  /** PEM texts: then it speaks TLS and its URL begins with https. */
  readonly tls?: { readonly cert: string; readonly key: string };
  /** Where it listens; a free port of 127.0.0.1 unless given. */
  readonly listen?: { readonly host: string; readonly port: number };
}

export async function startReceiver(options: ReceiverOptions = {}): Promise<Receiver> {
  const requests: Received[] = [];
  const sockets = new Set<Socket>();
  const next: How[] = [];
  let connections = 0;
  let head: How = { status: 200 };
  let rest: (request: Received) => How | Promise<How> = () => ({ status: 200 });

  const server = options.tls
    ? createSecureServer({ ...options.tls, keepAlive: true })
    : createServer({ keepAlive: true });
  server.on('request', (request: IncomingMessage, response: ServerResponse) => {
    read(request).then(
      async (received) => {
        requests.push(received);
        const how = received.method === 'HEAD' ? head : (next.shift() ?? (await rest(received)));
        perform(how, response);
      },
      () => {},
    );
  });
  server.on('connection', (socket: Socket) => {
    connections++;
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
  });
  const { host, port: wanted } = options.listen ?? { host: '127.0.0.1', port: 0 };
  server.listen(wanted, host);
  await once(server, 'listening');
  // listen() on a host and port: the address is never a string or null here.
  const { port } = server.address() as AddressInfo;

  return {
    url: `${options.tls ? 'https' : 'http'}://${host}:${port}/hook`,
    port,
    requests,
    connections: () => connections,
    open: () => sockets.size,
    answer(how) {
      rest = typeof how === 'function' ? how : () => how;
    },
    answerOnce(...how) {
      next.push(...how);
    },
    answerHead(how) {
      head = how;
    },
    async stop() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

async function read(request: IncomingMessage): Promise<Received> {
  const at = Date.now();
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return {
    method: request.method ?? '',
    url: request.url ?? '',
    headers: request.headers,
    body: Buffer.concat(chunks),
    at,
  };
}

function perform(how: How, response: ServerResponse): void {
  if (typeof how === 'string') return misbehave(how, response);
  if ('hugeHeader' in how) return hugeHeader(response, how.hugeHeader);
  if ('redirect' in how) {
    response.writeHead(how.status ?? 307, { location: how.redirect }).end();
    return;
  }
  response.writeHead(how.status, how.headers ?? {}).end(how.body ?? '');
}

function misbehave(how: Extract<How, string>, response: ServerResponse): void {
  const { socket } = response;
  if (!socket) return;
  switch (how) {
    case 'hang':
      return;
    case 'reset':
      socket.resetAndDestroy();
      return;
    case 'close':
      socket.destroy();
      return;
    case 'cut':
      socket.end('HTTP/1.1 200');
      return;
    case 'malformed':
      socket.end('HELLO THERE\r\n\r\n');
      return;
    case 'close-after-headers':
      socket.end('HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n');
      return;
    case 'drip-headers':
      drip(socket, 'HTTP/1.1 200 OK\r\n', 'x');
      return;
    case 'drip-body':
      drip(socket, 'HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n', 'x');
      return;
    case 'endless':
      endless(
        socket,
        'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n',
        '4000\r\n' + 'e'.repeat(0x4000) + '\r\n',
      );
      return;
  }
}

function drip(socket: Socket, start: string, byte: string): void {
  socket.write(start);
  const timer = setInterval(() => socket.write(byte), 1000);
  socket.once('close', () => clearInterval(timer));
}

/** Writes as long as the other side reads. */
function endless(socket: Socket, start: string, piece: string): void {
  const more = () => {
    while (!socket.destroyed && socket.write(piece));
  };
  socket.on('drain', more);
  socket.write(start);
  more();
}

function hugeHeader(response: ServerResponse, bytes: number): void {
  const { socket } = response;
  if (!socket) return;
  const piece = 'h'.repeat(65536);
  let left = bytes;
  const more = () => {
    while (!socket.destroyed && left > 0) {
      left -= piece.length;
      if (!socket.write(piece)) return;
    }
    if (left <= 0) socket.end('\r\n\r\n');
  };
  socket.on('drain', more);
  socket.write('HTTP/1.1 200 OK\r\nx-huge: ');
  more();
}
