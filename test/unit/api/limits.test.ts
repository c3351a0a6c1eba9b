import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { expect } from 'chai';
import { type ApiWorld, KEY, startApi } from '../../support/api.ts';
import { until } from '../../support/until.ts';

/** About the largest body of /inbound/send-raw with the settings of the tests: that of the largest template. */
const LARGEST = 9_800_000;
const SEND_RAW = '/api/1.0/inbound/send-raw.json';
const PING = '/api/1.0/users/ping.json';

describe('one client of the API', () => {
  let world: ApiWorld;
  const sockets: Socket[] = [];
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    await world.stop();
  });

  /** A connection that sends the head of a request and what is given of its body; `text` is what it was answered. */
  function open(path: string, headers: Readonly<Record<string, string | number>>, body: string | Uint8Array = '') {
    const socket = connect(world.port, '127.0.0.1');
    const client = { socket, text: '', over: false };
    socket
      .on('data', (chunk) => {
        client.text += chunk.toString('latin1');
      })
      .on('error', () => undefined)
      .on('close', () => {
        client.over = true;
      });
    socket.write(
      `POST ${path} HTTP/1.1\r\nHost: a\r\n${Object.entries(headers)
        .map(([name, value]) => `${name}: ${value}\r\n`)
        .join('')}\r\n`,
    );
    socket.write(body);
    sockets.push(socket);
    return client;
  }
  const from = (address: string) => ({ 'X-Forwarded-For': address });
  /** Bodies of megabytes that lack their last byte. */
  const unfinished = (count: number, address: string, path = SEND_RAW, size = LARGEST) =>
    Array.from({ length: count }, () => open(path, { ...from(address), 'Content-Length': size + 1 }, 'x'.repeat(size)));
  const statusOf = ({ text }: { readonly text: string }) => Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1] ?? 0);
  const post = (path: string, params: object, address = '127.0.0.1') =>
    fetch(world.base + path, { method: 'POST', body: JSON.stringify({ key: KEY, ...params }), headers: from(address) });
  /** Everything that was sent has been looked at: the API answers a call that came behind it. */
  const settled = () =>
    until('what was sent', async () => {
      await post('/api/1.0/users/ping.json', {});
      return sockets.every((socket) => socket.destroyed || socket.writableLength === 0);
    });

  it('that declares large bodies and sends nothing uses no memory of others', async () => {
    world = await startApi();
    for (let n = 0; n < 40; n++) open(SEND_RAW, { 'Content-Length': LARGEST });
    for (let n = 0; n < 40; n++) open(SEND_RAW, { 'Content-Encoding': 'gzip', 'Transfer-Encoding': 'chunked' });
    await settled();
    expect((await world.call('/users/ping')).status).to.equal(200);
    expect(
      (
        await world.call('/inbound/send-raw', {
          raw_message: `Subject: a\n\n${'b'.repeat(1_900_000)}`,
          to: ['mailbox-1@inbound.example.com'],
        })
      ).status,
    ).to.equal(200);
  });

  it('that sends many large bodies is limited to its share of memory, and others have theirs', async () => {
    world = await startApi({ settings: { trustedProxies: ['127.0.0.1'] } });
    const greedy = unfinished(4, '192.0.2.1');
    await until('refusals', () => greedy.filter((client) => statusOf(client) === 429).length === 2);
    expect(
      greedy.filter(({ over, text }) => !over && text === ''),
      'what is held',
    ).to.have.length(2);
    expect(greedy.find(({ text }) => text !== '')?.text)
      .to.contain('RequestLimitExceeded')
      .and.to.contain('Retry-After');
    const params = { raw_message: `Subject: a\n\n${'b'.repeat(1_900_000)}`, to: ['mailbox-1@inbound.example.com'] };
    // Until then the first two have room left.
    await until('their last bytes', async () => (await post(SEND_RAW, params, '192.0.2.1')).status === 429);
    expect((await post(SEND_RAW, params, '192.0.2.2')).status).to.equal(200);
  });

  it('that disconnects releases its memory', async () => {
    world = await startApi();
    for (let round = 0; round < 4; round++) {
      const held = unfinished(2, '127.0.0.1');
      await settled();
      expect(held.map(statusOf)).to.deep.equal([0, 0]);
      for (const { socket } of held) socket.destroy();
      await until('their end', () => held.every(({ over }) => over));
    }
    expect(
      (
        await post(SEND_RAW, {
          raw_message: `Subject: a\n\n${'b'.repeat(1_900_000)}`,
          to: ['mailbox-1@inbound.example.com'],
        })
      ).status,
    ).to.equal(200);
  });

  it('never waits with a small call for large ones, even if their memory is used up', async () => {
    world = await startApi({ settings: { trustedProxies: ['127.0.0.1'] } });
    const all = [1, 2, 3, 4].flatMap((n) => unfinished(2, `192.0.2.${n}`));
    await settled();
    expect(all.map(statusOf), 'held').to.deep.equal(all.map(() => 0));
    const message = (size: number) => ({
      raw_message: `Subject: a\n\n${'b'.repeat(size)}`,
      to: ['mailbox-1@inbound.example.com'],
    });
    expect((await post(SEND_RAW, message(1_900_000), '192.0.2.9')).status, 'a large call').to.equal(503);
    expect((await post(SEND_RAW, message(10_000), '192.0.2.9')).status, 'a small one of the same operation').to.equal(
      200,
    );
    expect(
      (await post(PING, { unknown: 'c'.repeat(900_000) }, '192.0.2.9')).status,
      'the largest of the small',
    ).to.equal(200);
    expect(
      (await post('/api/1.0/users/ping.json', {}, '192.0.2.1')).status,
      'from an address whose share is used up',
    ).to.equal(200);
  });

  it('is limited by the expanded size of a compressed body', async () => {
    world = await startApi();
    // As text compresses: what unpacks to fifty times its size is refused for that.
    const packed = gzipSync(randomBytes(LARGEST / 2).toString('hex'));
    const clients = Array.from({ length: 4 }, () =>
      open(SEND_RAW, { 'Content-Encoding': 'gzip', 'Content-Length': packed.length }, packed.subarray(0, -1)),
    );
    await until('refusals', () => clients.filter((client) => statusOf(client) === 429).length === 2);
  });

  it('whose body falls below the minimum rate gets 408, even after a fast start', async () => {
    world = await startApi({ settings: { minBodyRate: 500 } });
    const clients = [
      open(SEND_RAW, { 'Content-Length': LARGEST }),
      open('/api/1.0/users/ping.json', { 'Content-Length': 1000 }, '{'),
      ...unfinished(1, '127.0.0.1'),
    ];
    await settled();
    for (let n = 0; n < 9; n++) await world.clock.advance(1000);
    expect(clients.map(statusOf), 'before the window is over').to.deep.equal([0, 0, 0]);
    for (let n = 0; n < 2; n++) await world.clock.advance(1000);
    await until('408', () => clients.slice(0, 2).every((client) => statusOf(client) === 408 && client.over));
    for (let n = 0; n < 10; n++) await world.clock.advance(1000);
    await until('408 for one that stopped', () => clients.every((client) => statusOf(client) === 408 && client.over));
    expect(clients[0]?.text)
      .to.contain('RequestTimeout')
      .and.to.match(/connection: close/i);
  });

  it('whose body stays above the minimum rate is not cut off', async () => {
    world = await startApi({ settings: { minBodyRate: 500 } });
    const body = JSON.stringify({ key: KEY, padding: 'x'.repeat(20_000) });
    const client = open('/api/1.0/users/ping.json', { 'Content-Length': body.length });
    for (let at = 0; at < body.length; at += 1000) {
      client.socket.write(body.slice(at, at + 1000));
      await settled();
      await world.clock.advance(1000);
    }
    await until('the answer', () => statusOf(client) === 200);
  });

  it('has a limit of connections per address; excess ones get an error', async () => {
    world = await startApi({ settings: { maxConnectionsPerAddress: 5 } });
    const idle = Array.from({ length: 5 }, () => connect(world.port, '127.0.0.1').on('error', () => undefined));
    sockets.push(...idle);
    await Promise.all(idle.map((socket) => socket.readyState === 'open' || once(socket, 'connect')));
    const over = open('/api/1.0/users/ping.json', { 'Content-Length': 2 }, '{}');
    await until('the refusal', () => over.over);
    expect(over.text)
      .to.match(/^HTTP\/1\.1 429 /)
      .and.to.contain('RequestLimitExceeded')
      .and.to.match(/connection: close/i);
    const silent = connect(world.port, '127.0.0.1').on('error', () => undefined);
    sockets.push(silent);
    await once(silent, 'connect');
    await until('the end of one that says nothing', async () => {
      await world.clock.advance(1000);
      return silent.destroyed || silent.readyState === 'closed' || silent.closed || (await ended(silent));
    });
    idle[0]?.destroy();
    await until('a slot', async () => (await world.call('/users/ping').catch(() => ({ status: 0 }))).status === 200);
    expect(world.log.of('api.refused_connection').length).to.be.above(0);
  });

  /** Connections from this number of addresses, `each` from every one. */
  async function hold(addresses: number, each: number, say = ''): Promise<Socket[]> {
    const held: Socket[] = [];
    for (let n = 0; n < addresses * each; n++) {
      const from = `127.0.1.${1 + (n % addresses)}`;
      const socket = connect({ port: world.port, host: '127.0.0.1', localAddress: from }).on('error', () => undefined);
      held.push(socket.resume());
      sockets.push(socket);
      await once(socket, 'connect');
      socket.write(say);
    }
    return held;
  }

  for (const [what, said] of [
    ['say nothing', ''],
    ['drip a header', 'POST /api/1.0/users/ping.json HTTP/1.1\r\nHost: a\r\nX-A: '],
    ['drip a body', 'POST /api/1.0/users/ping.json HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\n{'],
  ] as const) {
    it(`gets a connection while twenty addresses hold all of them and ${what}`, async () => {
      world = await startApi({ settings: { maxConnections: 40, maxConnectionsPerAddress: 2 } });
      const held = await hold(20, 2, said);
      expect((await world.call('/users/ping')).status).to.equal(200);
      await until(
        'the end of another',
        () => held.filter((socket) => socket.destroyed || socket.readableEnded).length === 1,
      );
    });
  }

  it('with idle connections has them closed after five seconds when most are in use', async () => {
    world = await startApi({ settings: { maxConnections: 10, maxConnectionsPerAddress: 5 } });
    const held = await hold(9, 1);
    const closed = () => held.filter((socket) => socket.destroyed || socket.readableEnded).length;
    await until('the end of some', async () => {
      await world.clock.advance(1000);
      return closed() === 2;
    });
  });

  it('behind a proxy is counted by its calls in progress; connections of the proxy are not counted', async () => {
    const slow = Promise.withResolvers<undefined>();
    world = await startApi({
      settings: { maxConnectionsPerAddress: 5, trustedProxies: ['127.0.0.1'] },
      deps: { urlFault: () => slow.promise },
    });
    const update = (address: string) =>
      post('/api/1.0/inbound/update-route.json', { id: '1.1', url: 'http://a.example/' }, address);
    const waiting = [
      ...Array.from({ length: 5 }, () => update('192.0.2.1')),
      ...Array.from({ length: 5 }, () => update('192.0.2.2')),
    ];
    await until('what is over', async () => (await post('/api/1.0/users/ping.json', {}, '192.0.2.1')).status === 429);
    expect((await post('/api/1.0/users/ping.json', {}, '192.0.2.3')).status).to.equal(200);
    slow.resolve(undefined);
    await Promise.all(waiting);
    expect((await post('/api/1.0/users/ping.json', {}, '192.0.2.1')).status).to.equal(200);
  });
});

/** Whether the other side has ended the connection. */
async function ended(socket: Socket): Promise<boolean> {
  socket.resume();
  await new Promise((resolve) => {
    setTimeout(resolve, 10);
  });
  return socket.readableEnded;
}
