import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createAddressList, networkOf, normalizeAddress } from '../base/networks.ts';
import type { ListenerSettings } from './listener.ts';
import { readProxyHeader } from './proxy-header.ts';
import { REFUSALS, type Reply } from './replies.ts';
import type { Meters } from './session-log.ts';

/** A proxy sends its header at once; whoever does not is none. */
const PROXY_HEADER_MS = 10_000;
/** How long a client that was turned away may take to read why. */
const FAREWELL_MS = 5_000;
/** Clients turned away are logged once in this time; the rest goes to debug. */
const QUIET_MS = 1_000;

/** Where connections come in: it counts them, turns away what is too much, and finds out whose they are. */
interface Door {
  open(): void;
  /** `welcome` is called when the client is let in, with its address and what to call when its connection is closed. */
  knock(socket: Socket, welcome: Welcome): void;
  /** Ends what waits at the door. */
  close(): void;
}

type Welcome = (address: string, leave: () => void) => void;

/** The door of one listener. */
export function createDoor(
  settings: ListenerSettings,
  { clock, log, meters }: { readonly clock: Clock; readonly log: Log; readonly meters: Meters },
): Door {
  const caps = createCaps(settings);
  const lag = createLagProbe(settings.maxLoopLagMs, clock);
  const isProxy = createAddressList(settings.proxyProtocol);
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
    meters.refused(reply);
    write('smtp.refused', { client, reply: reply.line.trimEnd() });
    hold(socket);
    socket.resume().end(reply.line);
    const cancel = clock.after(FAREWELL_MS, () => socket.destroy());
    socket.once('close', cancel);
  }

  function enterFrom(socket: Socket, address: string, welcome: Welcome) {
    const key = networkOf(address);
    const refused = caps.enterFrom(key);
    if (refused) {
      caps.leave();
      return turnAway(socket, refused, address);
    }
    welcome(address, () => {
      caps.leave();
      caps.leaveFrom(key);
    });
  }

  async function behindProxy(socket: Socket, proxy: string, welcome: Welcome) {
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
    enterFrom(socket, header.kind === 'client' ? header.address : proxy, welcome);
  }

  return frozen({
    open: lag.start,
    knock(socket, welcome) {
      const address = normalizeAddress(socket.remoteAddress ?? '');
      if (address === undefined) return void socket.destroy(); // it is gone already
      const refused = lag.lagging() ? REFUSALS.busy : caps.enter();
      if (refused) return turnAway(socket, refused, address);
      if (isProxy(address)) void behindProxy(socket, address, welcome);
      else enterFrom(socket, address, welcome);
    },
    close() {
      lag.stop();
      for (const socket of waiting) socket.destroy();
    },
  });
}

const ignore = () => {};

/** Counts sessions, in all and by address. */
interface Caps {
  /** Takes a place, or answers why there is none. */
  enter(): Reply | undefined;
  leave(): void;
  /** As `enter`, for the address `key` (base/networks.ts `networkOf`). */
  enterFrom(key: string): Reply | undefined;
  leaveFrom(key: string): void;
}

function createCaps(settings: Pick<ListenerSettings, 'maxSessions' | 'maxSessionsPerAddress'>): Caps {
  let all = 0;
  const byKey = new Map<string, number>();
  return frozen({
    enter() {
      if (all >= settings.maxSessions) return REFUSALS.tooManySessions;
      all++;
      return undefined;
    },
    leave() {
      all--;
    },
    enterFrom(key) {
      const there = byKey.get(key) ?? 0;
      if (there >= settings.maxSessionsPerAddress) return REFUSALS.tooManyFromAddress;
      byKey.set(key, there + 1);
      return undefined;
    },
    leaveFrom(key) {
      const left = (byKey.get(key) ?? 1) - 1;
      if (left > 0) byKey.set(key, left);
      else byKey.delete(key);
    },
  });
}

const PROBE_MS = 100;
/** How long the loop must lag before new sessions are put off: a single long pause is no overload. */
const PATIENCE_MS = 1000;

/** Watches how late timers come, which is how late everything comes. */
interface LagProbe {
  start(): void;
  stop(): void;
  /** Whether the loop has lagged by more than the limit for a second. */
  lagging(): boolean;
}

function createLagProbe(maxLagMs: number, clock: Clock): LagProbe {
  let cancel: (() => void) | undefined;
  let laggingSince: number | undefined;

  function probe() {
    const due = clock.monotonic() + PROBE_MS;
    cancel = clock.after(PROBE_MS, () => {
      if (clock.monotonic() - due <= maxLagMs) laggingSince = undefined;
      else laggingSince ??= due;
      probe();
    });
  }

  return frozen({
    start() {
      if (!cancel) probe();
    },
    stop() {
      cancel?.();
      cancel = undefined;
    },
    lagging: () => laggingSince !== undefined && clock.monotonic() - laggingSince >= PATIENCE_MS,
  });
}
