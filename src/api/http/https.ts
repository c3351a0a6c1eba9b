import type { Server as HttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { createSecureContext, type SecureContext, TLSSocket } from 'node:tls';
import { frozen } from '../../base/frozen.ts';
import { addressOf, EXCESS_CONNECTIONS, type ListenTarget, listenOn } from './bounded-server.ts';

interface SecureSettings {
  readonly secureListen: readonly ListenTarget[];
  readonly maxConnections: number;
}

interface SecureDeps {
  readonly http: HttpServer;
  readonly connectionLimits: { addConnection(socket: Socket): void };
  /** The certificate for a name; undefined if there is none. */
  readonly contextFor: (name: string) => SecureContext | undefined;
}

/** How long a client may take for its TLS handshake. Milliseconds. */
const HANDSHAKE_MS = 10_000;

/**
 * HTTPS: passes connections to the HTTP server after their TLS handshake. The limit on connections applies before it,
 * because handshakes cost the most.
 */
export function createHttpsListener({ secureListen, maxConnections }: SecureSettings, deps: SecureDeps) {
  const { http, connectionLimits, contextFor } = deps;
  const none = createSecureContext();
  const handshaking = new Set<TLSSocket>();

  function accept(socket: Socket): void {
    const secure = new TLSSocket(socket, {
      isServer: true,
      secureContext: contextFor('') ?? none,
      SNICallback: (name, done) => done(null, contextFor(name)),
      ALPNProtocols: ['http/1.1'],
    });
    handshaking.add(secure);
    // Not the injected clock, as with the timeouts of the HTTP server.
    const late = setTimeout(() => secure.destroy(), HANDSHAKE_MS);
    const done = () => {
      clearTimeout(late);
      handshaking.delete(secure);
    };
    // Failed handshakes are not logged: scanners cause many.
    secure.on('error', () => secure.destroy());
    secure.once('close', done);
    // Node's own TLS server uses this event for the end of the handshake.
    secure.once('secure', () => {
      done();
      http.emit('connection', secure);
    });
    connectionLimits.addConnection(secure);
  }

  const servers = secureListen.map((address) => {
    const server: Server = createServer({ noDelay: true }, accept);
    server.maxConnections = maxConnections + EXCESS_CONNECTIONS;
    return { server, address };
  });

  return frozen({
    async start(): Promise<void> {
      for (const { server, address } of servers) await listenOn(server, address);
    },
    addresses: () => servers.filter(({ server }) => server.listening).map(({ server }) => addressOf(server)),
    /** Stops accepting connections; the HTTP server closes open ones. */
    stop(): void {
      for (const { server } of servers) server.close();
      for (const socket of handshaking) socket.destroy();
    },
  });
}
