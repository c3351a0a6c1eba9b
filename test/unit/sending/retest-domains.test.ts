import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createOwnership, retestInboundDomainsTask } from '../../../src/inbound/ownership.ts';
import type { Routing } from '../../../src/inbound/types.ts';
import { createReservedNames } from '../../../src/mail/addresses/reserved-names.ts';
import { retestSenderDomainsTask } from '../../../src/sending/domains/domain-tests.ts';
import { type InboundDomainRow, newSenderDomain } from '../../../src/store/rows/domains.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { changingResolver, createTestSenders, TEST_SPF, TEST_TXT } from '../../support/senders.ts';
import type { ZoneNode } from '../../support/zone.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

for (const driver of drivers) {
  describe(`the re-test of domains, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    let zone: Record<string, ZoneNode>;
    let questions: string[];
    const resolver = changingResolver(
      () => zone,
      async (name, type) => questions.push(`${type} ${name}`),
    );
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
      clock = createTestClock();
      zone = {};
      questions = [];
    });
    afterEach(() => store.close());

    describe('of senders', () => {
      const good = (domain: string): Record<string, ZoneNode> => ({
        [domain]: { TXT: [TEST_SPF] },
        [`postern._domainkey.${domain}`]: { TXT: [TEST_TXT] },
      });
      const task = () => {
        const { domainTests, keySwitch } = createTestSenders({
          store,
          clock,
          ids: createIds(clock),
          log: createTestLog(),
          resolver,
        });
        return retestSenderDomainsTask({ store, clock, domainTests, keySwitch });
      };
      const add = (...domains: string[]) =>
        Promise.all(
          domains.map((domain) => store.senderDomains.insert(newSenderDomain('one', domain, new Date(clock.now())))),
        );
      const stateOf = async (domain: string) => {
        const row = await store.senderDomains.one({ account: 'one', domain });
        return [row?.spfValid, row?.dkimValid];
      };

      it('tests new ones, valid ones every day and invalid ones every hour, for a week', async () => {
        zone = good('good.example');
        await add('good.example', 'bad.example');
        expect(await task().run()).to.deep.equal({ tested: 2, changed: 2 });
        expect([await stateOf('good.example'), await stateOf('bad.example')]).to.deep.equal([
          [true, true],
          [false, false],
        ]);
        expect(await task().run()).to.equal(undefined);
        clock.jump(HOUR_MS - 1);
        expect(await task().run()).to.equal(undefined);
        clock.jump(1);
        expect(await task().run(), 'the wrong one').to.deep.equal({ tested: 1, changed: 0 });
        zone = { ...good('good.example'), ...good('bad.example') };
        clock.jump(HOUR_MS);
        expect(await task().run()).to.deep.equal({ tested: 1, changed: 1 });
        clock.jump(24 * HOUR_MS);
        zone = {};
        expect(await task().run()).to.deep.equal({ tested: 2, changed: 2 });
        clock.jump(8 * 24 * HOUR_MS);
        expect(await task().run()).to.deep.equal({ tested: 2, changed: 0 });
        clock.jump(23 * HOUR_MS);
        expect(await task().run(), 'wrong for so long: once a day').to.equal(undefined);
      });

      it('starts the wait for the TTL when a record becomes valid in between', async () => {
        await add('shop.example');
        await task().run();
        zone = { ...good('shop.example'), 'shop.example': { TXT: [TEST_SPF], ttl: 600 } };
        clock.jump(HOUR_MS);
        await task().run();
        expect(
          (await store.senderDomains.one({ domain: 'shop.example', account: 'one' }))?.spfValidAfter,
        ).to.deep.equal(new Date(clock.now() + 600_000));
      });

      it('changes nothing while the DNS does not answer, and does not retry at once', async () => {
        zone = good('shop.example');
        await add('shop.example');
        await task().run();
        zone = { 'shop.example': { fails: 'timeout' }, 'postern._domainkey.shop.example': { fails: 'timeout' } };
        clock.jump(24 * HOUR_MS);
        expect(await task().run()).to.deep.equal({ tested: 1, changed: 0 });
        expect(await stateOf('shop.example')).to.deep.equal([true, true]);
        expect(await task().run()).to.equal(undefined);
      });

      it('is safe in two concurrent processes, when interrupted, and when repeated', async () => {
        await add(...Array.from({ length: 25 }, (_, i) => `d${i}.example`));
        const ending = new AbortController();
        ending.abort();
        expect(await task().run(ending.signal)).to.equal(undefined);
        await Promise.all([task().run(), task().run(), task().run()]);
        const rows = await store.senderDomains.many({});
        expect(
          rows.every((row) => row.spfValid === false && row.dkimValid === false && row.lastTestedAt !== null),
        ).to.equal(true);
        expect(await task().run()).to.equal(undefined);
      });

      if (driver.kind === 'embedded')
        it('tests the longest due first, up to a limit, and leaves the rest for the next run', async () => {
          await add('late.example');
          clock.jump(1);
          for (let i = 0; i < 510; i++)
            await store.senderDomains.insert(newSenderDomain('one', `d${i}.example`, new Date(clock.now())));
          expect(await task().run()).to.include({ tested: 500 });
          expect(questions).to.include('TXT late.example');
          expect(await task().run()).to.include({ tested: 11 });
        }).timeout(60_000);
    });

    describe('of inbound domains', () => {
      const names = createReservedNames({
        hostname: 'mx.postern.test',
        mxHosts: [],
        returnDomain: 'bounces.mx.postern.test',
        publicUrl: '',
        consoleUrls: [],
        spfInclude: 'spf.mx.postern.test',
      });
      const changed: string[] = [];
      const task = (on = resolver) => {
        const routing: Pick<Routing, 'change'> = {
          async change(domain, make) {
            changed.push(domain);
            return make();
          },
        };
        const ownership = createOwnership(
          { ownership: 'txt' },
          { store, routing, resolver: on, names, clock, log: createTestLog() },
        );
        return retestInboundDomainsTask({ mxHosts: ['mx.postern.test'] }, { store, clock, ownership, resolver: on });
      };
      const add = (domain: string, row: Partial<InboundDomainRow> = {}) =>
        store.inboundDomains.insert({
          id: domain,
          account: 'one',
          domain,
          createdAt: new Date(clock.now()),
          validMx: false,
          testedAt: null,
          ...row,
        });
      const validOf = async (domain: string) => (await store.inboundDomains.one({ id: domain }))?.validMx;
      const ours: ZoneNode = { MX: [{ exchange: 'MX.postern.test', priority: 10 }] };

      it('tests each of them every hour, in both directions', async () => {
        zone = { 'in.example': ours };
        await add('in.example');
        await add('old.example', { validMx: true });
        expect(await task().run()).to.deep.equal({ tested: 2, changed: 2 });
        expect([await validOf('in.example'), await validOf('old.example')]).to.deep.equal([true, false]);
        clock.jump(HOUR_MS - 1);
        expect(await task().run()).to.equal(undefined);
        clock.jump(1);
        zone = { 'old.example': ours };
        expect(await task().run()).to.deep.equal({ tested: 2, changed: 2 });
        expect([await validOf('in.example'), await validOf('old.example')]).to.deep.equal([false, true]);
      });

      it('accepts mail for a domain within an hour of its TXT record, without a request', async () => {
        await add('in.example', { id: 'in.example one' });
        await task().run();
        expect((await store.inboundDomains.many({})).map(({ id }) => id)).to.deep.equal(['in.example one']);
        const value = `postern-domain=${createHash('sha256').update('one in.example').digest('hex').slice(0, 32)}`;
        zone = { 'in.example': ours, '_postern-challenge.in.example': { TXT: ['something else', value] } };
        clock.jump(HOUR_MS);
        expect(await task().run()).to.deep.equal({ tested: 1, changed: 1 });
        expect((await store.inboundDomains.many({})).map(({ id, validMx }) => ({ id, validMx }))).to.deep.equal([
          { id: 'in.example', validMx: true },
        ]);
        expect(changed).to.deep.equal(['in.example']);
      });

      it('changes nothing while the DNS does not answer', async () => {
        zone = { 'in.example': { fails: 'servfail' } };
        await add('in.example', { validMx: true });
        expect(await task().run()).to.deep.equal({ tested: 1, changed: 0 });
        expect(await validOf('in.example')).to.equal(true);
        expect(await task().run()).to.equal(undefined);
      });

      it('does not undo a newer result, nor restore a deleted domain', async () => {
        await add('seen.example');
        await add('gone.example');
        zone = { 'gone.example': {} };
        const slow = changingResolver(
          () => zone,
          async (name) => {
            if (name === 'seen.example')
              await store.inboundDomains.change({ id: name }, { validMx: true, testedAt: new Date(clock.now() + 1) });
            else await store.inboundDomains.remove({ id: name });
          },
        );
        await task(slow).run();
        expect(await store.inboundDomains.many({})).to.have.length(1);
        expect(await validOf('seen.example')).to.equal(true);
      });

      it('is safe in two concurrent processes and when interrupted', async () => {
        for (let i = 0; i < 25; i++) await add(`d${i}.example`);
        zone = Object.fromEntries(Array.from({ length: 25 }, (_, i) => [`d${i}.example`, ours]));
        const ending = new AbortController();
        ending.abort();
        expect(await task().run(ending.signal)).to.equal(undefined);
        const runs = await Promise.all([task().run(), task().run()]);
        expect(runs.reduce((sum, done) => sum + Number(done?.changed ?? 0), 0)).to.equal(25);
        expect((await store.inboundDomains.many({})).every(({ validMx }) => validMx)).to.equal(true);
      });
    });
  });
}
