import { connect, createServer, type Socket } from 'node:net';

/** How a wire behaves: carries everything, carries nothing and says nothing, or takes no connection. */
export type Wire = 'whole' | 'hangs' | 'refuses';

/** A wire to a server that can be pulled out, or go dead. */
interface Plug {
  readonly address: string;
  be(wire: Wire): Promise<void>;
  close(): Promise<void>;
}

export async function startPlug(target: { readonly host: string; readonly port: number }): Promise<Plug> {
  const sockets = new Set<Socket>();
  let wire: Wire = 'whole';
  const server = createServer((client) => {
    const upstream = connect(target.port, target.host);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => {});
      from.on('data', (chunk) => {
        if (wire === 'whole') to.write(chunk);
      });
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  const listen = (port: number) =>
    new Promise<void>((resolve, reject) => {
      server.once('error', reject).listen(port, '127.0.0.1', resolve);
    });
  const end = async () => {
    const closed = new Promise<void>((resolve) => {
      server.close(() => resolve());
    });
    for (const socket of sockets) socket.destroy();
    await closed;
  };
  await listen(0);
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const { port } = address;
  return {
    address: `127.0.0.1:${port}`,
    async be(next) {
      const before = wire;
      wire = next;
      // What was swallowed while it hung is gone, so nothing that hangs on it can go on.
      if (before === 'hangs') for (const socket of sockets) socket.destroy();
      if (next === 'refuses' && server.listening) await end();
      if (next !== 'refuses' && !server.listening) await listen(port);
    },
    async close() {
      if (server.listening) await end();
    },
  };
}
