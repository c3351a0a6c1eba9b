import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createAddressList, normalizeAddress } from '../base/networks.ts';
import type { Admission, Entry, Place } from './admission.ts';
import type { ListenerSettings } from './listener.ts';
import { readProxyHeader } from './proxy-header.ts';
import type { Reply } from './replies.ts';

/** A proxy sends its header at once; whoever does not is none. */
const PROXY_HEADER_MS = 10_000;
/** How long a client that was turned away may take to read why. */
const FAREWELL_MS = 5_000;

/** Where connections come in: it finds out whose they are, and turns away whom `Admission` does not let in. */
interface Door {
  /** `welcome` is called when the client is let in, with its address and what to call when its connection is closed. */
  knock(socket: Socket, welcome: Welcome): void;
  /** Ends what waits at the door. */
  close(): void;
}

type Welcome = (address: string, leave: () => void) => void;

/** The door of one listener. */
export function createDoor(
  settings: Pick<ListenerSettings, 'proxyProtocol' | 'commandTimeoutMs'>,
  { admission, clock, log }: { readonly admission: Admission; readonly clock: Clock; readonly log: Log },
): Door {
  const isProxy = createAddressList(settings.proxyProtocol);
  const waiting = new Set<Socket>();
  let closed = false;

  function hold(socket: Socket) {
    waiting.add(socket);
    socket.on('error', ignore).once('close', () => waiting.delete(socket));
  }

  function letGo(socket: Socket) {
    waiting.delete(socket);
    socket.off('error', ignore);
  }

  /** Over a cap a client hears so; a silent drop would look like a broken network. */
  function turnAway(socket: Socket, reply: Reply) {
    hold(socket);
    socket.resume().end(reply.line);
    const cancel = clock.after(FAREWELL_MS, () => socket.destroy());
    socket.once('close', cancel);
  }

  /** Waits for an answer about a client, who may leave in the meantime. */
  function whenAnswered<T>(answer: T | Promise<T>, socket: Socket, go: (answer: T) => void) {
    if (!(answer instanceof Promise)) return go(answer);
    socket.on('error', ignore);
    answer.then(
      (later) => {
        socket.off('error', ignore);
        go(later);
      },
      (fault: unknown) => {
        log.error('smtp.fault', { fault });
        socket.destroy();
      },
    );
  }

  function enter(socket: Socket, address: string, place: Place, welcome: Welcome) {
    if (socket.destroyed) place.leave();
    else welcome(address, place.leave);
  }

  async function behindProxy(socket: Socket, proxy: string, place: Place, welcome: Welcome) {
    if (closed) socket.destroy();
    hold(socket);
    const header = await readProxyHeader(socket, Math.min(PROXY_HEADER_MS, settings.commandTimeoutMs), clock);
    if (socket.destroyed || header.kind === 'bad' || header.kind === 'more') {
      place.leave();
      log.info('smtp.refused', { client: proxy, reply: 'no PROXY header' });
      socket.destroy();
      return;
    }
    letGo(socket);
    const address = header.kind === 'client' ? header.address : proxy;
    whenAnswered(place.nameClient(address), socket, (refused) => {
      if (refused) turnAway(socket, refused);
      else enter(socket, address, place, welcome);
    });
  }

  return frozen({
    knock(socket, welcome) {
      const address = normalizeAddress(socket.remoteAddress ?? '');
      if (address === undefined) return void socket.destroy(); // it is gone already
      const proxy = isProxy(address);
      whenAnswered<Entry>(admission.enter(address, proxy), socket, (entry) => {
        if (entry.refused) turnAway(socket, entry.refused);
        else if (proxy) void behindProxy(socket, address, entry.place, welcome);
        else enter(socket, address, entry.place, welcome);
      });
    },
    close() {
      closed = true;
      for (const socket of waiting) socket.destroy();
    },
  });
}

const ignore = () => {};
