import type { RemoteInfo } from 'node:dgram';
import { createSocket } from 'node:dgram';
import { Packet } from 'dns2';

interface RawServer {
  readonly server: string;
  stop(): Promise<void>;
}

/** A UDP server that leaves the answer to the test: for what a name server would never do, and to see who asks. */
export async function startRawServer(
  handle: (request: Packet, from: RemoteInfo, reply: (bytes: Buffer) => void) => void,
  address: '127.0.0.1' | '127.0.0.2' | '::1' = '127.0.0.1',
): Promise<RawServer> {
  const socket = createSocket(address === '::1' ? 'udp6' : 'udp4');
  socket.on('message', (bytes, from) =>
    handle(Packet.parse(bytes), from, (answer) => socket.send(answer, from.port, from.address)),
  );
  await new Promise<void>((resolve, reject) => {
    socket.once('error', reject);
    socket.bind(0, address, resolve);
  });
  const { port } = socket.address();
  return {
    server: address === '::1' ? `[::1]:${port}` : `${address}:${port}`,
    stop: () => new Promise((resolve) => socket.close(() => resolve())),
  };
}

/** An answer of A records to a question, as bytes. */
export function addressAnswer(request: Packet, ...addresses: string[]): Buffer {
  const response = Packet.createResponseFromRequest(request);
  for (const address of addresses) {
    const record = new Packet.Resource(request.questions[0]?.name ?? '', Packet.TYPE.A, Packet.CLASS.IN, 60);
    response.answers.push(Object.assign(record, { address }));
  }
  return response.toBuffer();
}
