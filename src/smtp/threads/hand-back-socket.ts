import { createServer } from 'node:net';

// The program that duplicate-socket.ts runs: it sends the socket that it has as its descriptor 4 back to its parent. It
// closes its own at once, in the same turn of the loop, so that it can accept no connection.
const server = createServer();
server.listen({ fd: 4 });
process.send?.('socket', server, {}, () => process.disconnect());
server.close();
