import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { createApiClient } from '../../../src/cli/import/client.ts';

describe('a busy API', () => {
  let server: Server;
  let answers: { readonly status: number; readonly retryAfter?: string }[];
  let waits: number[];

  beforeEach(async () => {
    waits = [];
    server = createServer((_request, response) => {
      const { status, retryAfter } = answers.shift() ?? { status: 200 };
      response
        .writeHead(status, { connection: 'close', ...(retryAfter !== undefined && { 'retry-after': retryAfter }) })
        .end('"PONG!"');
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterEach(() => new Promise((resolve) => server.close(resolve)));

  const client = () =>
    createApiClient(`http://127.0.0.1:${(server.address() as AddressInfo).port}/api/1.0`, 'k', {
      async wait(ms) {
        waits.push(ms);
      },
    });

  it('gets the delay that it asks for, up to a minute, and growing delays otherwise', async () => {
    answers = [
      { status: 429, retryAfter: '7' },
      { status: 503 },
      { status: 429, retryAfter: '86400' },
      { status: 429, retryAfter: 'soon' },
    ];
    expect(await client().call('/users/ping')).to.equal('PONG!');
    expect(waits).to.deep.equal([7000, 2000, 60_000, 8000]);
  });

  it('is called five times at most', async () => {
    answers = Array.from({ length: 9 }, () => ({ status: 503 }));
    const error: unknown = await client()
      .call('/users/ping')
      .catch((reason: unknown) => reason);
    expect(String(error)).to.contain('/users/ping.json answered 503');
    expect(answers).to.have.length(4);
  });
});
