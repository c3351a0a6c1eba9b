import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { createServer as createNetServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { createPoster } from '../../../src/webhooks/post/post.ts';
import type { Poster } from '../../../src/webhooks/types.ts';
import { createTestClock } from '../../support/clock.ts';
import { bytes, openPoster } from '../../support/delivery.ts';
import { freePort } from '../../support/free-port.ts';
import { type How, type Receiver, startReceiver } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

const form = { 'content-type': 'application/x-www-form-urlencoded' };

describe('an attempt', () => {
  let receiver: Receiver;
  const posters: Poster[] = [];
  const open = (...args: Parameters<typeof openPoster>): Poster => {
    const poster = openPoster(...args);
    posters.push(poster);
    return poster;
  };

  beforeEach(async () => {
    receiver = await startReceiver();
  });
  afterEach(async () => {
    for (const poster of posters.splice(0)) await poster.stop();
    await receiver.stop();
  });

  it('posts the exact bytes with their length, its headers and its User-Agent', async () => {
    const result = await open().post(
      `${receiver.url}?token=s%20t`,
      { ...form, 'webhook-id': 'x1' },
      bytes('mandrill_events=%5B%5D'),
    );
    expect(result).to.include({ kind: 'answered', status: 200 });
    const [request] = receiver.requests;
    expect(request?.method).to.equal('POST');
    expect(request?.url).to.equal('/hook?token=s%20t');
    expect(request?.body.toString()).to.equal('mandrill_events=%5B%5D');
    expect(request?.headers).to.include({
      'user-agent': 'Postern/test',
      'content-length': '22',
      'webhook-id': 'x1',
      'content-type': form['content-type'],
      host: `127.0.0.1:${receiver.port}`,
      accept: '*/*',
    });
  });

  it('frees a body that the system has sent, for any answer', async () => {
    for (const status of [200, 500]) {
      receiver.answer(() => ({ status }));
      const body = bytes(`of ${status}`);
      await open().post(receiver.url, form, body);
      expect(receiver.requests.at(-1)?.body.toString()).to.equal(`of ${status}`);
      expect(body.kind === 'memory' && body.bytes.byteLength).to.equal(0);
    }
  });

  it('keeps a body that is not fully sent: early answer, timeout', async () => {
    const large = randomBytes(20_000_000);
    for (const answer of ['HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n', '']) {
      const sockets: Socket[] = [];
      const server = createNetServer((socket) => {
        sockets.push(socket);
        socket.on('error', () => {});
        socket.once('data', () => {
          socket.pause();
          socket.write(answer);
        });
      });
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const address = server.address();
      if (typeof address !== 'object' || address === null) throw new Error('no port');
      const body = { kind: 'memory', bytes: new Uint8Array(large) } as const;
      await open({ timeoutMs: 300 }).post(`http://127.0.0.1:${address.port}/`, form, body);
      expect(large.equals(body.bytes)).to.equal(true);
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    }
  });

  it('streams a file with its length', async () => {
    const path = join(await tempDir(), 'body');
    const large = randomBytes(3_000_000);
    await writeFile(path, large);
    const result = await open().post(receiver.url, form, { kind: 'file', path, size: large.length });
    expect(result).to.include({ kind: 'answered', status: 200 });
    const [request] = receiver.requests;
    expect(request?.headers['content-length']).to.equal(String(large.length));
    expect(request?.headers['transfer-encoding']).to.equal(undefined);
    expect(sha(request?.body ?? Buffer.alloc(0))).to.equal(sha(large));
  });

  it('streams a file unchanged to a slow reader', async () => {
    const path = join(await tempDir(), 'body');
    const large = randomBytes(12_000_001);
    await writeFile(path, large);
    const hash = createHash('sha256');
    const port = await freePort();
    const slow = createServer(async (request, response) => {
      for await (const chunk of request) {
        hash.update(chunk);
        for (let turn = 0; turn < 100; turn++)
          await new Promise((resolve) => {
            setImmediate(resolve);
          });
      }
      response.end();
    });
    await once(slow.listen(port, '127.0.0.1'), 'listening');
    const result = await open().post(`http://127.0.0.1:${port}/hook`, form, { kind: 'file', path, size: large.length });
    slow.close();
    expect(result).to.include({ kind: 'answered', status: 200 });
    expect(hash.digest('hex')).to.equal(sha(large));
  });

  it('returns an error and does not throw when the file of the body is gone', async () => {
    const result = await open().post(receiver.url, form, { kind: 'file', path: '/nonexistent/body', size: 10 });
    expect(result.kind).to.equal('unanswered');
  });

  it('reuses one connection for one attempt after another', async () => {
    const poster = open();
    for (let i = 0; i < 5; i++) await poster.post(receiver.url, form, bytes('a'));
    expect(receiver.requests).to.have.length(5);
    expect(receiver.connections()).to.equal(1);
  });

  it('keeps the status, Retry-After and the start of the answer, printable', async () => {
    receiver.answer({
      status: 503,
      headers: { 'retry-after': '120' },
      body: 'busy\r\n\u0000\u001b[31m\u202e' + 'é'.repeat(3000),
    });
    const result = await open().post(receiver.url, form, bytes('a'));
    expect(result).to.include({ kind: 'answered', status: 503, retryAfter: '120' });
    const answer = result.kind === 'answered' ? result.answer : '';
    expect(answer).to.have.length(512);
    expect(answer.startsWith('busy \ufffd\ufffd[31m\ufffdéé')).to.equal(true);
  });

  it('follows no redirect, even to a private address', async () => {
    const canary = await startReceiver();
    for (const status of [301, 302, 303, 307, 308]) {
      receiver.answer({ redirect: canary.url, status });
      expect(await open().post(receiver.url, form, bytes('a'))).to.include({ kind: 'answered', status });
    }
    expect(canary.connections()).to.equal(0);
    await canary.stop();
  });

  it('sends user and password of the URL as basic authorization and not in the request line', async () => {
    await open().post(receiver.url.replace('//', '//jo%40x:p%3Aw@'), form, bytes('a'));
    expect(receiver.requests[0]?.headers['authorization']).to.equal(
      `Basic ${Buffer.from('jo@x:p:w').toString('base64')}`,
    );
    expect(receiver.requests[0]?.url).to.equal('/hook');
  });

  it('sends HEAD without a body', async () => {
    receiver.answerHead({ status: 204 });
    expect(await open().head(receiver.url)).to.include({ kind: 'answered', status: 204, answer: '' });
    expect(receiver.requests[0]?.method).to.equal('HEAD');
  });

  it('connects to the checked address and keeps the name in Host', async () => {
    const poster = open({ names: { 'hooks.example': ['127.0.0.1'] } });
    expect(await poster.post(`http://hooks.example:${receiver.port}/hook`, form, bytes('a'))).to.include({
      status: 200,
    });
    expect(receiver.requests[0]?.headers['host']).to.equal(`hooks.example:${receiver.port}`);
  });

  it('tries the next address when the first refuses the connection', async () => {
    const poster = open({ names: { 'hooks.example': ['127.0.0.9', '127.0.0.1'] } });
    expect(await poster.post(`http://hooks.example:${receiver.port}/hook`, form, bytes('a'))).to.include({
      status: 200,
    });
  });

  it('does not reuse a connection to an address that DNS no longer returns', async () => {
    let now = ['127.0.0.1'];
    const poster = open({ names: { 'hooks.example': () => now } });
    const url = `http://hooks.example:${receiver.port}/hook`;
    expect(await poster.post(url, form, bytes('a'))).to.include({ status: 200 });
    now = ['127.0.0.77'];
    expect(await poster.post(url, form, bytes('b'))).to.include({ kind: 'unanswered', error: 'connection refused' });
    expect(receiver.requests).to.have.length(1);
    await until('the old connection is closed', () => receiver.open() === 0);
  });

  describe('against a faulty endpoint', () => {
    const cases: readonly (readonly [string, How, string])[] = [
      ['hangs', 'hang', 'timeout'],
      ['drips its headers a byte a second', 'drip-headers', 'timeout'],
      ['resets the connection', 'reset', 'connection reset'],
      ['closes the connection without a word', 'close', 'connection reset'],
      ['ends in the middle of the status line', 'cut', 'connection reset'],
      ['speaks something else', 'malformed', 'malformed answer'],
    ];
    for (const [what, how, error] of cases) {
      it(`reports "${error}" for one that ${what}`, async () => {
        receiver.answer(how);
        const result = await open({ timeoutMs: 250 }).post(receiver.url, form, bytes('a'));
        expect(result).to.include({ kind: 'unanswered', error, connected: true });
        await until('the connection is closed', () => receiver.open() === 0);
      });
    }

    it('accepts the status of a truncated answer, and does not post again', async () => {
      receiver.answer('close-after-headers');
      expect(await open().post(receiver.url, form, bytes('a'))).to.include({ kind: 'answered', status: 200 });
      expect(receiver.requests).to.have.length(1);
    });

    it('accepts the status before a header of a gigabyte, and closes', async () => {
      receiver.answer({ hugeHeader: 2 ** 30 });
      expect(await open().post(receiver.url, form, bytes('a'))).to.include({ kind: 'answered', status: 200 });
      expect(receiver.requests).to.have.length(1);
      await until('the connection is closed', () => receiver.open() === 0);
    });

    it('ends at the deadline with the status of a slow answer', async () => {
      receiver.answer('drip-body');
      const result = await open({ timeoutMs: 250 }).post(receiver.url, form, bytes('a'));
      expect(result).to.include({ kind: 'answered', status: 200 });
      await until('the connection is closed', () => receiver.open() === 0);
    });

    it('reads 16 KiB of an endless answer and closes', async () => {
      receiver.answer('endless');
      const result = await open().post(receiver.url, form, bytes('a'));
      expect(result).to.include({ kind: 'answered', status: 200, answer: 'e'.repeat(512) });
      await until('the connection is closed', () => receiver.open() === 0);
    });

    it('reports "connection refused" if nothing listens', async () => {
      const port = await freePort();
      expect(await open().post(`http://127.0.0.1:${port}/`, form, bytes('a'))).to.include({
        error: 'connection refused',
        connected: false,
      });
    });

    it('reports "TLS failure" without TLS on https', async () => {
      const result = await open().post(receiver.url.replace('http:', 'https:'), form, bytes('a'));
      expect(result).to.include({ error: 'TLS failure', connected: false });
    });

    it('reports "host not found", "DNS failure" and "forbidden address" before it connects', async () => {
      const poster = open({
        names: { 'broken.example': 'failure', 'inside.example': ['10.0.0.1'], 'empty.example': [] },
      });
      const errorOf = async (url: string) => {
        const result = await poster.post(url, form, bytes('a'));
        return result.kind === 'unanswered' ? result.error : result.status;
      };
      expect(await errorOf('http://nowhere.example/')).to.equal('host not found');
      expect(await errorOf('http://empty.example/')).to.equal('host not found');
      expect(await errorOf('http://broken.example/')).to.equal('DNS failure');
      expect(await errorOf('http://inside.example/')).to.equal('forbidden address');
      expect(await errorOf('no url at all')).to.equal('host not found');
    });

    it('includes DNS queries in the deadline', async () => {
      const clock = createTestClock();
      const guard = { check: () => new Promise<never>(() => {}) };
      const poster = createPoster({ timeoutMs: 30_000, userAgent: 'x', connections: 1 }, { guard, clock });
      const result = poster.post('http://slow.example/', form, bytes('a'));
      await clock.advance(30_000);
      const { detail, ...rest } = await result;
      expect(rest).to.deep.equal({ kind: 'unanswered', error: 'timeout', connected: false, durationMs: 30_000 });
      expect(JSON.parse(detail?.(false) ?? '')).to.deep.equal({ ms: { dns: 30_000 } });
    });

    it('includes connection, request and answer in one deadline', async () => {
      const clock = createTestClock();
      receiver.answer('hang');
      const result = open({ timeoutMs: 30_000, clock }).post(receiver.url, form, bytes('a'));
      await until('the request is there', () => receiver.requests.length === 1);
      await clock.advance(30_000);
      expect(await result).to.include({ error: 'timeout', connected: true, durationMs: 30_000 });
    });
  });

  it('retries once on a new connection when the reused one was closed', async () => {
    const poster = open();
    await poster.post(receiver.url, form, bytes('first'));
    receiver.answerOnce('close');
    expect(await poster.post(receiver.url, form, bytes('second'))).to.include({ kind: 'answered', status: 200 });
    expect(receiver.requests.map(({ body }) => body.toString())).to.deep.equal(['first', 'second', 'second']);
    expect(receiver.connections()).to.equal(2);
  });

  it('reports the error when the new connection fails too', async () => {
    const poster = open();
    await poster.post(receiver.url, form, bytes('first'));
    receiver.answer('close');
    expect(await poster.post(receiver.url, form, bytes('second'))).to.include({ error: 'connection reset' });
    expect(receiver.requests).to.have.length(3);
  });

  it('cancels attempts in flight when it stops', async () => {
    receiver.answer('hang');
    const poster = open();
    const result = poster.post(receiver.url, form, bytes('a'));
    await until('the request is there', () => receiver.requests.length === 1);
    await poster.stop();
    expect((await result).kind).to.equal('unanswered');
    expect((await poster.post(receiver.url, form, bytes('b'))).kind).to.equal('unanswered');
  });
});

const sha = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
