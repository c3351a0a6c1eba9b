import { expect } from 'chai';
import { ACCOUNT, OTHER_ACCOUNT } from '../../support/api.ts';
import { addTestPerson, startConsole } from '../../support/console.ts';
import { putSubmitted } from '../../support/messages.ts';
import { crlf, multipart } from '../../support/mime.ts';
import { put } from '../../support/spool.ts';

type World = Awaited<ReturnType<typeof startConsole>>;
type Role = 'owner' | 'helper' | 'reader' | 'operator';

const MINUTE_MS = 60_000;
const MAIL = multipart(
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
      body: { kind: 'inline', bytes: MAIL },
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

  it('is a page that may run nothing, fetch nothing, and be shown by the console only', async () => {
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

  it('has its links as text', async () => {
    const browser = await enter('owner');
    expect((await browser.read(`${await open(browser)}/links`)).body).to.deep.equal({
      links: [{ text: 'Link', href: 'http://x.test/a' }],
      left_out: 0,
      truncated: false,
    });
  });

  it('is downloaded and never shown as what it says it is, in parts and whole', async () => {
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
    expect(raw.text).to.equal(MAIL.toString());
  });

  it('says so if there is no such part, or no HTML', async () => {
    const browser = await enter('owner');
    const url = await open(browser);
    for (const path of ['part/0', 'part/3', 'part/99999']) {
      const { status, body } = await browser.read(`${url}/${path}`);
      expect([status, body.message], path).to.deep.equal([404, 'This mail has no such part.']);
    }
    const { delivery } = await put(world.spool, world.clock, {
      account: ACCOUNT,
      body: { kind: 'inline', bytes: crlf('Subject: x', '', 'text') },
    });
    id = delivery.id;
    const { status, body } = await browser.read(`${await open(browser)}/html`);
    expect([status, body.message]).to.deep.equal([404, 'This mail has no HTML that can be shown.']);
  });

  it('is shown for five minutes, and to the session that opened it', async () => {
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

  it('is the same for mail out: filtered, with its own pictures, and nothing but looked at', async () => {
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
      expect((await browser.read(`${opened.url}/${path}`)).body.message).to.equal('Mail out can only be looked at.');
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

  it('is noted with the mail when an operator looks at it', async () => {
    const notes: any[] = [];
    const open = await startConsole(
      { operatorReadsMail: true },
      { deps: { notes: { note: (entry) => void notes.push(entry) } } },
    );
    const { delivery } = await put(open.spool, open.clock, { account: ACCOUNT, body: { kind: 'inline', bytes: MAIL } });
    const browser = open.browser();
    await browser.press(await open.link());
    notes.splice(0);
    const { status } = await browser.write('/console/mail', { id: delivery.id }, { 'Postern-Account': ACCOUNT });
    expect(status).to.equal(200);
    expect(notes.map(({ action }) => [action.by, action.what, action.detail])).to.deep.equal([
      ['operator', 'looked', `/console/mail ${delivery.id}`],
    ]);
    await open.stop();
  });

  it('is not opened for helpers and readers, nor for operators who may not read mail', async () => {
    for (const role of ['helper', 'reader', 'operator'] as const) {
      const browser = await enter(role);
      const { status, body } = await browser.write('/console/mail', { id }, { 'Postern-Account': ACCOUNT });
      expect([status, body.name], role).to.deep.equal([403, 'Not_Allowed']);
    }
  });

  it('does not exist for another account, like a mail that never was', async () => {
    const [other] = (await world.store.accounts.many({})).filter((row) => row.id !== ACCOUNT);
    const browser = await enter('owner', other?.id ?? '');
    const replies = [
      await browser.write('/console/mail', { id }),
      await browser.write('/console/mail', { id: 'none' }),
    ];
    replies.push(await browser.write('/console/mail', {}), await browser.write('/console/mail', { id: 7 }));
    for (const { status, body } of replies) {
      expect([status, body.message]).to.deep.equal([
        404,
        'There is no such mail on this host, or its content is forgotten.',
      ]);
    }
  });
});
