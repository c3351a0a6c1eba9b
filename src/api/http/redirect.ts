import type { IncomingMessage, ServerResponse } from 'node:http';
import { frozen } from '../../base/frozen.ts';
import type { Tools } from '../../base/tools.ts';
import { addressOf, createBoundedServer, type ListenTarget, listenOn, stopServer } from './bounded-server.ts';
import { type ConnectionLimitSettings, createClientAddress, createConnectionLimits } from './connection-limits.ts';

export interface RedirectSettings extends ConnectionLimitSettings {
  readonly redirectListen: readonly ListenTarget[];
  /** Our URL as seen from outside, which may have another port than 443. */
  readonly publicUrl: string;
}

interface RedirectDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly isOurs: (name: string) => boolean;
  /** The answer to a challenge of the certificate authority. */
  readonly answerTo: (token: string) => Promise<string | undefined>;
}

const CHALLENGE = /^\/\.well-known\/acme-challenge\/([^/?#]+)$/;

/** Port 80: challenges of the certificate authority, and redirects of our names to HTTPS. Nothing else is answered. */
export function createRedirect(settings: RedirectSettings, { isOurs, answerTo, clock, log }: RedirectDeps) {
  const clientAddress = createClientAddress(settings.trustedProxies);
  const connectionLimits = createConnectionLimits(settings, { clientAddress, clock, log });
  const servers = settings.redirectListen.map((address) => {
    const server = createBoundedServer(settings.maxConnections, (req, res) => {
      if (!connectionLimits.admitsRequest(req, res)) return;
      answer(req, res).catch((error: unknown) => {
        log.error('api.fault', { part: 'redirect', error });
        end(res, 503);
      });
    });
    server.on('connection', connectionLimits.addConnection);
    return { server, address };
  });

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    if (req.method !== 'GET' && req.method !== 'HEAD') return end(res, 404);
    const path = req.url ?? '';
    const token = CHALLENGE.exec(path)?.[1];
    if (token !== undefined) {
      const text = await answerTo(token);
      return text === undefined ? end(res, 404) : end(res, 200, text, { 'Content-Type': 'application/octet-stream' });
    }
    const name = hostOf(req);
    // Only for our names: redirecting to any name that a client sends would be an open redirect.
    if (name === undefined || !isOurs(name) || !path.startsWith('/')) return end(res, 404);
    return end(res, 308, '', { Location: `${originOf(name)}${path}` });
  }

  function originOf(name: string): string {
    const { hostname, origin, protocol } = new URL(settings.publicUrl);
    return protocol === 'https:' && hostname === name ? origin : `https://${name}`;
  }

  return frozen({
    async start(): Promise<void> {
      for (const { server, address } of servers) {
        await listenOn(server, address);
        log.info('api.listening', { ...addressOf(server), serves: 'challenges and redirects' });
      }
    },
    addresses: () => servers.filter(({ server }) => server.listening).map(({ server }) => addressOf(server)),
    async stop(): Promise<void> {
      connectionLimits.close();
      await Promise.all(servers.map(({ server }) => stopServer(server)));
    },
  });
}

/** The name in the Host header, without its port. */
function hostOf({ headers }: IncomingMessage): string | undefined {
  return /^([a-z0-9.-]+?)\.?(?::\d{1,5})?$/.exec(headers.host?.toLowerCase() ?? '')?.[1];
}

function end(res: ServerResponse, status: number, text = '', headers: Record<string, string> = {}): void {
  if (res.headersSent) return void res.destroy();
  res.writeHead(status, { 'Content-Length': Buffer.byteLength(text), 'Cache-Control': 'no-store', ...headers });
  res.end(text);
}
