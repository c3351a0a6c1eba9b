import { once } from 'node:events';
import { createServer, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { Server as NetServer } from 'node:net';
import type { HostPort } from '../../base/networks.ts';

/** Where to listen, or a socket passed in by systemd. */
export type ListenTarget = HostPort | { readonly fd: number };

// Limits against slow clients; working clients never reach them.
const HEADERS_MS = 10_000;
/** How often the server checks for slow clients. */
const CHECK_MS = 2_000;
/** Longer than the deadlines for bodies (requests/body.ts), which answer with an error. */
const REQUEST_MS = 180_000;
const KEEP_ALIVE_MS = 65_000; // longer than the 60 s of usual proxies, so that they close first
const MAX_HEADER_BYTES = 16_384;
/** Connections accepted beyond the limit, so that they can be answered with 429 or closed. */
export const EXCESS_CONNECTIONS = 200;
/** How long calls in progress may take to finish after `stopServer`. */
const STOP_MS = 10_000;
const SWEEP_MS = 20;

/** An HTTP server that slow clients cannot block. `maxConnections`: the limit that its caller enforces. */
export function createBoundedServer(maxConnections: number, handler: RequestListener): Server {
  const server = createServer(
    {
      headersTimeout: HEADERS_MS,
      requestTimeout: REQUEST_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      connectionsCheckingInterval: CHECK_MS,
    },
    handler,
  );
  server.maxConnections = maxConnections + EXCESS_CONNECTIONS;
  return server;
}

export async function listenOn(server: NetServer, where: ListenTarget): Promise<void> {
  server.listen('fd' in where ? { fd: where.fd } : { host: where.host, port: where.port });
  await once(server, 'listening');
}

export function addressOf(server: NetServer): HostPort {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the API does not listen on an address');
  return { host: address.address, port: address.port };
}

/** Ends idle connections at once, and the others after their call, or after ten seconds. */
export async function stopServer(server: Server): Promise<void> {
  if (!server.listening) return;
  const closed = once(server, 'close');
  server.close();
  // Not the injected clock: stopping must not depend on time that a test has stopped.
  const force = setTimeout(() => server.closeAllConnections(), STOP_MS);
  // A keep-alive connection becomes idle only when its call ends, and then must be closed here.
  const sweep = setInterval(() => server.closeIdleConnections(), SWEEP_MS);
  await closed;
  clearTimeout(force);
  clearInterval(sweep);
}

/** Aborted when the client hangs up. */
export function abortOnClose({ res }: { readonly res: ServerResponse }): AbortSignal {
  const gone = new AbortController();
  res.once('close', () => gone.abort());
  return gone.signal;
}
