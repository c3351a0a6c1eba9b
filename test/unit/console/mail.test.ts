import { expect } from 'chai';
import { ACCOUNT, OTHER_ACCOUNT } from '../../support/api.ts';
import { addTestPerson, send, startConsole } from '../../support/console.ts';
import { putSubmitted } from '../../support/messages.ts';
import { crlf, multipart } from '../../support/mime.ts';
import { put } from '../../support/spool.ts';

type World = Awaited<ReturnType<typeof startConsole>>;
type Role = 'owner' | 'helper' | 'reader' | 'operator';

const MINUTE_MS = 60_000;
const MAIL_BYTES = multipart(
  'mixed',
  ['From: a@example.com', 'Subject: x'],
  ['Content-Type: text/html', '', '<p>Hello</p><a href="http://x.test/a">Link</a><script>alert(1)</script>'],
  [
    'Content-Type: image/svg+xml',
    'Content-Disposition: attachment; filename="a\u202eb.svg"',
    '',
    '<svg onload="alert(1)"/>',
  ],
);

describe('the content of a mail in the console', function () {
  this.timeout(20_000);
  let world: World;
  let id: string;
  beforeEach(async () => {
    world = await startConsole();
    const { delivery } = await put(world.spool, world.clock, {
      account: ACCOUNT,
      body: { kind: 'memory', bytes: MAIL_BYTES },
    });
    id = delivery.id;
  });
  afterEach(() => world.stop());

  async function enter(role: Role, account?: string) {
    await addTestPerson(world.store, role, role, account);
    const browser = world.browser();
    await browser.enter(role);
    return browser;
  }
  const open = async (browser: Awaited<ReturnType<typeof enter>>): Promise<string> => {
    const { status, body } = await browser.write('/console/mail', { id });
    expect(status).to.equal(200);
    return body.url;
  };

  it('is a page that may run nothing, fetch nothing, and be framed by the console only', async () => {
    const browser = await enter('owner');
    const { status, headers, text } = await browser.read(`${await open(browser)}/html`);
    expect(status).to.equal(200);
    expect(headers['content-security-policy']).to.equal(
      `sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors http://127.0.0.1:${world.port}`,
    );
    expect(headers).to.include({
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      'cross-origin-resource-policy': 'same-origin',
    });
    expect(text).to.contain('<p>Hello</p><a title="http://x.test/a">Link</a>');
    expect(text).to.not.contain('script');
  });

  it('shows its links as text', async () => {
    const browser = await enter('owner');
    expect((await browser.read(`${await open(browser)}/links`)).body).to.deep.equal({
      links: [{ text: 'Link', href: 'http://x.test/a' }],
      left_out: 0,
      truncated: false,
    });
  });

  it('is downloaded, never displayed by its type, in parts and whole', async () => {
    const browser = await enter('owner');
    const url = await open(browser);
    const part = await browser.read(`${url}/part/2`);
    expect(part.headers).to.include({
      'content-type': 'application/octet-stream',
      'content-security-policy': `sandbox; default-src 'none'; frame-ancestors 'none'`,
    });
    expect(part.headers['content-disposition']).to.match(/^attachment; filename\*=UTF-8''a[^\u202e]*b\.svg$/);
    expect(part.text.trim()).to.equal('<svg onload="alert(1)"/>');
    const raw = await browser.read(`${url}/raw`);
    expect(raw.headers['content-type']).to.equal('application/octet-stream');
    expect(raw.headers['content-disposition']).to.equal(`attachment; filename*=UTF-8''${id}.eml`);
    expect(raw.text).to.equal(MAIL_BYTES.toString());
  });

  it('reports a missing part, or missing HTML', async () => {
    const browser = await enter('owner');
    const url = await open(browser);
    for (const path of ['part/0', 'part/3', 'part/99999']) {
      const { status, body } = await browser.read(`${url}/${path}`);
      expect([status, body.message], path).to.deep.equal([404, 'This message has no such part.']);
    }
    const { delivery } = await put(world.spool, world.clock, {
      account: ACCOUNT,
      body: { kind: 'memory', bytes: crlf('Subject: x', '', 'text') },
    });
    id = delivery.id;
    const { status, body } = await browser.read(`${await open(browser)}/html`);
    expect([status, body.message]).to.deep.equal([404, 'This message has no HTML.']);
  });

  it('is available for five minutes, to the session that opened it', async () => {
    const browser = await enter('owner');
    const url = await open(browser);
    const other = world.browser();
    await other.enter('owner');
    expect((await other.read(`${url}/html`)).body.name).to.equal('Link_Spent');
    expect((await world.browser().read(`${url}/html`)).body.name).to.equal('Signed_Out');
    expect((await browser.read(`${url.slice(0, -1)}x/html`)).body.name).to.equal('Link_Spent');
    expect((await browser.read(`${url}/html`, { 'Sec-Fetch-Site': 'cross-site' })).body.name).to.equal('Cross_Site');
    await world.clock.advance(5 * MINUTE_MS);
    expect((await browser.read(`${url}/html`)).body.name).to.equal('Link_Spent');
  });

  it('is the same for sent mail: filtered, with its own pictures, and without tracking', async () => {
    const sent = '5c1e0d000000000000000000000000aa';
    const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
    await putSubmitted(world, ACCOUNT, sent, {
      draft: {
        html: '<p>Hi *|NAME|*</p><img src="cid:logo"><img src="http://x.test/p.gif"><a href="http://x.test/">Link</a><script>alert(1)</script>',
        images: [{ name: 'logo', type: 'image/svg+xml', content: pixel }],
      },
      outgoing: { globalVars: [{ name: 'name', content: 'Ann' }] },
    });
    const browser = await enter('owner');
    const { body: opened } = await browser.write('/console/mail', { sent });
    const { headers, text } = await browser.read(`${opened.url}/html`);
    expect(headers['content-security-policy']).to.match(/^sandbox; default-src 'none'; img-src data:;/);
    expect(text).to.contain('<p>Hi Ann</p>').and.to.contain(`src="data:image/png;base64,${pixel}"`);
    expect(text).to.not.contain('script');
    expect((await browser.read(`${opened.url}/links`)).body).to.include({ left_out: 1 });
    for (const path of ['raw', 'part/1'])
      expect((await browser.read(`${opened.url}/${path}`)).body.message).to.equal('Sent mail can only be viewed.');
    const answers = [
      await browser.write('/console/mail', { sent: id }),
      await browser.write('/console/mail', { id: sent }),
      await browser.write('/console/mail', { sent: ['x'] }),
    ];
    expect(answers.map(({ status }) => status)).to.deep.equal([404, 404, 404]);
    await addTestPerson(world.store, 'their', 'owner', OTHER_ACCOUNT);
    const other = world.browser();
    await other.enter('their');
    expect((await other.write('/console/mail', { sent })).status).to.equal(404);
    expect((await (await enter('helper')).write('/console/mail', { sent })).body.name).to.equal('Not_Allowed');
  });

  it('is recorded in the history when an operator opens it', async () => {
    const notes: any[] = [];
    const open = await startConsole(
      { operatorReadsMail: true },
      { deps: { notes: { note: (entry) => void notes.push(entry) } } },
    );
    const { delivery } = await put(open.spool, open.clock, {
      account: ACCOUNT,
      body: { kind: 'memory', bytes: MAIL_BYTES },
    });
    const browser = open.browser();
    await browser.press(await open.link());
    notes.splice(0);
    const { status } = await browser.write('/console/mail', { id: delivery.id }, { 'Postern-Account': ACCOUNT });
    expect(status).to.equal(200);
    expect(notes.map(({ action }) => [action.by, action.what, action.detail])).to.deep.equal([
      ['operator', 'content viewed', `/console/mail ${delivery.id}`],
    ]);
    await open.stop();
  });

  it('is refused once the person may no longer read it, even within the five minutes', async () => {
    const browser = await enter('owner');
    const url = await open(browser);
    const [person] = await world.store.people.many({ name: 'owner' });
    await world.store.people.change({ id: person?.id ?? '' }, { role: 'helper' });
    for (const what of ['html', 'links', 'raw', 'part/2'])
      expect((await browser.read(`${url}/${what}`)).body.name, what).to.equal('Not_Allowed');
    await world.store.people.change({ id: person?.id ?? '' }, { role: 'owner', account: OTHER_ACCOUNT });
    expect((await browser.read(`${url}/raw`)).body.name).to.equal('Not_Allowed');
  });

  describe('at an origin of its own', () => {
    const CONSOLE = 'https://console.example.com';
    const MAIL = 'https://mail-view.example.net';
    const HOST = new URL(MAIL).host;
    beforeEach(async () => {
      await world.stop();
      world = await startConsole({ url: CONSOLE, mailOrigin: MAIL });
      const { delivery } = await put(world.spool, world.clock, {
        account: ACCOUNT,
        body: { kind: 'memory', bytes: MAIL_BYTES },
      });
      id = delivery.id;
    });

    /** Signs an owner in at the console's origin, and opens the mail. */
    async function opened(origin = CONSOLE) {
      if ((await world.store.people.many({ name: 'owner' })).length === 0)
        await addTestPerson(world.store, 'owner', 'owner');
      const browser = world.browser({ origin });
      await browser.enter('owner');
      const { body } = await browser.write('/console/mail', { id });
      return { browser, url: String(body.url), frame: String(body.frame), path: String(body.frame).slice(MAIL.length) };
    }
    const ask = (path: string, headers = {}, method = 'GET') =>
      send(world.port, method, path, { Host: HOST, 'Sec-Fetch-Site': 'cross-site', ...headers });

    it('is served there without a cookie, to a frame of the console only', async () => {
      const { frame, path, url } = await opened();
      expect(frame).to.equal(`${MAIL}${url}/html`);
      const { status, headers, text } = await ask(path);
      expect(status).to.equal(200);
      expect(text).to.contain('<p>Hello</p>');
      expect(headers['content-security-policy']).to.equal(
        `sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'; frame-ancestors ${CONSOLE}`,
      );
      expect(headers).to.include({
        'cache-control': 'no-store',
        'cross-origin-resource-policy': 'same-origin',
        'origin-agent-cluster': '?1',
        'referrer-policy': 'no-referrer',
        'x-content-type-options': 'nosniff',
      });
      expect(headers).to.not.have.any.keys('set-cookie', 'access-control-allow-origin');
      for (const host of [HOST.toUpperCase(), `${HOST}.`, `${HOST}:443`])
        expect((await ask(path, { Host: host })).status, host).to.equal(200);
    });

    it('may be framed by the origin that opened it, such as one on loopback over SSH', async () => {
      const origin = `http://127.0.0.1:${world.port}`;
      const { path } = await opened(origin);
      const policy = String((await ask(path)).headers['content-security-policy']);
      expect(policy.endsWith(`frame-ancestors ${origin}`), policy).to.equal(true);
    });

    it('is in the policy of the page, as the only origin of its frames', async () => {
      const { headers } = await world.browser({ origin: CONSOLE }).ask('GET', '/console/');
      expect(headers['content-security-policy']).to.contain(`; frame-src ${MAIL}; `);
    });

    it('is not served as HTML at the origin of the console, only its links and bytes', async () => {
      const { browser, url } = await opened();
      const { status, body } = await browser.read(`${url}/html`);
      expect([status, body.message]).to.deep.equal([404, `HTML of mail is shown only at ${MAIL}.`]);
      expect((await browser.read(`${url}/links`)).body.links).to.have.length(1);
      expect((await browser.read(`${url}/raw`)).text).to.equal(MAIL_BYTES.toString());
    });

    it('ends with the session: signed out, idle for too long, or its person removed; and after five minutes', async () => {
      const gone = async (path: string) => (await ask(path)).body.name;
      const first = await opened();
      await first.browser.write('/console/session', {}, {}, 'DELETE');
      expect(await gone(first.path)).to.equal('Link_Spent');
      const second = await opened();
      await world.clock.advance(5 * MINUTE_MS);
      expect(await gone(second.path)).to.equal('Link_Spent');
      await world.clock.advance(56 * MINUTE_MS);
      expect((await second.browser.read('/console/me')).body.name).to.equal('Signed_Out');
      const third = await opened();
      await world.store.people.remove({ name: 'owner' });
      expect(await gone(third.path)).to.equal('Link_Spent');
      const fourth = await opened();
      await world.store.people.change({ name: 'owner' }, { role: 'reader' });
      expect(await gone(fourth.path)).to.equal('Not_Allowed');
    });

    it('rejects a claim that was changed, or made by another process', async () => {
      const { path } = await opened();
      const [, claim = '', signature = ''] = /mail\/([\w-]+)\.([\w-]+)\/html$/.exec(path) ?? [];
      const fields = JSON.parse(Buffer.from(claim, 'base64url').toString());
      const seal = (one: unknown) => Buffer.from(JSON.stringify(one)).toString('base64url');
      const forged = [
        [seal([...fields.slice(0, 3), fields[3] + MINUTE_MS, ...fields.slice(4)]), signature],
        [seal([OTHER_ACCOUNT, ...fields.slice(1)]), signature],
        [claim, signature.slice(1)],
        [claim, `${signature.startsWith('x') ? 'y' : 'x'}${signature.slice(1)}`],
        ['e30', signature],
      ];
      for (const [one, two] of forged)
        expect((await ask(`/console/mail/${one}.${two}/html`)).body.name).to.equal('Link_Spent');
    });

    it('is all that this origin serves: no console, no API, no links, no page', async () => {
      const { browser, url, path } = await opened();
      const paths = [
        ['GET', '/'],
        ['GET', '/docs'],
        ['GET', '/healthz'],
        ['GET', '/metrics'],
        ['GET', '/track/open/x'],
        ['GET', '/console'],
        ['GET', '/console/'],
        ['GET', '/console/me'],
        ['GET', '/console/enter/x'],
        ['POST', '/console/session'],
        ['POST', '/console/mail'],
        ['POST', '/console/call/users/ping'],
        ['POST', '/api/1.0/users/ping.json'],
        ['OPTIONS', '/api/1.0/users/ping.json'],
        ['POST', path],
        ['HEAD', path],
        ...['links', 'raw', 'part/1'].map((what) => ['GET', `${url}/${what}`] as const),
      ] as const;
      const headers = { Cookie: browser.cookie(), 'Sec-Fetch-Site': 'same-origin', Origin: MAIL };
      for (const [method, one] of paths) {
        const { status, headers: answered } = await ask(one, headers, method);
        expect(status, `${method} ${one}`).to.equal(421);
        expect(answered, one).to.not.have.property('access-control-allow-origin');
      }
    });
  });

  it('is refused to helpers and readers, and to operators who may not read mail', async () => {
    for (const role of ['helper', 'reader', 'operator'] as const) {
      const browser = await enter(role);
      const { status, body } = await browser.write('/console/mail', { id }, { 'Postern-Account': ACCOUNT });
      expect([status, body.name], role).to.deep.equal([403, 'Not_Allowed']);
    }
  });

  it('does not exist for another account, as for unknown mail', async () => {
    const [other] = (await world.store.accounts.many({})).filter((row) => row.id !== ACCOUNT);
    const browser = await enter('owner', other?.id ?? '');
    const replies = [
      await browser.write('/console/mail', { id }),
      await browser.write('/console/mail', { id: 'none' }),
    ];
    replies.push(await browser.write('/console/mail', {}), await browser.write('/console/mail', { id: 7 }));
    for (const { status, body } of replies) {
      expect([status, body.message]).to.deep.equal([404, 'Not found on this host, or its content has expired.']);
    }
  });
});
