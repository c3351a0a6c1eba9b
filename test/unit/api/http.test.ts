import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { expect } from 'chai';
import { type ApiWorld, KEY, startApi } from '../../support/api.ts';

describe('HTTP', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const post = (path: string, body: string = JSON.stringify({ key: KEY }), headers = {}) =>
    fetch(world.base + path, { method: 'POST', body, headers });

  for (const path of [
    '/api/1.0/users/ping.json',
    '/api/1.0/users/ping',
    '/1.0/users/ping.json',
    '/1.0/users/ping',
    '/api/1.3/users/ping',
    '/api/1.4/users/ping.json',
    '/1.1/users/ping.json',
    '/1.2/users/ping',
  ]) {
    it(`answers ${path}`, async () => {
      const response = await post(path);
      expect(response.status).to.equal(200);
      expect(response.headers.get('content-type')).to.equal('application/json; charset=utf-8');
      expect(await response.text()).to.equal('"PONG!"');
    });
  }

  for (const [path, words] of [
    ['/api/1.0/users/pong.json', 'this group has ping, ping2, info, senders'],
    ['/api/1.0/nothing/at-all', 'No such operation'],
    ['/api/2.0/users/ping.json', '/api/1.0/'],
    ['/api/1.0/users/ping.xml', 'Only JSON'],
    ['/elsewhere', 'No such path'],
    ['/api/1.0/__proto__/constructor', 'No such operation'],
    ['/api', 'No such operation'],
    ['/api/1.0/%00/%ff.json', 'No such operation'],
  ] as const) {
    it(`answers ${path} with 404 and a hint`, async () => {
      for (const method of ['POST', 'GET']) {
        const response = await fetch(world.base + path, { method });
        const body: any = await response.json();
        expect(response.status).to.equal(404);
        expect(body).to.include({ status: 'error', code: 404, name: 'Unknown_Operation' });
        expect(body.message).to.contain(words).and.to.contain('/docs');
      }
    });
  }

  it('rejects GET for an operation, because a key in a URL ends up in logs', async () => {
    const response = await fetch(`${world.base}/api/1.0/users/ping.json?key=${KEY}`);
    expect(response.status).to.equal(405);
    expect(response.headers.get('allow')).to.equal('POST, OPTIONS');
    expect(await response.json()).to.include({ status: 'error', name: 'MethodNotAllowed' });
    expect(JSON.stringify(world.log.lines)).to.not.contain(KEY);
  });

  it('allows any origin (CORS), for answers and errors alike', async () => {
    const preflight = await fetch(`${world.base}/api/1.0/users/ping.json`, { method: 'OPTIONS' });
    for (const response of [
      preflight,
      await post('/api/1.0/users/ping.json'),
      await post('/api/1.0/users/ping.json', '{"key":"wrong"}'),
      await post('/api/1.0/none.json'),
    ]) {
      expect(response.headers.get('access-control-allow-origin')).to.equal('*');
      expect(response.headers.get('access-control-allow-methods')).to.equal('POST, GET, OPTIONS');
      expect(response.headers.get('access-control-allow-headers')).to.equal('Content-Type, Authorization');
      expect(response.headers.get('access-control-allow-credentials')).to.equal('false');
    }
    expect(preflight.status).to.equal(204);
  });

  it('accepts JSON with any content type, and a form', async () => {
    for (const type of [
      'application/json',
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/octet-stream',
      'nonsense',
    ]) {
      expect(
        (await post('/api/1.0/users/ping.json', JSON.stringify({ key: KEY }), { 'content-type': type })).status,
        type,
      ).to.equal(200);
    }
    const form = new URLSearchParams({
      key: KEY,
      raw_message: 'Subject: a\n\nb',
      'to[]': 'mailbox-1@inbound.example.com',
    });
    expect(
      await (
        await post('/api/1.0/inbound/send-raw.json', form.toString(), {
          'content-type': 'application/x-www-form-urlencoded',
        })
      ).json(),
    ).to.have.length(1);
  });

  it('parses numbers and booleans in a form, and keeps texts', async () => {
    const call = async (path: string, params: Record<string, string>): Promise<any> =>
      (await post(path, new URLSearchParams({ key: KEY, ...params }).toString())).json();
    expect(await call('/api/1.0/inbound/deliveries.json', { limit: '10' })).to.deep.equal([]);
    expect((await call('/api/1.0/inbound/deliveries.json', { limit: 'ten' })).name).to.equal('ValidationError');
    const before = (await call('/api/1.0/inbound/route-key.json', { id: '1.1' })).auth_key;
    expect((await call('/api/1.0/inbound/route-key.json', { id: '1.1', rotate: 'true' })).auth_key).to.not.equal(
      before,
    );
    expect(
      (
        await call('/api/1.0/inbound/add-route.json', {
          domain: 'inbound.example.com',
          pattern: '42',
          url: 'http://a.example/',
        })
      ).pattern,
    ).to.equal('42');
  });

  it('serves pages and health checks to GET and HEAD', async () => {
    for (const [path, type] of [
      ['/', 'text/html'],
      ['/docs', 'text/html'],
      ['/docs/openapi.json', 'application/json'],
      ['/healthz', 'application/json'],
      ['/readyz', 'application/json'],
    ] as const) {
      const got = await fetch(world.base + path);
      expect(got.status, path).to.equal(200);
      expect(got.headers.get('content-type'), path).to.contain(type);
      expect(await got.text(), path).to.not.equal('');
      const head = await fetch(world.base + path, { method: 'HEAD' });
      expect({ status: head.status, text: await head.text() }, path).to.deep.equal({ status: 200, text: '' });
    }
  });

  it('serves the reference without external assets, and without a script or style outside its policy', async () => {
    const response = await fetch(`${world.base}/docs`);
    const html = await response.text();
    const policy = response.headers.get('content-security-policy') ?? '';
    const hash = (tag: string) => {
      const found = [...html.matchAll(new RegExp(`<${tag}>([^]*?)</${tag}>`, 'g'))];
      expect(found, tag).to.have.lengthOf(1);
      return `${tag}-src 'sha256-${createHash('sha256')
        .update(found[0]?.[1] ?? '')
        .digest('base64')}';`;
    };
    expect(policy).to.contain("default-src 'none';").and.to.contain(hash('style')).and.to.contain(hash('script'));
    expect(html).to.not.match(/<script [^>]|<link|<img|style="|src=|https?:\/\/[^<]*\.(?:css|js)\b/);
    for (const path of ['/inbound/add-route', '/inbound/send-raw', '/users/info', '/inbound/replay'])
      expect(html).to.contain(`<h3>${path}`);
    expect(html).to.contain('&quot;key&quot;:&quot;ExampleKey').and.to.contain('Unknown_InboundRoute');
  });

  it('names on /readyz with 503 the reason why it cannot accept mail', async () => {
    await world.stop();
    world = await startApi({
      deps: { health: { ready: async () => ({ ok: false, checks: { spool: 'the disk is nearly full' } }) } },
    });
    const response = await fetch(`${world.base}/readyz`);
    expect(response.status).to.equal(503);
    expect(await response.json()).to.deep.equal({ status: 'not ready', checks: { spool: 'the disk is nearly full' } });
    expect((await fetch(`${world.base}/healthz`)).status).to.equal(200);
  });

  it('answers an internal error with 500 and a fixed text, and logs it once with its stack', async () => {
    await world.stop();
    world = await startApi({ deps: { urlFault: () => Promise.reject(new Error('something inside broke')) } });
    const { status, body } = await world.call('/inbound/update-route', { id: '1.1', url: 'http://a.example/' });
    expect({ status, body }).to.deep.equal({
      status: 500,
      body: {
        status: 'error',
        code: -100,
        name: 'GeneralError',
        message: 'An unknown error occurred processing your request. Please try again later.',
      },
    });
    const [line, ...more] = world.log.of('api.fault');
    expect(more).to.deep.equal([]);
    expect(line?.fields.error).to.have.property('stack').that.contains('something inside broke');
  });

  it('rejects a body that is too large before it is sent, with Expect: 100-continue', async () => {
    const req = request({
      port: world.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/api/1.0/users/ping.json',
      headers: { 'content-length': 30_000_000, expect: '100-continue' },
    });
    let continued = false;
    req.on('continue', () => {
      continued = true;
    });
    req.flushHeaders();
    const [response] = await once(req, 'response');
    expect({ status: response.statusCode, continued }).to.deep.equal({ status: 413, continued: false });
    response.resume();
    req.destroy();
  });

  it('accepts an allowed body with Expect: 100-continue', async () => {
    const body = JSON.stringify({ key: KEY });
    const req = request({
      port: world.port,
      host: '127.0.0.1',
      method: 'POST',
      path: '/api/1.0/users/ping.json',
      headers: { 'content-length': body.length, expect: '100-continue' },
    });
    req.on('continue', () => req.end(body));
    req.flushHeaders();
    const [response] = await once(req, 'response');
    expect(response.statusCode).to.equal(200);
    response.resume();
  });

  it('ends a slow body with 408 and closes the connection', async () => {
    const socket = connect(world.port, '127.0.0.1');
    let got = '';
    socket.on('data', (chunk) => {
      got += chunk.toString();
    });
    socket.write('POST /api/1.0/users/ping.json HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n{');
    const ended = once(socket, 'close');
    // The deadline is set once the request has arrived: the clock is moved until it was.
    const timer = setInterval(() => void world.clock.advance(31_000), 20);
    await ended;
    clearInterval(timer);
    expect(got)
      .to.match(/^HTTP\/1\.1 408 /)
      .and.to.contain('"name":"RequestTimeout"')
      .and.to.match(/connection: close/i);
  });

  it('finishes a call in progress on stop, and accepts no new one', async () => {
    const slow = Promise.withResolvers<string | undefined>();
    const asked = Promise.withResolvers<void>();
    await world.stop();
    world = await startApi({
      deps: {
        urlFault: () => {
          asked.resolve();
          return slow.promise;
        },
      },
    });
    const call = world.call('/inbound/update-route', { id: '1.1', url: 'http://a.example/' });
    await asked.promise;
    const stopped = world.api.stop();
    await fetch(`${world.base}/healthz`).then(
      () => {
        throw new Error('still open');
      },
      () => undefined,
    );
    slow.resolve(undefined);
    expect((await call).status).to.equal(200);
    await stopped;
  });
});
