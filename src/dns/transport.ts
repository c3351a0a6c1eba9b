import type { Socket as UdpSocket } from 'node:dgram';
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import type { Server } from './servers.ts';

/** What a packet on the way back may do to the one who waits. */
export interface Listener {
  /** Bytes that claim to be the answer. True when they were, and nothing more is awaited. */
  packet(bytes: Buffer): boolean;
  /** Nothing will come from there any more. */
  failed(): void;
}

/** We announce 1232 octets (RFC 6891 section 6.2.5, the size that passes everywhere); what is much larger was not meant for us. */
const LARGEST_DATAGRAM = 4096;
/** Larger answers than this are of no use for mail and cost time to read. */
const LARGEST_STREAM = 32_768;

/**
 * Sends a question over UDP. Each has a socket, and so a source port, of its own: the port is what a forger has to guess
 * beside the id (RFC 5452 section 9.2). The socket is connected, so the system drops what comes from anybody but the
 * server, and tells at once when nobody listens there. The answer closes it.
 */
export function sendUdp(server: Server, query: Buffer, listener: Listener): () => void {
  const family = isIPv6(server.address) ? 6 : 4;
  const socket: UdpSocket = createSocket({
    type: family === 6 ? 'udp6' : 'udp4',
    lookup: (_host, _options, done) => done(null, server.address, family), // an address needs no look-up
  });
  let closed = false;
  const close = () => {
    if (closed) return;
    closed = true;
    socket.close();
  };
  const fail = () => {
    if (closed) return;
    close();
    listener.failed();
  };
  socket.on('error', fail);
  socket.on('message', (bytes) => {
    if (!closed && bytes.length <= LARGEST_DATAGRAM && listener.packet(bytes)) close();
  });
  socket.connect(server.port, server.address, () => {
    if (!closed)
      socket.send(query, (error) => {
        if (error) fail();
      });
  });
  return close;
}

/** Sends a question over TCP, framed by its length (RFC 7766 section 8). The answer closes the connection. */
export function sendTcp(server: Server, query: Buffer, listener: Listener): () => void {
  const socket = connect({ host: server.address, port: server.port });
  let closed = false;
  let held = Buffer.alloc(0);
  const close = () => {
    closed = true;
    socket.destroy();
  };
  const fail = () => {
    if (closed) return;
    close();
    listener.failed();
  };
  socket.on('error', fail).on('close', fail);
  socket.on('connect', () => {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(query.length);
    socket.write(Buffer.concat([length, query]));
  });
  socket.on('data', (chunk) => {
    if (closed) return;
    held = Buffer.concat([held, chunk]);
    if (held.length < 2) return;
    const length = held.readUInt16BE();
    if (length > LARGEST_STREAM) return fail();
    if (held.length < 2 + length) return;
    if (listener.packet(held.subarray(2, 2 + length))) close();
    else fail();
  });
  return close;
}
