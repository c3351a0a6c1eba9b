import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import type { Log } from '../base/log.ts';
import type { ListenEntry } from './settings.ts';

/** The sockets we listen on. */
export interface Ports {
  /** Opens all of them, or none. */
  open(): Promise<void>;
  /** Takes no more connections; resolves when those that were taken are gone. */
  close(): Promise<void>;
  addresses(): { readonly address: string; readonly port: number }[];
  listening(): boolean;
}

export function createPorts(entries: readonly ListenEntry[], onSocket: (socket: Socket) => void, log: Log): Ports {
  const servers: Server[] = [];

  async function open(entry: ListenEntry): Promise<void> {
    // A client may end its side behind its last command and still wait for the answers.
    const server = createServer({ allowHalfOpen: true, noDelay: true }, onSocket);
    servers.push(server.listen(entry));
    await once(server, 'listening');
    server.on('error', (fault) => log.error('smtp.fault', { fault }));
  }

  const close = async () => {
    await Promise.all(servers.splice(0).map((server) => new Promise<void>((closed) => server.close(() => closed()))));
  };

  return Object.freeze({
    async open() {
      try {
        await Promise.all(entries.map(open));
      } catch (error) {
        await close();
        throw error;
      }
      for (const place of servers.map(placeOf)) log.info('smtp.listening', place);
    },
    close,
    addresses: () => servers.map(placeOf),
    listening: () => servers.length > 0 && servers.every((server) => server.listening),
  });
}

function placeOf(server: Server): { readonly address: string; readonly port: number } {
  const place = server.address();
  if (place === null) return { address: '', port: 0 };
  return typeof place === 'string' ? { address: place, port: 0 } : { address: place.address, port: place.port };
}
