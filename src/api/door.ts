import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createAddressList, networkOf, normalizeAddress } from '../base/networks.ts';
import { createShares } from '../base/shares.ts';
import { refusal, toEnvelope } from './errors.ts';

export interface DoorSettings {
  /** Connections of one address at one time; behind a trusted proxy, calls in progress of one client. */
  readonly maxConnectionsPerAddress: number;
  readonly trustedProxies: readonly string[];
}

interface DoorDeps {
  readonly clientAddress: (req: IncomingMessage) => string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Turns away who has too much open already, so that one address cannot have all connections of the server. */
interface Door {
  /** Counts a connection. */
  knock(socket: Socket): void;
  /** Whether a request may go on; one that may not has been answered. */
  admits(req: IncomingMessage, res: ServerResponse): boolean;
}

/** Connections over the cap that wait for their request, to be told why; those beyond are closed without a word. */
const TOLD = { all: 100, each: 10 };
/** How long such a connection may take to ask. */
const FAREWELL_MS = 2_000;
/** Clients turned away are logged once in this time. */
const QUIET_MS = 1_000;

export function createDoor(settings: DoorSettings, { clientAddress, clock, log }: DoorDeps): Door {
  const isProxy = createAddressList(settings.trustedProxies);
  const perAddress = { all: Number.MAX_SAFE_INTEGER, each: settings.maxConnectionsPerAddress };
  const connections = createShares(perAddress);
  const calls = createShares(perAddress);
  const told = createShares(TOLD);
  const refused = new WeakSet<Socket>();
  let loggedAt = -Infinity;

  function note(address: string): void {
    if (clock.monotonic() - loggedAt < QUIET_MS) return;
    loggedAt = clock.monotonic();
    log.info('api.refused_connection', { address });
  }

  return frozen({
    knock(socket) {
      const peer = normalizeAddress(socket.remoteAddress ?? '') ?? '';
      if (isProxy(peer)) return;
      const who = networkOf(peer);
      if (connections.take(who, 1) === 'taken') return void socket.once('close', () => connections.give(who, 1));
      note(peer);
      if (told.take(who, 1) !== 'taken') return void socket.destroy();
      refused.add(socket);
      const cancel = clock.after(FAREWELL_MS, () => socket.destroy());
      socket.once('close', () => {
        cancel();
        told.give(who, 1);
      });
    },
    admits(req, res) {
      if (refused.has(req.socket)) return turnAway(res);
      if (!isProxy(normalizeAddress(req.socket.remoteAddress ?? '') ?? '')) return true;
      const client = clientAddress(req);
      const who = networkOf(client);
      if (calls.take(who, 1) !== 'taken') {
        note(client);
        return turnAway(res);
      }
      res.once('close', () => calls.give(who, 1));
      return true;
    },
  });
}

function turnAway(res: ServerResponse): false {
  const headers = {
    'Content-Type': 'application/json; charset=utf-8',
    'Cache-Control': 'no-store',
    'Retry-After': '60',
    Connection: 'close',
  };
  res.writeHead(429, headers).end(JSON.stringify(toEnvelope(refusal('RequestLimitExceeded'))));
  return false;
}

/** Addresses in front of the one that counts; more are not looked at. */
const MAX_HOPS = 20;

/**
 * Says who really calls: the peer, or, behind a trusted proxy, the last address in X-Forwarded-For that is not trusted.
 */
export function createClientAddress(trustedProxies: readonly string[]): (req: IncomingMessage) => string {
  const isTrusted = createAddressList(trustedProxies);
  return (req) => {
    const peer = normalizeAddress(req.socket.remoteAddress ?? '') ?? '';
    if (!isTrusted(peer)) return peer;
    const header = req.headers['x-forwarded-for'];
    const hops = (Array.isArray(header) ? header.join(',') : (header ?? ''))
      .split(',')
      .slice(-MAX_HOPS)
      .map((hop) => normalizeAddress(hop.trim()));
    let client = peer;
    for (const hop of hops.reverse()) {
      // Whoever wrote something else than an address is not to be believed about those further out.
      if (hop === undefined) return client;
      client = hop;
      if (!isTrusted(hop)) return client;
    }
    return client;
  };
}
