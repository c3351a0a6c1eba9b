import { expect } from 'chai';
import { send, startConsole } from '../../support/console.ts';

type World = Awaited<ReturnType<typeof startConsole>>;

const URL_OF_OURS = 'https://console.example.com';
/** Everything that is asked with a cookie. */
const ASKED: readonly (readonly [method: string, path: string])[] = [
  ['GET', '/console/me'],
  ['GET', '/console/live?topics=mail'],
  ['POST', '/console/session'],
  ['DELETE', '/console/session'],
  ['POST', '/console/password'],
  ['POST', '/console/test-message'],
  ['POST', '/console/call/users/ping'],
  ['POST', '/console/call/inbound/domains'],
];
const EVERY: readonly (readonly [method: string, path: string])[] = [
  ...ASKED,
  ['GET', '/console'],
  ['GET', '/console/'],
  ['GET', '/console/mail/in'],
  ['GET', '/console/assets/x/main.ts'],
  ['GET', '/console/enter/x'],
  ['POST', '/console/enter/x'],
  ['POST', '/console/'],
  ['PUT', '/console/session'],
  ['OPTIONS', '/console/call/users/ping'],
];

describe('request checks of the console', () => {
  let world: World;
  before(async () => {
    world = await startConsole({ url: URL_OF_OURS });
  });
  after(() => world.stop());

  /** The headers of a write of our own page. */
  const ours = () => ({
    Host: `127.0.0.1:${world.port}`,
    Origin: `http://127.0.0.1:${world.port}`,
    'Sec-Fetch-Site': 'same-origin',
    'Content-Type': 'application/json',
    'Postern-Console': '1',
  });

  it('require a session, also on loopback', async () => {
    for (const [method, path] of ASKED) {
      const { status, body } = await send(world.port, method, path, ours(), '{}');
      // The one that begins a session wants a name.
      const begins = method === 'POST' && path === '/console/session';
      expect([status, body.name], `${method} ${path}`).to.deep.equal(
        begins ? [422, 'ValidationError'] : [401, 'Signed_Out'],
      );
    }
  });

  it('reject requests from another site, even with a valid cookie', async () => {
    const browser = world.browser();
    await browser.press(await world.link());
    const foreign: Record<string, Record<string, string | undefined>> = {
      'another site': { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://evil.example' },
      'another origin of the site': { 'Sec-Fetch-Site': 'same-site', Origin: 'http://other.127.0.0.1.example' },
      'another port': { 'Sec-Fetch-Site': 'same-site', Origin: 'http://127.0.0.1:1' },
      'a sandboxed frame': { 'Sec-Fetch-Site': 'cross-site', Origin: 'null' },
      'a link or an address bar': { 'Sec-Fetch-Site': 'none', Origin: undefined },
      'an old browser, from elsewhere': { 'Sec-Fetch-Site': undefined, Origin: 'https://evil.example' },
      'a program': { 'Sec-Fetch-Site': undefined, Origin: undefined },
      'a lie about the site': { Origin: 'https://evil.example' },
    };
    for (const [who, headers] of Object.entries(foreign)) {
      for (const [method, path] of ASKED) {
        const { status, body } = await browser.ask(method, path, { ...ours(), ...headers }, '{}');
        expect([status, body.name], `${who}: ${method} ${path}`).to.deep.equal([403, 'Cross_Site']);
      }
    }
    expect((await browser.read('/console/me')).status).to.equal(200);
  });

  it('reject a sign-in from another site, even with its own link', async () => {
    const link = await world.link();
    const stranger = await world
      .browser()
      .press(link, { 'Sec-Fetch-Site': 'cross-site', Origin: 'https://evil.example' });
    expect([stranger.status, stranger.headers['set-cookie']]).to.deep.equal([403, undefined]);
    expect((await world.browser().press(link)).status).to.equal(303);
  });

  it('use the Origin for browsers without Sec-Fetch-Site', async () => {
    const browser = world.browser();
    await browser.press(await world.link());
    const { status } = await browser.read('/console/me', {
      'Sec-Fetch-Site': undefined,
      Origin: `http://127.0.0.1:${world.port}`,
    });
    expect(status).to.equal(200);
  });

  it('accept a write only as JSON and with a header that a form cannot send', async () => {
    const browser = world.browser();
    await browser.press(await world.link());
    const wrong = [
      { 'Postern-Console': undefined },
      { 'Postern-Console': '0' },
      { 'Content-Type': 'application/x-www-form-urlencoded' },
      { 'Content-Type': 'text/plain' },
      { 'Content-Type': 'application/jsonp' },
      { 'Content-Type': undefined },
    ];
    for (const headers of wrong) {
      for (const [method, path] of ASKED.filter(([one]) => one !== 'GET')) {
        const { status, body } = await browser.ask(method, path, { ...ours(), ...headers }, '{}');
        expect([status, body.name], `${JSON.stringify(headers)} ${path}`).to.deep.equal([403, 'Cross_Site']);
      }
    }
  });

  it('accept only the own host names, so that no name pointing here shows a console', async () => {
    const port = world.port;
    const foreign = [
      'evil.example',
      `evil.example:${port}`,
      'track.customer.example',
      `127.0.0.1:${port + 1}`,
      '127.0.0.1',
      `localhost.evil.example:${port}`,
      `localhost:${port}@evil.example`,
      `127.1:${port}`,
      `console.example.com:${port}`,
    ];
    for (const host of foreign) {
      for (const [method, path] of EVERY) {
        const { status, headers } = await send(port, method, path, { ...ours(), Host: host }, '');
        expect([status, headers['set-cookie']], `${host}: ${method} ${path}`).to.deep.equal([421, undefined]);
      }
    }
    for (const host of [
      `localhost:${port}`,
      `127.0.0.1:${port}`,
      `127.0.0.2:${port}`,
      `[::1]:${port}`,
      'CONSOLE.example.com',
    ])
      expect((await send(port, 'GET', '/console/', { Host: host })).status, host).to.equal(200);
  });

  it('accept a loopback name only from this machine itself, not through a proxy on it', async () => {
    const host = `127.0.0.1:${world.port}`;
    for (const headers of [{ 'X-Forwarded-For': '192.0.2.1' }, { Forwarded: 'for=192.0.2.1' }]) {
      const { status } = await send(world.port, 'GET', '/console/', { Host: host, ...headers });
      expect(status).to.equal(421);
    }
  });

  it('give the cookie of an https console a name and flags that no other host can set', async () => {
    const browser = world.browser({ origin: URL_OF_OURS });
    const { headers } = await browser.press(await world.link());
    expect(headers['set-cookie']?.[0]).to.match(
      /^__Host-postern=[\w-]{44}; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict; Secure$/,
    );
    expect((await browser.read('/console/me', { 'X-Forwarded-For': '192.0.2.1' })).status).to.equal(200);
    // The cookie of plain HTTP is not that of https.
    browser.setCookie(browser.cookie()?.replace('__Host-', ''));
    expect((await browser.read('/console/me')).status).to.equal(401);
  });

  it('allow no other origin to read, and no page to frame, on any answer', async () => {
    for (const [method, path] of EVERY) {
      const { status, headers } = await send(world.port, method, path, { Host: `127.0.0.1:${world.port}` });
      const cors = Object.keys(headers).filter((name) => name.startsWith('access-control-'));
      expect(cors, `${method} ${path}`).to.deep.equal([]);
      expect(headers['content-security-policy'], `${method} ${path} ${status}`).to.match(
        /^default-src 'none';.*frame-ancestors 'none'/,
      );
      expect(headers).to.include({
        'x-content-type-options': 'nosniff',
        'cross-origin-opener-policy': 'same-origin',
        'cross-origin-resource-policy': 'same-origin',
        'referrer-policy': 'same-origin',
      });
      expect(headers['permissions-policy']).to.match(/camera=\(\).*usb=\(\)/);
      expect(headers['x-robots-tag']).to.contain('noindex');
    }
  });

  it('prevent caching of private data', async () => {
    const browser = world.browser();
    await browser.press(await world.link());
    for (const path of ['/console/me', '/console/enter/x'])
      expect((await browser.read(path)).headers['cache-control'], path).to.equal('no-store');
    const call = await browser.write('/console/call/users/ping', {}, { 'Postern-Account': '' });
    expect(call.headers['cache-control']).to.equal('no-store');
  });

  it('leave the API open to all origins', async () => {
    const { headers } = await send(
      world.port,
      'POST',
      '/api/1.0/users/ping.json',
      { Origin: 'https://evil.example' },
      '{}',
    );
    expect(headers['access-control-allow-origin']).to.equal('*');
  });

  it('answer nothing when the console is off', async () => {
    const off = await startConsole({}, { console: undefined });
    const { status, body } = await send(off.port, 'GET', '/console/', { Host: `127.0.0.1:${off.port}` });
    expect([status, body.name]).to.deep.equal([404, 'Unknown_Operation']);
    await off.stop();
  });
});
