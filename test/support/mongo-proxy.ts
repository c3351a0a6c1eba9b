import { connect, createServer, type Socket } from 'node:net';
import { BSON, type Document } from 'mongodb';

/** A command on its way to the server, such as `insert` into `templates`. */
export interface Command {
  readonly name: string;
  readonly collection: string;
  /** Of the whole message. */
  readonly bytes: number;
}

/**
 * `command lost` and `answer lost`: the connection ends before the server has the command, or after it has done it. `not
 * primary`: the server has it never, and the proxy answers as one that has stepped down.
 */
export const WIRE_FAULTS = ['command lost', 'answer lost', 'not primary'] as const;
type WireFault = (typeof WIRE_FAULTS)[number];

/** A wire between a driver and a server that delays, loses and refuses commands, or is cut. */
export interface MongoProxy {
  readonly address: string;
  /** The commands so far, without those by which the driver watches the server. */
  readonly commands: readonly Command[];
  /** Connections that are open, and bytes that the server has sent so far. */
  connections(): number;
  received(): number;
  /** The next command of these fails in this way, once. */
  failNext(chosen: (command: Command) => boolean, fault: WireFault): void;
  /** Every command from now on is answered as by a server that has stepped down, until it is mended. */
  stepDown(): void;
  /** Milliseconds that each message to the server takes from now on. */
  delay(ms: number): void;
  /** Ends every connection, and every new one at once, until it is mended. */
  cut(): void;
  mend(): void;
  close(): Promise<void>;
}

const OP_MSG = 2013;
const NOT_PRIMARY = {
  ok: 0,
  errmsg: 'not primary',
  code: 10107,
  codeName: 'NotWritablePrimary',
  errorLabels: ['RetryableWriteError'],
};
/** Commands of the driver's own. */
const OF_DRIVER = /^(?:hello|ismaster|ping|endSessions|killCursors|sasl\w+|createIndexes)$/i;

/** What a message says (OP_MSG: 16 bytes of header, 4 of flags, then sections; the first of kind 0 is the command). */
function documentOf(message: Buffer): Document {
  if (message.readInt32LE(12) !== OP_MSG || message[20] !== 0) return {};
  const end = 21 + message.readInt32LE(21);
  return BSON.deserialize(message.subarray(21, end));
}

function commandOf(document: Document, bytes: number): Command | undefined {
  const [first] = Object.entries<unknown>(document);
  return first && !OF_DRIVER.test(first[0]) ? { name: first[0], collection: String(first[1]), bytes } : undefined;
}

/** A message with this document in answer to a request. */
function answerTo(request: Buffer, document: Document): Buffer {
  const body = BSON.serialize(document);
  const head = Buffer.alloc(21);
  head.writeInt32LE(head.length + body.length, 0);
  head.writeInt32LE(request.readInt32LE(4), 8);
  head.writeInt32LE(OP_MSG, 12);
  return Buffer.concat([head, body]);
}

export async function startMongoProxy(target: { readonly host: string; readonly port: number }): Promise<MongoProxy> {
  const sockets = new Set<Socket>();
  /** Connections by which the driver waits for news of the server. */
  const watching = new Set<Socket>();
  const commands: Command[] = [];
  let planned: { readonly chosen: (command: Command) => boolean; readonly fault: WireFault } | undefined;
  let isCut = false;
  let isDown = false;
  let delayMs = 0;
  let received = 0;

  /** The fault of this command, if it is the one that was chosen. */
  function faultOf(command: Command | undefined): WireFault | undefined {
    if (!command) return undefined;
    commands.push(command);
    if (isDown) return 'not primary';
    if (!planned?.chosen(command)) return undefined;
    const { fault } = planned;
    planned = undefined;
    return fault;
  }

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
        watching.delete(socket);
        client.destroy();
        upstream.destroy();
      });
    }
    const pass = (message: Buffer) => {
      if (delayMs === 0) upstream.write(message);
      else setTimeout(() => upstream.write(message), delayMs).unref();
    };
    client.on('data', (chunk) => {
      waiting = Buffer.concat([waiting, chunk]);
      while (waiting.length >= 16 && waiting.length >= waiting.readInt32LE(0)) {
        const message = waiting.subarray(0, waiting.readInt32LE(0));
        waiting = waiting.subarray(message.length);
        const document = documentOf(message);
        if ('maxAwaitTimeMS' in document) watching.add(client);
        const fault = faultOf(commandOf(document, message.length));
        if (fault === 'command lost') return void client.destroy();
        if (fault === 'answer lost') lost = true;
        if (fault === 'not primary') {
          client.write(answerTo(message, NOT_PRIMARY));
          // A server that steps down tells those who watch it at once. Else the driver would wait ten seconds for news.
          for (const socket of watching) socket.destroy();
        } else pass(message);
      }
    });
    upstream.on('data', (chunk) => {
      received += chunk.length;
      if (lost) client.destroy();
      else client.write(chunk);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    address: `127.0.0.1:${address.port}`,
    commands,
    connections: () => sockets.size / 2,
    received: () => received,
    failNext(chosen, fault) {
      planned = { chosen, fault };
    },
    stepDown() {
      isDown = true;
    },
    delay(ms) {
      delayMs = ms;
    },
    cut() {
      isCut = true;
      for (const socket of sockets) socket.destroy();
    },
    mend() {
      isCut = false;
      isDown = false;
    },
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
