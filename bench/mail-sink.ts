import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

/**
 * A server of mail that does as little as it can: takes everything, counts it and throws it away, but the last. HTTP
 * GET answers both. It speaks no more of SMTP than that: commands may be pipelined, and the end of a message is
 * CRLF.CRLF. node mail-sink.ts [DELAY]: milliseconds before the reply to a message.
 */
const delay = Number(process.argv[2] ?? 0);
const END = Buffer.from('\r\n.\r\n');
let count = 0;
let last = Buffer.alloc(0);

function serve(socket: Socket): void {
  let [held, inData] = [Buffer.alloc(0), false];
  socket.setNoDelay(true);
  socket.on('error', () => socket.destroy());
  socket.write('220 sink ESMTP\r\n');
  socket.on('data', (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    let replies = '';
    for (;;) {
      const at = held.indexOf(inData ? END : '\r\n');
      if (at < 0) break;
      const verb = inData ? '.' : held.toString('latin1', 0, 4).toUpperCase();
      if (verb === '.') [count, last] = [count + 1, held.subarray(0, at)];
      held = held.subarray(at + (inData ? END.length : 2));
      inData = verb === 'DATA';
      if (verb === '.' && delay > 0) {
        setTimeout(() => socket.write('250 ok\r\n'), delay);
        continue;
      }
      if (verb === 'QUIT') return void socket.end(`${replies}221 bye\r\n`);
      replies += inData
        ? '354 go\r\n'
        : verb === 'EHLO'
          ? '250-sink\r\n250-PIPELINING\r\n250 8BITMIME\r\n'
          : '250 ok\r\n';
    }
    if (replies !== '') socket.write(replies);
  });
}

const listen = (server: Server) =>
  new Promise<number>((resolve) => {
    // Bound to an address, so it has one.
    server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port));
  });
const smtp = createServer(serve);
const http = createHttpServer((_request, response) =>
  response.end(JSON.stringify({ count, last: last.toString('latin1') })),
);
console.log(JSON.stringify({ port: await listen(smtp), http: await listen(http) }));
process.on('SIGTERM', () => process.exit(0));
