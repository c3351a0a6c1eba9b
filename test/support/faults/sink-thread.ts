import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parentPort } from 'node:worker_threads';
import { hashesOf } from './hash.ts';
import type { Manner, Said, Told } from './sink.ts';

async function textOf(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function serve(say: (said: Said) => void, listen: (heard: (told: Told) => void) => void): Promise<void> {
  const manners = new Map<string | null, Manner>([[null, { status: 200 }]]);
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    const path = request.url ?? '';
    const { status, afterMs = 0 } = manners.get(path) ?? manners.get(null) ?? { status: 200 };
    const body = await textOf(request);
    if (request.method !== 'POST' || body.startsWith('mandrill_events=%5B%5D'))
      return void response.writeHead(200).end();
    say({
      arrived: { id: String(request.headers['webhook-id']), hashes: hashesOf(body), path, status, at: Date.now() },
    });
    if (status > 0) setTimeout(() => response.writeHead(status).end(), afterMs);
  };
  // A daemon that was killed in the middle of a post is what these tests are about.
  const server = createServer({ keepAlive: true }, (request, response) => {
    take(request, response).catch(() => {
      response.destroy();
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  listen((told) => {
    if (told !== 'stop') return void manners.set(told.path, told.manner);
    server.close();
    server.closeAllConnections();
    parentPort?.close();
  });
  // listen() on a host and port: the address is never a string or null here.
  say({ port: (server.address() as AddressInfo).port });
}

const port = parentPort;
if (port)
  await serve(
    (said) => port.postMessage(said),
    (heard) => {
      port.on('message', heard);
    },
  );
