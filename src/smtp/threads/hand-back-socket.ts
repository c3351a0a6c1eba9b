import { createServer } from 'node:net';

// The program that duplicate-socket.ts runs: it sends the socket on its descriptor 4 back to its parent. It closes its
// own copy at once, in the same turn of the event loop, so that it cannot accept a connection.
const server = createServer();
server.listen({ fd: 4 });
process.send?.('socket', server, {}, () => process.disconnect());
server.close();
