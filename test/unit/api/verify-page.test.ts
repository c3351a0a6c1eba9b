import { expect } from 'chai';
import { tokenHash } from '../../../src/base/ids.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { ACCOUNT, type ApiWorld, HOUR_MS, startApi } from '../../support/api.ts';

const TOKEN = 'AAAAAAAAAAAAAAAAAAAAAA';

describe('the page behind a verification link', () => {
  let world: ApiWorld;
  let away = false;
  beforeEach(async () => {
    away = false;
    world = await startApi({
      store: (real) => ({
        ...real,
        verifications: {
          ...real.verifications,
          one: (filter) => (away ? Promise.reject(new StoreAway('away')) : real.verifications.one(filter)),
        },
      }),
    });
    const createdAt = new Date(world.clock.now());
    await world.store.verifications.insert({
      id: tokenHash(TOKEN),
      account: ACCOUNT,
      domain: 'example.com',
      email: 'postmaster@example.com',
      createdAt,
      expiresAt: new Date(createdAt.getTime() + 7 * 24 * HOUR_MS),
      usedAt: null,
    });
  });
  afterEach(() => world.stop());

  async function visit(method: string, token = TOKEN) {
    const response = await fetch(`${world.base}/verify/${token}`, { method, redirect: 'error' });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, title: /<title>(.*)<\/title>/.exec(text)?.[1] };
  }
  const verifiedAt = async () =>
    (await world.store.senderDomains.one({ account: ACCOUNT, domain: 'example.com' }))?.verifiedAt;

  it('asks for confirmation on every visit, because programs follow links too', async () => {
    for (const method of ['GET', 'HEAD', 'GET']) expect(await visit(method)).to.include({ status: 200 });
    const { title, text, headers } = await visit('GET');
    expect(title).to.equal('Is example.com yours?');
    expect(text).to.contain('<form method="post"><button type="submit">Yes, verify example.com</button></form>');
    expect(Object.fromEntries(headers)).to.include({
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'content-type': 'text/html; charset=utf-8',
      'x-content-type-options': 'nosniff',
    });
    expect(headers.get('content-security-policy')).to.match(
      /^default-src 'none'; style-src 'sha256-[^']+'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'$/,
    );
    expect(await verifiedAt()).to.equal(null);
  });

  it('verifies by the button, once', async () => {
    expect(await visit('POST')).to.include({ status: 200, title: 'Thank you' });
    expect(await verifiedAt()).to.deep.equal(new Date('2026-01-05T12:00:00Z'));
    for (const method of ['GET', 'POST'])
      expect(await visit(method)).to.include({ status: 410, title: 'This link has been used' });
  });

  it('lets one of many concurrent visitors verify', async () => {
    const pages = await Promise.all(Array.from({ length: 20 }, () => visit('POST')));
    expect(pages.filter(({ status }) => status === 200)).to.have.length(1);
    expect(pages.filter(({ status }) => status === 410)).to.have.length(19);
  });

  it('works for seven days', async () => {
    await world.clock.advance(7 * 24 * HOUR_MS - 1);
    expect(await visit('GET')).to.include({ status: 200 });
    await world.clock.advance(1);
    for (const method of ['GET', 'POST'])
      expect(await visit(method)).to.include({ status: 410, title: 'This link has expired' });
    expect(await verifiedAt()).to.equal(null);
  });

  it('reveals nothing for invalid links', async () => {
    for (const token of [
      'BAAAAAAAAAAAAAAAAAAAAA',
      'AAAA',
      `${TOKEN}A`,
      '%00',
      '%3Cscript%3Ealert(1)%3C%2Fscript%3E',
      encodeURIComponent('{"$gt":""}'),
      tokenHash(TOKEN),
      'a'.repeat(5000),
    ]) {
      for (const method of ['GET', 'POST']) {
        const page = await visit(method, token);
        expect(page, token).to.include({ status: 404, title: 'Link not found' });
        expect(page.text).to.not.contain('script').and.to.not.contain('example.com');
      }
    }
    for (const path of ['/verify', '/verify/', `/verify/${TOKEN}/x`])
      expect((await fetch(world.base + path)).status, path).to.equal(404);
  });

  it('answers "try later" while the store is unavailable, and works afterwards', async () => {
    away = true;
    expect(await visit('POST')).to.include({ status: 503, title: 'Please try again in a moment' });
    away = false;
    expect(await visit('POST')).to.include({ status: 200 });
  });

  it('leaves the other pages without forms', async () => {
    for (const path of ['/', '/docs']) {
      const response = await fetch(world.base + path);
      await response.text();
      expect(response.headers.get('content-security-policy')).to.contain("form-action 'none'");
    }
  });
});
