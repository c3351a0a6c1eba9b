import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { parentPort } from 'node:worker_threads';
import { formatAt, type ReadPost, readPost } from '../read-post.ts';
import { fromFirstLine, hashesOf, messageHash } from './hash.ts';
import { headOf } from './load.ts';
import type { Manner, Said, Told } from './sink.ts';

/** The messages in a post of mail, in the format that its path names. */
async function hashesIn(path: string, type: string, body: Buffer): Promise<readonly string[]> {
  const format = formatAt(path);
  return format === 'mandrill' ? hashesOf(body.toString()) : [hashOf(await readPost(format, type, body))];
}

/** A parsed message is put together again: the client's fields are known but for two. */
function hashOf({ raw, field, text }: ReadPost): string {
  if (raw) return messageHash(fromFirstLine(raw.toString('latin1')));
  return messageHash(headOf(field('x-ledger') ?? '', field('message-id') ?? '') + text);
}

async function bytesOf(request: IncomingMessage): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function serve(say: (said: Said) => void, listen: (heard: (told: Told) => void) => void): Promise<void> {
  const manners = new Map<string | null, Manner>([[null, { status: 200 }]]);
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    const path = request.url ?? '';
    const { status, afterMs = 0 } = manners.get(path) ?? manners.get(null) ?? { status: 200 };
    const body = await bytesOf(request);
    if (request.method !== 'POST' || body.toString('latin1', 0, 22) === 'mandrill_events=%5B%5D')
      return void response.writeHead(200).end();
    const hashes = await hashesIn(path, String(request.headers['content-type']), body);
    say({ arrived: { id: String(request.headers['webhook-id']), hashes, path, status, at: Date.now() } });
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
