import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { networkOf } from '../base/networks.ts';
import { createNetworks, normalizeAddress } from './addresses.ts';
import { createLagProbe } from './lag.ts';
import { createCaps } from './limits.ts';
import type { Meters } from './meters.ts';
import { readProxyHeader } from './proxy.ts';
import { REFUSALS, type Reply } from './refusal.ts';
import type { ListenerSettings } from './settings.ts';

/** A proxy sends its header at once; whoever does not is none. */
const PROXY_HEADER_MS = 10_000;
/** How long a client that was turned away may take to read why. */
const FAREWELL_MS = 5_000;
/** Clients turned away are logged once in this time; the rest goes to debug. */
const QUIET_MS = 1_000;

/** Where connections come in: it counts them, turns away what is too much, and finds out whose they are. */
export interface Door {
  open(): void;
  knock(socket: Socket): void;
  /** Ends what waits at the door. */
  close(): void;
}

/** `welcome` gets the socket of a session, the address of its client, and what to call when the connection is closed. */
export function createDoor(
  settings: ListenerSettings,
  deps: { readonly clock: Clock; readonly log: Log; readonly meters: Meters },
  welcome: (socket: Socket, address: string, leave: () => void) => void,
): Door {
  const { clock, log } = deps;
  const caps = createCaps(settings);
  const lag = createLagProbe(settings.maxLoopLagMs, clock);
  const isProxy = createNetworks(settings.proxyProtocol);
  const waiting = new Set<Socket>();
  let loggedAt = -Infinity;

  function hold(socket: Socket) {
    waiting.add(socket);
    socket.on('error', ignore).once('close', () => waiting.delete(socket));
  }

  /** Over a cap a client hears so; a silent drop would look like a broken network. */
  function turnAway(socket: Socket, reply: Reply, client: string | undefined) {
    const now = clock.monotonic();
    const write = now - loggedAt >= QUIET_MS ? log.info : log.debug;
    if (write === log.info) loggedAt = now;
    deps.meters.refused(reply);
    write('smtp.refused', { client, reply: reply.line.trimEnd() });
    hold(socket);
    socket.resume().end(reply.line);
    const cancel = clock.after(FAREWELL_MS, () => socket.destroy());
    socket.once('close', cancel);
  }

  function enterFrom(socket: Socket, address: string) {
    const key = networkOf(address);
    const refused = caps.enterFrom(key);
    if (refused) {
      caps.leave();
      return turnAway(socket, refused, address);
    }
    welcome(socket, address, () => {
      caps.leave();
      caps.leaveFrom(key);
    });
  }

  async function behindProxy(socket: Socket, proxy: string) {
    hold(socket);
    const header = await readProxyHeader(socket, Math.min(PROXY_HEADER_MS, settings.commandTimeoutMs), clock);
    if (socket.destroyed || header.kind === 'bad' || header.kind === 'more') {
      caps.leave();
      log.info('smtp.refused', { client: proxy, reply: 'no PROXY header' });
      socket.destroy();
      return;
    }
    waiting.delete(socket);
    socket.off('error', ignore);
    enterFrom(socket, header.kind === 'client' ? header.address : proxy);
  }

  return Object.freeze({
    open: lag.start,
    knock(socket: Socket) {
      const address = normalizeAddress(socket.remoteAddress ?? '');
      if (address === undefined) return void socket.destroy(); // it is gone already
      const refused = lag.lagging() ? REFUSALS.busy : caps.enter();
      if (refused) return turnAway(socket, refused, address);
      if (isProxy(address)) void behindProxy(socket, address);
      else enterFrom(socket, address);
    },
    close() {
      lag.stop();
      for (const socket of waiting) socket.destroy();
    },
  });
}

const ignore = () => {};
