import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import { createServer as createTcp, Socket, type Server as TcpServer } from 'node:net';
import { hasIPv6 } from '../ipv6.ts';

/** Addresses of this machine that must never be reached. */
export const CANARY_ADDRESSES: readonly string[] = [
  '127.0.0.1',
  '127.0.0.2',
  '127.127.127.127',
  ...(hasIPv6() ? ['::1'] : []),
];
/** The one that the operator opened: it stands for the Internet. */
export const OPEN_ADDRESS = '127.0.0.3';

/** Listeners on one port of every canary address, and on the open one a receiver that redirects where its path says. */
export interface Canaries {
  readonly port: number;
  /** Connections to the canaries so far, by address. */
  hits(): readonly string[];
  /** Forgets the hits. */
  forget(): void;
  /** Requests to the open address so far: their paths. */
  readonly opened: string[];
  stop(): Promise<void>;
}

export async function startCanaries(): Promise<Canaries> {
  for (let attempt = 0; ; attempt++) {
    const started = await tryCanaries();
    if (started) return started;
    if (attempt > 20) throw new Error('no port is free on all addresses');
  }
}

async function tryCanaries(): Promise<Canaries | undefined> {
  const hits: string[] = [];
  const opened: string[] = [];
  const sockets = new Set<Socket>();
  const open = createServer((request, response) => {
    opened.push(request.url ?? '');
    request.resume().on('end', () => answer(request.url ?? '', response));
  });
  const canaries = CANARY_ADDRESSES.map((address) => ({
    address,
    server: createTcp((socket) => {
      hits.push(address);
      sockets.add(socket);
      socket.on('error', () => {}).end(OK);
    }),
  }));
  await listen(open, 0, OPEN_ADDRESS);
  const address = open.address();
  const port = typeof address === 'object' && address ? address.port : 0;
  const bound = await Promise.all(canaries.map(({ address, server }) => listen(server, port, address)));
  const stop = async () => {
    open.closeAllConnections();
    for (const socket of sockets) socket.destroy();
    await Promise.all(
      [open, ...canaries.map(({ server }) => server)]
        .filter((server) => server.listening)
        .map(
          (server) =>
            new Promise<void>((resolve) => {
              server.close(() => resolve());
            }),
        ),
    );
  };
  if (!bound.every(Boolean)) {
    await stop();
    return undefined;
  }
  return {
    port,
    hits: () => hits,
    forget: () => {
      hits.length = 0;
    },
    opened,
    stop,
  };
}

/** Any HTTP request gets a 2xx: a redirect that was followed shows as a success. */
const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';

function answer(path: string, response: ServerResponse): void {
  const [, status, location = ''] = /^\/redirect\/(\d+)\/([\w-]*)$/.exec(path) ?? [];
  if (status === undefined) response.writeHead(200).end();
  else response.writeHead(Number(status), { location: Buffer.from(location, 'base64url').toString() }).end();
}

/** The path under which the open address redirects to a URL. */
export function redirectPath(status: number, location: string): string {
  return `/redirect/${status}/${Buffer.from(location).toString('base64url')}`;
}

async function listen(server: Server | TcpServer, port: number, address: string): Promise<boolean> {
  server.listen(port, address);
  return once(server, 'listening').then(
    () => true,
    () => false,
  );
}

export interface Attempt {
  readonly address: string;
  readonly port: number;
}

/** Notes every TCP connection that this thread begins, to whom it may be: also to addresses where no canary can sit. */
export function watchConnections(): { readonly attempts: Attempt[]; stop(): void } {
  const attempts: Attempt[] = [];
  const connect: unknown = Reflect.get(Socket.prototype, 'connect');
  if (typeof connect !== 'function') throw new Error('sockets do not connect');
  Reflect.set(Socket.prototype, 'connect', function watched(this: Socket, ...args: readonly unknown[]): unknown {
    this.on('connectionAttempt', (address: string, port: number) => {
      attempts.push({ address, port });
    });
    return Reflect.apply(connect, this, args);
  });
  return {
    attempts,
    stop: () => {
      Reflect.set(Socket.prototype, 'connect', connect);
    },
  };
}
