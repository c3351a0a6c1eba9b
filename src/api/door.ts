import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createAddressList, networkOf, normalizeAddress } from '../base/networks.ts';
import { createShares } from '../base/shares.ts';
import { refusal, toEnvelope } from './errors.ts';

export interface DoorSettings {
  /** Concurrent connections from one address; behind a trusted proxy, concurrent calls of one client. */
  readonly maxConnectionsPerAddress: number;
  readonly trustedProxies: readonly string[];
}

interface DoorDeps {
  readonly clientAddress: (req: IncomingMessage) => string;
  readonly clock: Clock;
  readonly log: Log;
}

/** Refuses clients that have too much open already, so that one address cannot use up all connections of the server. */
interface Door {
  /** Counts a connection. */
  knock(socket: Socket): void;
  /** Whether a request may proceed; if not, it has been answered. */
  admits(req: IncomingMessage, res: ServerResponse): boolean;
}

/** Excess connections kept open until their request is answered with 429; those beyond are closed without an answer. */
const EXCESS = { all: 100, each: 10 };
/** How long such a connection may take to send its request. */
const EXCESS_MS = 2_000;
/** Refused connections are logged at most once in this time. */
const QUIET_MS = 1_000;

export function createDoor(settings: DoorSettings, { clientAddress, clock, log }: DoorDeps): Door {
  const isProxy = createAddressList(settings.trustedProxies);
  const perAddress = { all: Number.MAX_SAFE_INTEGER, each: settings.maxConnectionsPerAddress };
  const connections = createShares(perAddress);
  const calls = createShares(perAddress);
  const excess = createShares(EXCESS);
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
      if (excess.take(who, 1) !== 'taken') return void socket.destroy();
      refused.add(socket);
      const cancel = clock.after(EXCESS_MS, () => socket.destroy());
      socket.once('close', () => {
        cancel();
        excess.give(who, 1);
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

/** Addresses read from X-Forwarded-For, counted from its end. */
const MAX_HOPS = 20;

/**
 * Finds the client's address: the peer, or, behind a trusted proxy, the last address in X-Forwarded-For that is not
 * trusted.
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
      // A hop that wrote something other than an address cannot be trusted about the hops before it.
      if (hop === undefined) return client;
      client = hop;
      if (!isTrusted(hop)) return client;
    }
    return client;
  };
}
