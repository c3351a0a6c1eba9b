import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { expect } from 'chai';
import { DETAIL_BYTES, type Header, type HttpDetail } from '../../../src/queue/detail.ts';
import type { AttemptResult } from '../../../src/queue/settle.ts';
import type { Poster } from '../../../src/webhooks/types.ts';
import { createTestClock } from '../../support/clock.ts';
import { bytes, openPoster } from '../../support/delivery.ts';
import { freePort } from '../../support/free-port.ts';
import { type Receiver, startReceiver } from '../../support/receiver.ts';
import { tempDir } from '../../support/temp.ts';
import { CERT, KEY } from '../../support/webhook-tls.ts';

const SIGNATURES = {
  'X-Mandrill-Signature': 'q1w2e3r4t5y6u7i8o9p0a1s2d3f=',
  'webhook-signature': 'v1,AbCdEfGhIjKlMnOpQrStUvWxYz012345678901234= v1,0123456789abcdefghijklmnopqrstuvwxyzABCDEFG=',
};
const HEADERS = { 'content-type': 'application/x-www-form-urlencoded', 'webhook-id': 'x1', ...SIGNATURES };

const textOf = (result: AttemptResult, brief = false): string => result.detail?.(brief) ?? '';
const detailOf = (result: AttemptResult, brief = false): HttpDetail => JSON.parse(textOf(result, brief));
const valueOf = (fields: readonly Header[] | undefined, name: string) => fields?.find(([one]) => one === name)?.[1];

