import { createServer, type Socket } from 'node:net';

/**
 * Counts POSTs and throws them away. GET answers the count so far and the time of the last one; HEAD answers 200. It is
 * HTTP by hand, because it shares the processors with what is measured: node:http took a sixth of them. Bodies come
 * with their length.
 */
let count = 0;
let last = 0;
const END = Buffer.from('\r\n\r\n');

function serve(socket: Socket): void {
  /** The beginning of a head whose end has not come yet. */
  let early: Buffer = Buffer.alloc(0);
  /** Bytes of the present body that are still to come. */
  let left = 0;
  socket.setNoDelay(true);
  socket.on('error', () => {});
  socket.on('data', (fresh) => {
    const chunk = early.length === 0 ? fresh : Buffer.concat([early, fresh]);
    early = chunk.subarray(chunk.length);
    for (let at = 0; at < chunk.length; ) {
      if (left > 0) {
        const taken = Math.min(left, chunk.length - at);
        at += taken;
        left -= taken;
        if (left === 0) posted(socket);
        continue;
      }
      const end = chunk.indexOf(END, at);
      if (end < 0) {
        early = chunk.subarray(at);
        return;
      }
      left = begin(socket, chunk.toString('latin1', at, end));
      at = end + END.length;
    }
  });
}

/** What a request wants; answers the length of the body that follows. */
function begin(socket: Socket, head: string): number {
  if (head.startsWith('POST')) {
    const length = Number(/content-length: *(\d+)/i.exec(head)?.[1] ?? Number.NaN);
    if (Number.isNaN(length)) throw new Error(`a POST without a length: ${head}`);
    if (length === 0) posted(socket);
    return length;
  }
  const body = head.startsWith('HEAD') ? '' : JSON.stringify({ count, last });
  socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
  return 0;
}

function posted(socket: Socket): void {
  count++;
  last = Date.now();
  socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
}

const server = createServer(serve);
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' && address !== null ? address.port : 0 }));
});
process.on('SIGTERM', () => process.exit(0));
