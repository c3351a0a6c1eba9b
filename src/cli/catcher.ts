import { createServer, type IncomingHttpHeaders } from 'node:http';

/** A POST as the catcher got it. */
export interface Caught {
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

export interface Catcher {
  readonly url: string;
  stop(): Promise<void>;
}

/** A webhook receiver for the demo: answers 200 to everything and hands over each POST that carries events. */
export function startCatcher(onPost: (caught: Caught) => void): Promise<Catcher> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(Buffer.from(chunk));
    response.end('ok');
    // When a route is made, its URL is asked by HEAD; that is no event.
    if (request.method === 'POST') onPost({ headers: request.headers, body: Buffer.concat(chunks) });
  });
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      resolve({
        url: `http://127.0.0.1:${port}/hook`,
        stop: () =>
          new Promise((done) => {
            server.close(() => done());
            server.closeAllConnections();
          }),
      });
    });
  });
}
