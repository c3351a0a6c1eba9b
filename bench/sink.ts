import { createServer } from 'node:http';

/** Counts POSTs and throws them away. GET answers the count so far and the time of the last one; HEAD answers 200. */
let count = 0;
let last = 0;
const server = createServer((request, response) => {
  if (request.method !== 'POST') return void response.end(JSON.stringify({ count, last }));
  request.on('end', () => {
    count++;
    last = Date.now();
    response.end('ok');
  });
  request.resume();
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' && address !== null ? address.port : 0 }));
});
process.on('SIGTERM', () => process.exit(0));
