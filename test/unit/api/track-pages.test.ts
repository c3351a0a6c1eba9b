import { expect } from 'chai';
import { toToken } from '../../../src/mail/addresses/return-address.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { ACCOUNT, type ApiWorld, OTHER_ACCOUNT, startApi } from '../../support/api.ts';
import { TOKEN_SECRET } from '../../support/tracking.ts';
import { until } from '../../support/until.ts';

const MESSAGE = 'feedfacefeedfacefeedfacefeedface';
const URL_IN_MAIL = 'https://shop.example/page?a=1&b=two%20words#part';

describe('tracked links in messages', () => {
  let world: ApiWorld;
  let away = false;
  beforeEach(async () => {
    away = false;
    world = await startApi({
      settings: { trustedProxies: ['127.0.0.1'] },
      store: (real) => ({
        ...real,
        messages: {
          ...real.messages,
          one: (filter) => (away ? Promise.reject(new StoreAway('away')) : real.messages.one(filter)),
        },
      }),
    });
    await world.feedback.recorder.begin({
      id: MESSAGE,
      account: ACCOUNT,
      createdAt: new Date(world.clock.now()),
      sender: 'news@example.com',
      email: '"<b>jo"@example.net',
      subject: 'The news',
      tags: [],
      template: null,
      subaccount: null,
      metadata: {},
      apiKey: null,
    });
  });
  afterEach(() => world.stop());

  const token = (kind: 'open' | 'click' | 'bare-click' | 'unsub' | 'bounce', about?: string, secret = TOKEN_SECRET) =>
    toToken(secret, kind, 1, MESSAGE, about);
  async function visit(path: string, options: { method?: string; agent?: string; from?: string; body?: string } = {}) {
    const { method = 'GET', agent = 'Reader/1.0', from = '198.51.100.7', body } = options;
    const response = await fetch(world.base + path, {
      method,
      redirect: 'manual',
      headers: { 'user-agent': agent, 'x-forwarded-for': from },
      ...(body !== undefined && { body }),
    });
    return { status: response.status, headers: response.headers, bytes: Buffer.from(await response.arrayBuffer()) };
  }
  const clickPath = (url = URL_IN_MAIL, signed = url) =>
    `/track/click/${token('click', signed)}?u=${encodeURIComponent(url)}`;
  const events = async () =>
    (await world.store.messageEvents.many({ account: ACCOUNT, message: MESSAGE })).toSorted(
      (a, b) => a.at.getTime() - b.at.getTime() || (a.id < b.id ? -1 : 1),
    );
  const kinds = async () => (await events()).map(({ kind }) => kind);
  /** This number of events, and none on its way. */
  async function settled(count: number) {
    await until(
      `${count} events`,
      async () => (await events()).length >= count && (await events()).every(({ appliedAt }) => appliedAt !== null),
    );
    await world.feedback.queue.stop();
    expect(await events()).to.have.length(count);
  }

  describe('the open-tracking image', () => {
    it('records an open, and is not cached', async () => {
      const { status, headers, bytes } = await visit(`/track/open/${token('open')}`);
      expect(status).to.equal(200);
      expect(bytes.toString('latin1')).to.match(/^GIF89a\x01\x00\x01\x00/);
      expect(Object.fromEntries(headers)).to.include({
        'content-type': 'image/gif',
        'content-length': String(bytes.length),
        'cache-control': 'no-store',
      });
      expect(headers.get('set-cookie')).to.equal(null);
      await settled(1);
      expect((await events())[0]).to.deep.include({
        kind: 'open',
        detail: { ip: '198.51.100.7', user_agent: 'Reader/1.0' },
        at: new Date(world.clock.now()),
      });
      expect(await world.store.messages.one({ id: MESSAGE })).to.include({ opens: 1 });
    });

    it('counts visits within a second once, and all others', async () => {
      const path = `/track/open/${token('open')}`;
      for (let i = 0; i < 3; i++) await visit(path);
      await until('it is there', async () => (await events()).length === 1);
      await visit(path);
      await visit(path, { agent: 'Another/2.0' });
      await visit(path, { from: '198.51.100.8' });
      await world.clock.advance(1000);
      await visit(path);
      await settled(4);
    });

    it('is the same for every token, and records nothing for a forged one', async () => {
      expect((await visit(`/track/open/${token('open')}`, { method: 'HEAD' })).headers.get('content-length')).to.equal(
        '42',
      );
      const good = await visit(`/track/open/${token('open')}`);
      for (const bad of [
        token('unsub'),
        token('bounce'),
        token('click', URL_IN_MAIL),
        token('open', undefined, 'another secret'),
        'x',
        '%00',
        '{"$gt":""}',
        'a'.repeat(5000),
        toToken(TOKEN_SECRET, 'open', 999, MESSAGE),
      ]) {
        const { status, headers, bytes } = await visit(`/track/open/${encodeURIComponent(bad)}`);
        expect([status, bytes.length], bad).to.deep.equal([200, 42]);
        expect([...headers.keys()].sort(), bad).to.deep.equal([...good.headers.keys()].sort());
      }
      await settled(1);
    });

    it('is served while the store is unavailable, and the open is recorded later', async () => {
      away = true;
      expect((await visit(`/track/open/${token('open')}`)).status).to.equal(200);
      await world.clock.advance(1);
      expect(await kinds()).to.deep.equal([]);
      away = false;
      await until('it is recorded', async () => {
        await world.clock.advance(5000);
        return (await events()).length === 1;
      });
      expect((await events())[0]?.at).to.deep.equal(new Date('2026-01-05T12:00:00Z'));
      world.feedback.state.secretAway = true;
      expect((await visit(`/track/open/${token('open')}`)).status).to.equal(200);
      await settled(1);
    });

    it('queues at most a hundred visits of a message, and reports how many were lost', async () => {
      away = true;
      for (let n = 0; n < 103; n++) await visit(`/track/open/${token('open')}`, { agent: `Reader/${n}` });
      away = false;
      await until('they are recorded', async () => {
        await world.clock.advance(5000);
        return (await events()).length === 100;
      });
      await settled(100);
      expect(world.log.of('visit.lost').map(({ fields }) => fields)).to.deep.equal([{ visits: 3 }]);
    });
  });

  describe('a link whose clicks are reported without the query', () => {
    const path = (url: string, signed = url) =>
      `/track/click/${token('bare-click', signed)}?u=${encodeURIComponent(url)}`;

    it('leads to the full URL, and reports the rest', async () => {
      for (const [at, [url, told]] of [
        [URL_IN_MAIL, 'https://shop.example/page#part'],
        ['https://shop.example?a#b?c', 'https://shop.example#b?c'],
        ['https://shop.example/#b?c', 'https://shop.example/#b?c'],
      ].entries()) {
        const { status, headers } = await visit(path(url ?? ''));
        expect([status, headers.get('location')]).to.deep.equal([302, url]);
        await until(
          'it is told',
          async () => (await world.store.messages.one({ id: MESSAGE }))?.clickDetail.length === at + 1,
        );
        expect((await world.store.messages.one({ id: MESSAGE }))?.clickDetail.at(-1)?.url).to.equal(told);
      }
    });

    it('rejects a URL that we did not sign, even its own without the query', async () => {
      for (const [url, signed] of [
        ['https://evil.example/', URL_IN_MAIL],
        ['https://shop.example/page#part', URL_IN_MAIL],
        [`${URL_IN_MAIL}?`, URL_IN_MAIL],
      ] as const)
        expect((await visit(path(url, signed))).status).to.equal(404);
      expect((await visit(path(URL_IN_MAIL), { method: 'HEAD' })).status).to.equal(302);
      await settled(0);
    });
  });

  describe('a link', () => {
    it('leads to the exact URL in the message, and records the click', async () => {
      const { status, headers } = await visit(clickPath());
      expect([status, headers.get('location')]).to.deep.equal([302, URL_IN_MAIL]);
      expect(Object.fromEntries(headers)).to.include({ 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
      await settled(1);
      expect((await events())[0]).to.deep.include({
        kind: 'click',
        detail: { ip: '198.51.100.7', user_agent: 'Reader/1.0', url: URL_IN_MAIL },
      });
    });

    it('does not count HEAD requests', async () => {
      expect((await visit(clickPath(), { method: 'HEAD' })).status).to.equal(302);
      await settled(0);
    });

    it('percent-encodes characters that are invalid in a header', async () => {
      for (const [url, location] of [
        ['https://shop.example/ü ß', 'https://shop.example/%C3%BC%20%C3%9F'],
        ['http://shop.example/😀', 'http://shop.example/%F0%9F%98%80'],
        ['HTTPS://shop.example', 'HTTPS://shop.example'],
        [' https://shop.example/a\r\n\t?b ', 'https://shop.example/a?b'],
      ]) {
        expect((await visit(clickPath(url))).headers.get('location'), url).to.equal(location);
      }
    });

    it('rejects links that we did not sign', async () => {
      const signed = encodeURIComponent(URL_IN_MAIL);
      const evil = encodeURIComponent('https://evil.example/');
      const good = token('click', URL_IN_MAIL);
      const paths = [
        `/track/click/${good}?u=${evil}`,
        `/track/click/${good}`,
        `/track/click/${good}?u=`,
        `/track/click/${good}?u=${signed}&u=${evil}`,
        `/track/click/${good}?u=${evil}&u=${signed}`,
        `/track/click/${good}?u=${signed}x`,
        `/track/click/${good}?url=${signed}`,
        `/track/click/${token('open')}?u=${signed}`,
        `/track/click/${token('click', URL_IN_MAIL, 'another secret')}?u=${signed}`,
        `/track/click/x?u=${signed}`,
        `/track/click/${good.toUpperCase()}?u=${signed}`,
      ];
      for (const path of paths) {
        const { status, headers } = await visit(path);
        expect([status, headers.get('location')], path).to.deep.equal([404, null]);
      }
      await settled(0);
    });

    it('leads only to web URLs, even with a valid signature', async () => {
      for (const url of [
        'javascript:alert(1)',
        'data:text/html,x',
        'file:///etc/passwd',
        '//evil.example/',
        '/docs',
        'https://',
        'https:///x',
        'http://a\r\nSet-Cookie: x=1',
        'http://a\u0000',
        'ftp://a/',
        'http://%zz/',
      ]) {
        const { status, headers } = await visit(clickPath(url));
        expect([status, headers.get('location'), headers.get('set-cookie')], JSON.stringify(url)).to.deep.equal([
          404,
          null,
          null,
        ]);
      }
    });

    it('works while the store is unavailable; before the secret was first read it answers "try later"', async () => {
      away = true;
      expect((await visit(clickPath())).status).to.equal(302);
      world.feedback.state.secretAway = true;
      expect((await visit(clickPath())).status).to.equal(503);
    });
  });

  describe('the unsubscribe page', () => {
    const suppressed = async () =>
      (await world.store.rejects.many({ account: ACCOUNT }))
        .filter(({ email }) => email === '"<b>jo"@example.net')
        .map(({ reason }) => reason);

    it('asks for confirmation on every visit, because programs follow links too', async () => {
      for (const method of ['GET', 'HEAD', 'GET'])
        expect((await visit(`/unsubscribe/${token('unsub')}`, { method })).status).to.equal(200);
      const { headers, bytes } = await visit(`/unsubscribe/${token('unsub')}`);
      const text = bytes.toString();
      expect(text)
        .to.contain('<form method="post"><button type="submit">Unsubscribe</button></form>')
        .and.to.contain('&quot;&lt;b&gt;jo&quot;@example.net')
        .and.to.not.contain('<b>');
      expect(Object.fromEntries(headers)).to.include({
        'cache-control': 'no-store',
        'referrer-policy': 'no-referrer',
        'content-type': 'text/html; charset=utf-8',
      });
      expect(headers.get('content-security-policy')).to.match(
        /^default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'$/,
      );
      await settled(0);
    });

    it('unsubscribes by its button and by one-click, once', async () => {
      for (const body of ['', 'List-Unsubscribe=One-Click', 'x'.repeat(100_000)]) {
        const { status, bytes, headers } = await visit(`/unsubscribe/${token('unsub')}`, { method: 'POST', body });
        expect(status).to.equal(200);
        expect(bytes.toString()).to.contain('You are unsubscribed');
        expect(headers.get('set-cookie')).to.equal(null);
      }
      expect(await suppressed()).to.deep.equal(['unsub']);
      await settled(1);
      expect(await kinds()).to.deep.equal(['unsub']);
    });

    it('still unsubscribes after the account removed the address from its list', async () => {
      await visit(`/unsubscribe/${token('unsub')}`, { method: 'POST' });
      await world.lists.unreject(ACCOUNT, '"<b>jo"@example.net', '');
      await visit(`/unsubscribe/${token('unsub')}`, { method: 'POST' });
      expect(await suppressed()).to.deep.equal(['unsub']);
      await settled(2);
    });

    it('reveals nothing for an invalid link, and does nothing', async () => {
      for (const bad of [
        token('open'),
        token('bounce'),
        token('unsub', undefined, 'another secret'),
        'x',
        '%00',
        encodeURIComponent('<script>'),
        'a'.repeat(5000),
      ]) {
        for (const method of ['GET', 'POST']) {
          const { status, bytes } = await visit(`/unsubscribe/${bad}`, { method });
          expect(status, bad).to.equal(404);
          expect(bytes.toString())
            .to.contain('Link not found')
            .and.to.not.contain('script>')
            .and.to.not.contain('example.');
        }
      }
      for (const path of [
        '/unsubscribe',
        '/unsubscribe/',
        `/unsubscribe/${token('unsub')}/x`,
        '/track/open/',
        '/track/click',
        '/track',
      ])
        expect((await visit(path)).status, path).to.equal(404);
      await settled(0);
    });

    it('handles a valid link whose message has expired, or is not of the account', async () => {
      for (const old of [
        toToken(TOKEN_SECRET, 'unsub', 1, '0'.repeat(32)),
        toToken(TOKEN_SECRET, 'unsub', 2, MESSAGE),
        toToken(TOKEN_SECRET, 'unsub', 999, MESSAGE),
      ]) {
        for (const method of ['GET', 'POST'])
          expect((await visit(`/unsubscribe/${old}`, { method })).status).to.equal(410);
      }
      expect(await world.store.messageEvents.many({ account: OTHER_ACCOUNT })).to.deep.equal([]);
    });

    it('does not confirm while the store is unavailable', async () => {
      away = true;
      for (const method of ['GET', 'POST'])
        expect((await visit(`/unsubscribe/${token('unsub')}`, { method })).status).to.equal(503);
      away = false;
      await settled(0);
    });
  });
});
