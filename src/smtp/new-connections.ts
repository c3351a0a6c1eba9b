import type { Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';
import { frozen } from '../base/frozen.ts';
import type { Log } from '../base/log.ts';
import { createAddressList, normalizeAddress } from '../base/networks.ts';
import type { Admission, AdmissionResult, SessionSlot } from './admission.ts';
import type { ListenerSettings } from './listener.ts';
import { readProxyHeader } from './proxy-header.ts';
import type { Reply } from './replies.ts';

/** Timeout for the PROXY header, which a proxy sends at once. */
const PROXY_HEADER_MS = 10_000;
/** How long a rejected client may take to read the reply, and how many may do so at one time. */
const FAREWELL_MS = 5_000;
const MAX_LEAVING = 500;

type OnAdmitted = (address: string, slot: SessionSlot) => void;

/** Accepts new connections: determines the client's address, and rejects clients that `Admission` refuses. */
export function createConnectionAcceptor(
  settings: Pick<ListenerSettings, 'proxyProtocol' | 'commandTimeoutMs'>,
  { admission, clock, log }: { readonly admission: Admission; readonly clock: Clock; readonly log: Log },
) {
  const isProxy = createAddressList(settings.proxyProtocol);
  const waiting = new Set<Socket>();
  let closed = false;
  /** Rejected clients that may still read their reply. */
  let leaving = 0;

  function track(socket: Socket) {
    waiting.add(socket);
    socket.on('error', ignore).once('close', () => waiting.delete(socket));
  }

  function release(socket: Socket) {
    waiting.delete(socket);
    socket.off('error', ignore);
  }

  /** Rejects a client with a reply, because a silent drop would look like a broken network. */
  function reject(socket: Socket, reply: Reply) {
    track(socket);
    if (leaving >= MAX_LEAVING) return void socket.destroy();
    leaving++;
    socket.resume().end(reply.line);
    const cancel = clock.after(FAREWELL_MS, () => socket.destroy());
    socket.once('close', () => {
      leaving--;
      cancel();
    });
  }

  /** Waits for the answer of `Admission`; the client may disconnect in the meantime. */
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

  function enter(socket: Socket, address: string, slot: SessionSlot, welcome: OnAdmitted) {
    if (socket.destroyed) slot.leave();
    else welcome(address, slot);
  }

  async function behindProxy(socket: Socket, proxy: string, slot: SessionSlot, welcome: OnAdmitted) {
    if (closed) socket.destroy();
    track(socket);
    const header = await readProxyHeader(socket, Math.min(PROXY_HEADER_MS, settings.commandTimeoutMs), clock);
    if (socket.destroyed || header.kind === 'bad' || header.kind === 'more') {
      slot.leave();
      log.info('smtp.refused', { client: proxy, reply: 'no PROXY header' });
      socket.destroy();
      return;
    }
    release(socket);
    const address = header.kind === 'client' ? header.address : proxy;
    whenAnswered(slot.nameClient(address), socket, (refused) => {
      if (refused) reject(socket, refused);
      else enter(socket, address, slot, welcome);
    });
  }

  return frozen({
    /**
     * `welcome` is called for an admitted client, with its address and its slot, which it must release at the client's
     * disconnect.
     */
    accept(socket: Socket, welcome: OnAdmitted) {
      const address = normalizeAddress(socket.remoteAddress ?? '');
      if (address === undefined) return void socket.destroy(); // already disconnected
      const proxy = isProxy(address);
      whenAnswered<AdmissionResult>(admission.enter(address, proxy), socket, (entry) => {
        if (entry.refused) reject(socket, entry.refused);
        else if (proxy) void behindProxy(socket, address, entry.slot, welcome);
        else enter(socket, address, entry.slot, welcome);
      });
    },
    /** Destroys sockets that wait for a PROXY header or were rejected. */
    close() {
      closed = true;
      for (const socket of waiting) socket.destroy();
    },
  });
}

const ignore = () => {};
