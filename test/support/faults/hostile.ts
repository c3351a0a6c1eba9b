import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';

/**
 * How a receiver spoils its answers: a byte a second of a header or of a body, a body without end, a header without
 * end.
 */
export type Spoiling = 'drip-headers' | 'drip-body' | 'endless-body' | 'endless-header';

/** A receiver that answers badly, and writes down how long each of its connections was held. */
export interface Hostile {
  /** `http://127.0.0.1:port/hook`. */
  readonly url: string;
  /** Of connections that are over: milliseconds from the end of the request's headers to the end of the connection. */
  readonly held: readonly number[];
  /** Connections that are open now. */
  open(): number;
  /** Whether it spoils its answers; at first it answers 200. */
  spoil(now: boolean): void;
  stop(): Promise<void>;
}

const START: Readonly<Record<Spoiling, string>> = {
  'drip-headers': 'HTTP/1.1 200 OK\r\nx-drip: ',
  'drip-body': 'HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n',
  'endless-body': 'HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n',
  'endless-header': 'HTTP/1.1 200 OK\r\nx-huge: ',
};
const PIECE = 'x'.repeat(65_536);
const GOOD = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n';

/**
 * `most`: bytes of what is endless, after which it waits; a gigabyte, like the largest of its kind, when nothing is
 * said.
 */
export async function startHostile(spoiling: Spoiling, most = 2 ** 30): Promise<Hostile> {
  const held: number[] = [];
  const sockets = new Set<Socket>();
  let spoils = false;
  const server = createServer((socket) => {
    sockets.add(socket);
    let began: number | undefined;
    let wasSpoilt = false;
    socket.on('error', () => {});
    socket.on('data', () => {
      if (began !== undefined) return;
      began = performance.now();
      wasSpoilt = spoils;
      if (!spoils) socket.end(GOOD);
      else ruin(socket, spoiling, most);
    });
    socket.once('close', () => {
      sockets.delete(socket);
      if (began !== undefined && wasSpoilt) held.push(performance.now() - began);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    url: `http://127.0.0.1:${address.port}/hook`,
    held,
    open: () => sockets.size,
    spoil(now) {
      spoils = now;
    },
    async stop() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function ruin(socket: Socket, spoiling: Spoiling, most: number): void {
  socket.write(START[spoiling]);
  if (spoiling === 'endless-body' || spoiling === 'endless-header') return flood(socket, most);
  const timer = setInterval(() => socket.write('x'), 1000);
  socket.once('close', () => clearInterval(timer));
}

/** Writes as long as the other side reads. */
function flood(socket: Socket, most: number): void {
  let written = 0;
  const more = () => {
    while (!socket.destroyed && written < most) {
      written += PIECE.length;
      if (!socket.write(PIECE)) return;
    }
  };
  socket.on('drain', more);
  more();
}
