import { connect, type Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';

/** For one address to answer. */
const CONNECT_MS = 20_000;

export interface Destination {
  readonly address: string;
  readonly port: number;
  /** The address of ours that it leaves from; undefined: the one that the system takes. */
  readonly source: string | undefined;
}

/** A connection that answered in time. An abort destroys it as long as it is not there yet. */
export function openConnection(
  { address, port, source }: Destination,
  clock: Clock,
  signal: AbortSignal,
): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port, ...(source !== undefined && { localAddress: source }) });
    const end = () => socket.destroy(tookTooLong());
    const cancel = clock.after(CONNECT_MS, end);
    const settled = () => {
      cancel();
      signal.removeEventListener('abort', end);
    };
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    socket.once('connect', () => {
      settled();
      resolve(socket);
    });
    // Stays: an error that comes when nobody listens any more would end the process.
    socket.on('error', (error) => {
      settled();
      reject(error);
    });
  });
}

/** What a connection is destroyed with when time is up. */
export function tookTooLong(): Error {
  return Object.assign(new Error('it took too long'), { code: 'ETIMEDOUT' });
}
