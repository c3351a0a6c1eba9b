import { connect, createServer, type Socket } from 'node:net';
import { BSON } from 'mongodb';

/** A wire between a driver and a server that can lose an answer, or be cut. */
export interface MongoProxy {
  readonly address: string;
  /** The next command of this name reaches the server; its answer does not come back, the connection ends instead. */
  loseNextAnswer(command: string): void;
  /** Ends every connection, and every new one at once, until it is mended. */
  cut(): void;
  mend(): void;
  close(): Promise<void>;
}

/** MongoDB's messages (OP_MSG): 16 bytes of header, 4 of flags, then sections; the first of kind 0 is the command. */
function commandOf(message: Buffer): string {
  const opMsg = 2013;
  if (message.readInt32LE(12) !== opMsg || message[20] !== 0) return '';
  const end = 21 + message.readInt32LE(21);
  return Object.keys(BSON.deserialize(message.subarray(21, end)))[0] ?? '';
}

export async function startMongoProxy(target: { readonly host: string; readonly port: number }): Promise<MongoProxy> {
  const sockets = new Set<Socket>();
  let losing: string | undefined;
  let isCut = false;
  const server = createServer((client) => {
    if (isCut) return void client.destroy();
    const upstream = connect(target.port, target.host);
    let lost = false;
    let waiting = Buffer.alloc(0);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        sockets.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    client.on('data', (chunk) => {
      waiting = Buffer.concat([waiting, chunk]);
      while (waiting.length >= 16 && waiting.length >= waiting.readInt32LE(0)) {
        const message = waiting.subarray(0, waiting.readInt32LE(0));
        waiting = waiting.subarray(message.length);
        if (losing !== undefined && commandOf(message) === losing) {
          losing = undefined;
          lost = true;
        }
        upstream.write(message);
      }
    });
    upstream.on('data', (chunk) => {
      if (lost) client.destroy();
      else client.write(chunk);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    address: `127.0.0.1:${address.port}`,
    loseNextAnswer(command) {
      losing = command;
    },
    cut() {
      isCut = true;
      for (const socket of sockets) socket.destroy();
    },
    mend() {
      isCut = false;
    },
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