describe('the details of a POST', () => {
  let receiver: Receiver;
  let poster: Poster;
  beforeEach(async () => {
    receiver = await startReceiver();
    poster = openPoster();
  });
  afterEach(async () => {
    await poster.stop();
    await receiver.stop();
  });

  it('have the request headers in order and notation, signatures truncated to eight characters', async () => {
    const path = join(await tempDir(), 'body');
    await writeFile(path, 'from a file');
    const bodies = [bytes('in memory'), { kind: 'file', path, size: 11 } as const];
    for (const body of bodies) {
      const { request } = detailOf(await poster.post(receiver.url, HEADERS, body));
      const arrived = receiver.requests.at(-1)?.headers ?? {};
      const shown = { 'x-mandrill-signature': 'q1w2e3r4…', 'webhook-signature': 'v1,AbCdEfGh… v1,01234567…' };
      expect(request?.map(([name, value]) => [name.toLowerCase(), value])).to.deep.equal(
        Object.entries({ ...arrived, ...shown }),
      );
    }
  });

  it('omit name and password of the URL, and its path and query', async () => {
    const url = `http://hooks:hunter22@127.0.0.1:${receiver.port}/s3cret?token=t0ken`;
    const result = await poster.post(url, HEADERS, bytes('a'));
    expect(receiver.requests[0]?.headers.authorization).to.match(/^Basic /);
    expect(valueOf(detailOf(result).request, 'authorization')).to.equal('Basic …');
    for (const secret of ['hunter22', Buffer.from('hooks:hunter22').toString('base64'), 's3cret', 't0ken'])
      expect(textOf(result)).not.to.contain(secret);
  });

  it('have the response headers, with only the names of cookies', async () => {
    receiver.answer({ status: 500, headers: { server: 'nginx', 'set-cookie': 'session=abcdef; Path=/' }, body: 'no' });
    const { response } = detailOf(await poster.post(receiver.url, HEADERS, bytes('a')));
    expect(response).to.deep.include(['server', 'nginx']);
    expect(response).to.deep.include(['set-cookie', 'session=…; Path=/']);
  });

  it('have the destination, the duration of each step, and whether the connection was reused', async () => {
    const first = detailOf(await poster.post(receiver.url, HEADERS, bytes('a')));
    const second = detailOf(await poster.post(receiver.url, HEADERS, bytes('a')));
    expect(first).to.include({ address: `127.0.0.1:${receiver.port}` });
    expect(first.reused).to.equal(undefined);
    expect(first.ms).to.have.all.keys('dns', 'connect', 'firstByte');
    expect(second).to.include({ address: first.address, reused: true });
    expect(second.ms).to.have.all.keys('dns', 'firstByte');
  });

  it('count the time of a slow answer until the first byte', async () => {
    const clock = createTestClock();
    receiver.answer(async () => {
      await clock.advance(150);
      return { status: 503 };
    });
    const timed = openPoster({ clock });
    const { ms } = detailOf(await timed.post(receiver.url, HEADERS, bytes('a')));
    await timed.stop();
    expect(ms).to.include({ connect: 0, firstByte: 150 });
  });

  it('have the TLS version and the handshake time', async () => {
    const known = getCACertificates('default');
    setDefaultCACertificates([...known, CERT]);
    const secure = await startReceiver({ tls: { cert: CERT, key: KEY } });
    const named = openPoster({ names: { 'hooks.example': ['127.0.0.1'] } });
    try {
      const url = `https://hooks.example:${secure.port}/`;
      const first = detailOf(await named.post(url, HEADERS, bytes('a')));
      expect(first).to.include({ address: `127.0.0.1:${secure.port}`, tls: 'TLSv1.3' });
      expect(first.ms).to.have.all.keys('dns', 'connect', 'tls', 'firstByte');
      expect(valueOf(first.request, 'host')).to.equal(`hooks.example:${secure.port}`);
      const second = detailOf(await named.post(url, HEADERS, bytes('a')));
      expect(second).to.include({ tls: 'TLSv1.3', reused: true });
    } finally {
      await named.stop();
      await secure.stop();
      setDefaultCACertificates(known);
    }
  });

  it('name the addresses that were tried without a connection, but no forbidden ones', async () => {
    const port = await freePort();
    const named = openPoster({
      names: { 'away.example': ['127.0.0.1', '127.0.0.2'], 'inside.example': ['10.0.0.1'] },
    });
    try {
      const away = detailOf(await named.post(`http://away.example:${port}/`, HEADERS, bytes('a')));
      expect(away).to.include({ address: `127.0.0.1:${port}, 127.0.0.2:${port}` });
      expect(away.ms).to.have.all.keys('dns');
      expect(away).not.to.have.any.keys('request', 'response', 'tls');
      const inside = await named.post('http://inside.example/', HEADERS, bytes('a'));
      expect(inside).to.include({ error: 'forbidden address' });
      expect(detailOf(inside)).to.have.all.keys('ms');
    } finally {
      await named.stop();
    }
  });

  it('have the request if no answer came', async () => {
    receiver.answer('close');
    const closed = detailOf(await poster.post(receiver.url, HEADERS, bytes('a')));
    expect(valueOf(closed.request, 'webhook-id')).to.equal('x1');
    expect(closed).not.to.have.any.keys('response');
    expect(closed.ms.firstByte).to.equal(undefined);
  });

  it('omit headers if the first attempt delivered', async () => {
    const result = await poster.post(receiver.url, HEADERS, bytes('a'));
    expect(detailOf(result, true)).to.have.all.keys('address', 'ms');
    expect(textOf(result, true).length).to.be.below(120);
  });

  it('have at most 4 KB, for any answer', async () => {
    const many = Object.fromEntries(Array.from({ length: 90 }, (_, i) => [`x-${i}`, `${i} `.repeat(30)]));
    receiver.answer({ status: 500, headers: many });
    const result = await poster.post(receiver.url, HEADERS, bytes('a'));
    const { request, response = [], leftOut = 0 } = detailOf(result);
    expect(Buffer.byteLength(textOf(result))).to.be.within(DETAIL_BYTES - 400, DETAIL_BYTES);
    expect(request?.map(([name]) => name)).to.include('webhook-id');
    expect(response.length).to.be.above(10);
    // Date, Connection and Keep-Alive, and Transfer-Encoding or Content-Length, are the server's own.
    expect(response.length + leftOut).to.equal(94);

    receiver.answer({ status: 500, headers: { 'x-long': 'é'.repeat(10_000), 'x-last': 'here' } });
    const long = detailOf(await poster.post(receiver.url, HEADERS, bytes('a')));
    expect(valueOf(long.response, 'x-long')).to.have.length(256).and.to.match(/…$/);
    expect(valueOf(long.response, 'x-last')).to.equal('here');

    receiver.answer({ hugeHeader: 64 * 1024 });
    const huge = await poster.post(receiver.url, HEADERS, bytes('a'));
    expect(huge).to.include({ kind: 'answered', status: 200 });
    expect(detailOf(huge).response?.map(([name]) => name)).to.deep.equal(['content-length', 'connection']);
  });
});
