import { createServer, type Socket } from 'node:net';
import { BSON, type Document } from 'mongodb';

/** A server that says hello as a standalone MongoDB and answers everything else as the test says. */
export interface ScriptedMongo {
  readonly url: string;
  /** Connections that are open now, also those by which the driver watches it. */
  connections(): number;
  /** The most that were open at once. */
  peak(): number;
  /** How commands are answered from now on; undefined: not at all. */
  answer(reply: (command: string, document: Document) => Document | undefined): void;
  /** Closes every connection; new ones are accepted. */
  hangUp(): void;
  stop(): Promise<void>;
}

const OP_REPLY = 1;
const OP_MSG = 2013;
const HELLO = {
  helloOk: true,
  ismaster: true,
  isWritablePrimary: true,
  maxBsonObjectSize: 16_777_216,
  maxMessageSizeBytes: 48_000_000,
  maxWriteBatchSize: 100_000,
  minWireVersion: 0,
  maxWireVersion: 21,
  ok: 1,
};

/** What a server with no rows answers. */
export function emptyAnswer(command: string): Document {
  if (command === 'find') return { cursor: { id: 0n, ns: 'x.y', firstBatch: [] }, ok: 1 };
  return command === 'findAndModify' ? { value: null, ok: 1 } : { n: 1, ok: 1 };
}

export async function startScriptedMongo(): Promise<ScriptedMongo> {
  const sockets = new Set<Socket>();
  let peak = 0;
  let answer: (command: string, document: Document) => Document | undefined = emptyAnswer;
  const server = createServer((socket) => {
    sockets.add(socket);
    peak = Math.max(peak, sockets.size);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
    let waiting = Buffer.alloc(0);
    socket.on('data', (chunk) => {
      waiting = Buffer.concat([waiting, chunk]);
      while (waiting.length >= 16 && waiting.length >= waiting.readInt32LE(0)) {
        const message = waiting.subarray(0, waiting.readInt32LE(0));
        waiting = waiting.subarray(message.length);
        const isMessage = message.readInt32LE(12) === OP_MSG;
        // An OP_QUERY is the driver's first hello.
        const document = isMessage ? readDocument(message, 21) : { hello: 1 };
        const command = Object.keys(document)[0] ?? '';
        const reply = /^hello$|^ismaster$/i.test(command) ? HELLO : answer(command, document);
        if (reply) socket.write(toMessage(message.readInt32LE(4), isMessage, reply));
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    url: `mongodb://127.0.0.1:${address.port}/scripted`,
    connections: () => sockets.size,
    peak: () => peak,
    answer(reply) {
      answer = reply;
    },
    hangUp() {
      for (const socket of sockets) socket.destroy();
    },
    async stop() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

function readDocument(message: Buffer, at: number): Document {
  return BSON.deserialize(message.subarray(at, at + message.readInt32LE(at)));
}

function toMessage(to: number, isMessage: boolean, document: Document): Buffer {
  const body = BSON.serialize(document);
  const before = Buffer.alloc(isMessage ? 5 : 20); // flags and the kind of the section; or flags, cursor, start and count
  if (!isMessage) before.writeInt32LE(1, 16);
  const head = Buffer.alloc(16);
  head.writeInt32LE(16 + before.length + body.length, 0);
  head.writeInt32LE(to, 8);
  head.writeInt32LE(isMessage ? OP_MSG : OP_REPLY, 12);
  return Buffer.concat([head, before, body]);
}
