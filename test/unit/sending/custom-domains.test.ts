import { expect } from 'chai';
import { createCustomDomains } from '../../../src/sending/domains/custom-domains.ts';
import { newSenderDomain } from '../../../src/store/rows/domains.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { changingResolver } from '../../support/senders.ts';
import { openTestStore } from '../../support/store.ts';
import type { ZoneRecords } from '../../support/zone.ts';

const OURS = { publicUrl: 'https://postern.test:8443/mail', returnDomain: 'bounces.postern.test' };
const mx = (exchange: string) => ({ MX: [{ exchange, priority: 10 }] });
const ZONE: ZoneRecords = {
  'postern.test': { A: ['192.0.2.1', '192.0.2.2'], AAAA: ['2001:db8::1'] },
  'mx.postern.test': { A: ['192.0.2.3'] },
  'bounces.postern.test': mx('mx.postern.test'),
  'alias.shop.example': { CNAME: 'Postern.test.' },
  'address.shop.example': { A: ['192.0.2.2'] },
  'six.shop.example': { AAAA: ['2001:db8::1'] },
  'partly.shop.example': { A: ['192.0.2.1', '192.0.2.9'] },
  'elsewhere.shop.example': { A: ['192.0.2.9'] },
  'broken.shop.example': { fails: 'servfail' },
  'mx.shop.example': mx('mx.postern.test'),
  'second.shop.example': mx('backup.postern.test'),
  'theirs.shop.example': mx('mx.else.example'),
  'null.shop.example': mx(''),
  'like.shop.example': { CNAME: 'bounces.postern.test' },
  'host.shop.example': { CNAME: 'mx.postern.test' },
  'other.shop.example': { CNAME: 'else.example' },
  'else.example': { A: ['192.0.2.9'] },
  'unproven.example': { CNAME: 'postern.test', ...mx('mx.postern.test') },
};

describe('custom domains of messages', () => {
  let clock: TestClock;
  let store: Store;
  let zone: ZoneRecords;
  beforeEach(async () => {
    clock = createTestClock();
    zone = ZONE;
    store = await openTestStore();
    await store.senderDomains.insert({
      ...newSenderDomain('acc', 'shop.example', new Date(clock.now())),
      verifiedAt: new Date(clock.now()),
    });
    await store.senderDomains.insert(newSenderDomain('acc', 'unproven.example', new Date(clock.now())));
  });
  afterEach(() => store.close());

  function create(publicUrl = OURS.publicUrl, certifies = false) {
    const asked: string[] = [];
    const resolver = changingResolver(
      () => zone,
      async (name) => asked.push(name),
    );
    const domains = createCustomDomains(
      { ...OURS, publicUrl, mxHosts: ['mx.postern.test', 'backup.postern.test'], certifies },
      { store, resolver, clock },
    );
    return { domains, asked };
  }

  it('default to ours', async () => {
    const { domains, asked } = create();
    expect(await domains.of('acc', undefined)).to.deep.equal(OURS);
    expect(await domains.of('acc', { inlineCss: true })).to.deep.equal(OURS);
    expect(asked).to.deep.equal([]);
  });

  for (const [trackingDomain, leads] of [
    ['alias.shop.example', true],
    ['address.shop.example', true],
    ['six.shop.example', true],
    ['partly.shop.example', false],
    ['elsewhere.shop.example', false],
    ['other.shop.example', false],
    ['broken.shop.example', false],
    ['nothing.shop.example', false],
    ['unproven.example', false],
  ] as const) {
    it(`${leads ? 'are where links begin' : 'are not used for links'}: ${trackingDomain}`, async () => {
      expect(await create().domains.of('acc', { trackingDomain })).to.deep.equal(
        leads ? { ...OURS, publicUrl: `https://${trackingDomain}:8443/mail`, ownUrl: OURS.publicUrl } : OURS,
      );
    });
  }

  it('are where links begin once they have a certificate, if this service gets them', async () => {
    const trackingDomain = 'alias.shop.example';
    const used = async () => (await create(OURS.publicUrl, true).domains.of('acc', { trackingDomain })).ownUrl;
    expect(await used()).to.equal(undefined);
    const row = { issuedAt: null, key: null, dueAt: new Date(0), failures: 0, error: null, failedAt: null };
    await store.certificates.insert({ id: trackingDomain, ...row, chain: null, notAfter: null });
    expect(await used()).to.equal(undefined);
    const notAfter = new Date(clock.now() + 60_000);
    await store.certificates.change({ id: trackingDomain }, { chain: 'PEM', key: 'PEM', notAfter });
    expect(await used()).to.equal(OURS.publicUrl);
    await clock.advance(60_001);
    expect(await used()).to.equal(undefined);
  });

  for (const [returnPathDomain, comes] of [
    ['mx.shop.example', true],
    ['second.shop.example', true],
    ['like.shop.example', true],
    ['host.shop.example', true],
    ['theirs.shop.example', false],
    ['null.shop.example', false],
    ['other.shop.example', false],
    ['broken.shop.example', false],
    ['nothing.shop.example', false],
    ['address.shop.example', false],
    ['unproven.example', false],
  ] as const) {
    it(`${comes ? 'are where mail comes back to' : 'are not used for the return path'}: ${returnPathDomain}`, async () => {
      expect(await create().domains.of('acc', { returnPathDomain })).to.deep.equal({
        ...OURS,
        ...(comes && { returnDomain: returnPathDomain, ownReturns: true }),
      });
    });
  }

  it('are ignored for an account that did not verify them, without a DNS query', async () => {
    const { domains, asked } = create();
    expect(
      await domains.of('other', { trackingDomain: 'alias.shop.example', returnPathDomain: 'mx.shop.example' }),
    ).to.deep.equal(OURS);
    expect(await domains.of('acc', { trackingDomain: 'example', returnPathDomain: 'localhost' })).to.deep.equal(OURS);
    expect(asked).to.deep.equal([]);
  });

  it('are checked once in ten seconds, and used as soon as they are correct', async () => {
    const { domains, asked } = create();
    const wanted = { trackingDomain: 'new.shop.example' };
    for (let n = 0; n < 3; n++) expect(await domains.of('acc', wanted)).to.deep.equal(OURS);
    const before = asked.length;
    zone = { ...ZONE, 'new.shop.example': { CNAME: 'postern.test' } };
    expect(await domains.of('acc', wanted)).to.deep.equal(OURS);
    expect(asked).to.have.length(before);
    await clock.advance(10_000);
    expect((await domains.of('acc', wanted)).publicUrl).to.equal('https://new.shop.example:8443/mail');
  });

  it('point to an address where our own host has no name', async () => {
    expect(
      (await create('http://192.0.2.9').domains.of('acc', { trackingDomain: 'elsewhere.shop.example' })).publicUrl,
    ).to.equal('http://elsewhere.shop.example');
    expect(
      (await create('http://[2001:db8::1]:80').domains.of('acc', { trackingDomain: 'six.shop.example' })).publicUrl,
    ).to.equal('http://six.shop.example');
  });
});
