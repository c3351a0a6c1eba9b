import { connect, type Socket } from 'node:net';
import type { Clock } from '../base/clock.ts';

/** For one address to answer. */
const CONNECT_MS = 20_000;

/** A connection that is destroyed when time is up. */
export function openConnection({ address, port }: { readonly address: string; readonly port: number }, clock: Clock, signal: AbortSignal): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port });
    const end = () => socket.destroy(Object.assign(new Error('it took too long'), { code: 'ETIMEDOUT', command: 'CONN' }));
    const cancel = clock.after(CONNECT_MS, end);
    signal.addEventListener('abort', end, { once: true });
    if (signal.aborted) end();
    socket.once('connect', () => { cancel(); resolve(socket); });
    // Stays: an error that comes when nobody listens any more would end the process.
    socket.on('error', (error) => { cancel(); reject(Object.assign(error, { command: 'CONN' })); });
    socket.once('close', () => { cancel(); signal.removeEventListener('abort', end); });
  });
}
