import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createAddressList, networkOf, normalizeAddress } from '../base/networks.ts';
import { createCaps } from './limits.ts';
import type { Meters } from './meters.ts';
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

  return frozen({
    open: lag.start,
    knock(socket) {
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

/**
 * What a PROXY header says (haproxy's proxy-protocol.txt, versions 1 and 2). client: whose connection it is · local: the
 * proxy's own, a health check · more: not all of it came yet · bad: no such header, or one that makes no sense.
 */
export type ProxyHeader =
  | { readonly kind: 'client'; readonly address: string; readonly length: number }
  | { readonly kind: 'local'; readonly length: number }
  | { readonly kind: 'more' | 'bad' };

const MORE = { kind: 'more' } as const;
const BAD = { kind: 'bad' } as const;
const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V1 = Buffer.from('PROXY ', 'latin1');
// The longest line of version 1, CRLF included.
const MAX_V1 = 107;
// Version 2 may carry 64 KiB of extensions; no proxy needs a fraction of it.
const MAX_V2 = 4096;

/** Reads the header at the start of `bytes`. */
export function parseProxyHeader(bytes: Buffer): ProxyHeader {
  const signed = Math.min(bytes.length, SIGNATURE.length);
  if (bytes.subarray(0, signed).equals(SIGNATURE.subarray(0, signed)))
    return signed < SIGNATURE.length ? MORE : parseV2(bytes);
  const begun = Math.min(bytes.length, V1.length);
  return bytes.subarray(0, begun).equals(V1.subarray(0, begun)) ? parseV1(bytes) : BAD;
}

function parseV1(bytes: Buffer): ProxyHeader {
  const end = bytes.subarray(0, MAX_V1).indexOf('\r\n');
  if (end < 0) return bytes.length < MAX_V1 ? MORE : BAD;
  const line = bytes.toString('latin1', 0, end);
  if (/^PROXY UNKNOWN(?: |$)/.test(line)) return { kind: 'local', length: end + 2 };
  const parts = /^PROXY (TCP4|TCP6) ([\da-fA-F:.]+) ([\da-fA-F:.]+) (\d{1,5}) (\d{1,5})$/.exec(line);
  if (!parts) return BAD;
  const [, family, from = '', to = '', fromPort, toPort] = parts;
  const address = normalizeAddress(from);
  const fits = (text: string) => text.includes(':') === (family === 'TCP6') && normalizeAddress(text) !== undefined;
  if (address === undefined || !fits(from) || !fits(to) || Number(fromPort) > 65535 || Number(toPort) > 65535)
    return BAD;
  return { kind: 'client', address, length: end + 2 };
}

function parseV2(bytes: Buffer): ProxyHeader {
  if (bytes.length < 16) return MORE;
  const version = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const size = bytes.readUInt16BE(14);
  const length = 16 + size;
  if (version >> 4 !== 2 || (version & 15) > 1 || length > MAX_V2) return BAD;
  if (bytes.length < length) return MORE;
  // Command LOCAL, or a family that has no IP addresses (unspecified, unix): the connection counts as the proxy's own.
  if ((version & 15) === 0 || family >> 4 === 0 || family >> 4 === 3) return { kind: 'local', length };
  if (family === 0x11 && size >= 12) return client([...bytes.subarray(16, 20)].join('.'), length);
  if (family === 0x21 && size >= 36) return client(toHex(bytes.subarray(16, 32)), length);
  return BAD;
}

function client(text: string, length: number): ProxyHeader {
  const address = normalizeAddress(text);
  return address === undefined ? BAD : { kind: 'client', address, length };
}

function toHex(bytes: Buffer): string {
  return (bytes.toString('hex').match(/.{4}/g) ?? []).join(':');
}

/** Reads the header off a socket and leaves everything behind it unread. Answers `bad` at the deadline or when the socket ends first. */
export function readProxyHeader(socket: Socket, deadlineMs: number, clock: Clock): Promise<ProxyHeader> {
  return new Promise((resolve) => {
    let held: Buffer = Buffer.alloc(0);
    const finish = (header: ProxyHeader) => {
      cancel();
      socket.off('readable', read).off('end', giveUp).off('close', giveUp);
      resolve(header);
    };
    const giveUp = () => finish(BAD);
    const read = () => {
      const chunk: Buffer | null = socket.read();
      if (chunk === null) return;
      held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
      const header = parseProxyHeader(held);
      if (header.kind === 'more') return;
      if ('length' in header && header.length < held.length) socket.unshift(held.subarray(header.length));
      finish(header);
    };
    const cancel = clock.after(deadlineMs, giveUp);
    socket.on('readable', read).on('end', giveUp).on('close', giveUp);
  });
}

const PROBE_MS = 100;
/** How long the loop must lag before new sessions are put off: a single long pause is no overload. */
const PATIENCE_MS = 1000;

/** Watches how late timers come, which is how late everything comes. */
export interface LagProbe {
  start(): void;
  stop(): void;
  /** Whether the loop has lagged by more than the limit for a second. */
  lagging(): boolean;
}

export function createLagProbe(maxLagMs: number, clock: Clock): LagProbe {
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
