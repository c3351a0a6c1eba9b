import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { frozen } from '../../base/frozen.ts';
import { createAddressList, networkOf, normalizeAddress, SITE_LIMIT_FACTOR, siteOf } from '../../base/networks.ts';
import { createShares } from '../../base/shares.ts';
import type { Tools } from '../../base/tools.ts';
import { refusal, toEnvelope } from '../errors.ts';

export interface ConnectionLimitSettings {
  /** Concurrent connections. */
  readonly maxConnections: number;
  /** Concurrent connections from one address; behind a trusted proxy, concurrent calls of one client. */
  readonly maxConnectionsPerAddress: number;
  readonly trustedProxies: readonly string[];
}

interface ConnectionLimitDeps extends Pick<Tools, 'clock' | 'log'> {
  readonly clientAddress: (req: IncomingMessage) => string;
}

/** Excess connections kept open until their request is answered with 429; those beyond are closed without an answer. */
const EXCESS = { all: 100, each: 10 };
/** How long such a connection may take to send its request. */
const EXCESS_MS = 2_000;
/** Refused connections are logged at most once in this time. */
const QUIET_MS = 1_000;

/** Limits open connections and calls, so that one address cannot use up all connections of the server. */
export function createConnectionLimits(
  settings: ConnectionLimitSettings,
  { clientAddress, clock, log }: ConnectionLimitDeps,
) {
  const isProxy = createAddressList(settings.trustedProxies);
  const perAddress = { all: Number.MAX_SAFE_INTEGER, each: settings.maxConnectionsPerAddress };
  const perSite = { all: Number.MAX_SAFE_INTEGER, each: settings.maxConnectionsPerAddress * SITE_LIMIT_FACTOR };
  const connections = createShares(perAddress);
  const sites = createShares(perSite);
  const slots = createConnectionSlots(settings.maxConnections, clock);
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
    /** Counts a connection. */
    addConnection(socket: Socket) {
      const peer = normalizeAddress(socket.remoteAddress ?? '') ?? '';
      if (isProxy(peer)) return slots.enter(socket, undefined);
      const who = networkOf(peer);
      const site = siteOf(peer);
      if (connections.take(who, 1) === 'taken') {
        if (sites.take(site, 1) === 'taken') {
          socket.once('close', () => {
            connections.give(who, 1);
            sites.give(site, 1);
          });
          return slots.enter(socket, site);
        }
        connections.give(who, 1);
      }
      note(peer);
      if (excess.take(who, 1) !== 'taken') return void socket.destroy();
      refused.add(socket);
      const cancel = clock.after(EXCESS_MS, () => socket.destroy());
      socket.once('close', () => {
        cancel();
        excess.give(who, 1);
      });
    },
    /** Whether a request may proceed; if not, it has been answered. */
    admitsRequest(req: IncomingMessage, res: ServerResponse) {
      if (refused.has(req.socket)) return answerTooManyRequests(res);
      slots.call(req, res);
      if (!isProxy(normalizeAddress(req.socket.remoteAddress ?? '') ?? '')) return true;
      const client = clientAddress(req);
      const who = networkOf(client);
      if (calls.take(who, 1) !== 'taken') {
        note(client);
        return answerTooManyRequests(res);
      }
      res.once('close', () => calls.give(who, 1));
      return true;
    },
    /** Stops watching connections. */
    close: slots.close,
  });
}

/** A connection. */
interface OpenConnection {
  /** Undefined: a trusted proxy. */
  readonly site: string | undefined;
  /** The answer to the call in progress. */
  call: ServerResponse | undefined;
  /** When it was opened, or its last call began or ended. */
  since: number;
}

/** The fraction of connections from which the server is crowded, and how long one may then wait for its client. */
const CROWD = 0.8;
const CROWD_WAIT_MS = 5_000;
const SWEEP_MS = 1_000;

/**
 * The open connections. At the limit, a new one replaces an idle one, else one whose client sends or reads slowly: the
 * one with the highest product of its waiting time and the connections of its site. No site replaces a connection of a
 * site that has fewer, and those of a proxy are replaced last.
 */
function createConnectionSlots(most: number, clock: Clock) {
  const all = new Map<Socket, OpenConnection>();
  const counts = new Map<string, number>();
  let cancelSweep: (() => void) | undefined;
  const shift = (site: string, more: number) => {
    const left = (counts.get(site) ?? 0) + more;
    if (left > 0) counts.set(site, left);
    else counts.delete(site);
  };

  function leave(socket: Socket): void {
    const held = all.get(socket);
    if (all.delete(socket) && held?.site !== undefined) shift(held.site, -1);
  }

  /** Closes the connection that comes first by these rules; false if none may be closed. */
  function takeOneFor(site: string | undefined): boolean {
    const now = clock.monotonic();
    const own = site === undefined ? 1 : (counts.get(site) ?? 0);
    let least: Socket | undefined;
    let leastClass = Infinity;
    let longest = -1;
    for (const [socket, held] of all) {
      if (held.call && !waitsForClient(held.call)) continue;
      const siblings = held.site === undefined ? own : (counts.get(held.site) ?? 1);
      if (siblings < own || (site !== undefined && held.site === site)) continue;
      const inClass = (held.call ? 1 : 0) + (held.site === undefined ? 2 : 0);
      const waited = (now - held.since) * siblings;
      if (inClass > leastClass || (inClass === leastClass && waited <= longest)) continue;
      [least, leastClass, longest] = [socket, inClass, waited];
    }
    if (!least) return false;
    leave(least);
    least.destroy();
    return true;
  }

  function sweep(): void {
    cancelSweep = undefined;
    const before = clock.monotonic() - CROWD_WAIT_MS;
    for (const [socket, { site, call, since }] of all) {
      if (all.size < most * CROWD) return;
      if (site !== undefined && !call && since < before) {
        leave(socket);
        socket.destroy();
      }
    }
    cancelSweep = clock.after(SWEEP_MS, sweep);
  }

  return {
    enter(socket: Socket, site: string | undefined): void {
      if (site !== undefined) shift(site, 1);
      const isFull = all.size >= most && !takeOneFor(site);
      all.set(socket, { site, call: undefined, since: clock.monotonic() });
      if (isFull) {
        leave(socket);
        return void socket.destroy();
      }
      socket.once('close', () => leave(socket));
      if (all.size >= most * CROWD) cancelSweep ??= clock.after(SWEEP_MS, sweep);
    },
    /** Tracks a call until its answer is sent. */
    call(req: IncomingMessage, res: ServerResponse): void {
      const held = all.get(req.socket);
      if (!held) return;
      held.call = res;
      held.since = clock.monotonic();
      res.once('close', () => {
        if (held.call === res) held.call = undefined;
        held.since = clock.monotonic();
      });
    },
    close(): void {
      cancelSweep?.();
    },
  };
}

/** Whether a call waits for bytes of its client, or for the client to read the answer. */
function waitsForClient(res: ServerResponse): boolean {
  return !res.req.complete || res.writableEnded || res.writableNeedDrain;
}

function answerTooManyRequests(res: ServerResponse): false {
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
