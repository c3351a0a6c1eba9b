import { expect } from 'chai';
import { retestReverseDnsTask } from '../../../src/sending/dedicated-ips.ts';
import { type IpRow, PENDING_ERROR } from '../../../src/store/rows/ips.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { putIp } from '../../support/ips.ts';
import { createTestLog } from '../../support/log.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 1440 * MINUTE_MS;
const FORWARD = { 'out.example.com': { A: ['192.0.2.1'] } };
const BOTH = { ...FORWARD, '1.2.0.192.in-addr.arpa': { PTR: ['Out.Example.com.'] } };

for (const driver of drivers) {
  describe(`the re-test of reverse DNS, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    let log: ReturnType<typeof createTestLog>;
    beforeEach(async () => {
      store = await openStore(await driver.open());
      clock = createTestClock();
      log = createTestLog();
    });
    afterEach(() => store.close());

    const put = (fields: Partial<IpRow> = {}, id = '192.0.2.1') =>
      putIp(store, 'a', id, {
        domain: 'home.example.net',
        homeDomain: 'home.example.net',
        customDomain: 'out.example.com',
        customState: 'pending',
        customError: PENDING_ERROR,
        customSetAt: new Date(clock.now()),
        customTestAt: new Date(clock.now()),
        ...fields,
      });
    const run = (zone: ZoneRecords) =>
      retestReverseDnsTask({ hostname: 'mx.example.net' }, { store, resolver: zoneResolver(zone), clock, log }).run();
    async function shown(id = '192.0.2.1') {
      const row = await store.ips.one({ id });
      return (
        row && {
          state: row.customState,
          error: row.customError,
          domain: row.domain,
          next: row.customTestAt === null ? null : (row.customTestAt.getTime() - clock.now()) / MINUTE_MS,
        }
      );
    }

    it('makes a pending change valid when the PTR record names the domain, and reports it', async () => {
      await put();
      expect(await run(BOTH)).to.deep.equal({ tested: 1, changed: 1 });
      expect(await shown()).to.deep.equal({ state: 'valid', error: null, domain: 'out.example.com', next: 1440 });
      expect(log.of('ip.reverse_dns').map(({ fields }) => fields)).to.deep.equal([
        { ip: '192.0.2.1', account: 'a', domain: 'out.example.com', state: 'valid', error: null },
      ]);
    });

    it('leaves it pending while the PTR record is different or missing, and checks again in five minutes', async () => {
      await put();
      for (const zone of [FORWARD, { ...FORWARD, '1.2.0.192.in-addr.arpa': { PTR: ['home.example.net'] } }]) {
        expect(await run(zone)).to.equal(undefined);
        expect(await shown()).to.deep.equal({
          state: 'pending',
          error: PENDING_ERROR,
          domain: 'home.example.net',
          next: 5,
        });
        await clock.advance(5 * MINUTE_MS);
      }
      await run(BOTH);
      expect((await shown())?.state).to.equal('valid');
    });

    it('reports a pending change whose domain no longer points to the address', async () => {
      await put();
      await run({});
      expect(await shown()).to.deep.equal({
        state: 'pending',
        error: 'out.example.com does not exist',
        domain: 'home.example.net',
        next: 5,
      });
    });

    it('gives up a change after seven days of pending, and still makes it valid later', async () => {
      await put();
      await clock.advance(7 * DAY_MS - 1);
      await run(FORWARD);
      expect((await shown())?.state).to.equal('pending');
      await clock.advance(5 * MINUTE_MS);
      await run(FORWARD);
      expect(await shown()).to.deep.equal({
        state: 'invalid',
        error: 'Invalid reverse DNS',
        domain: 'home.example.net',
        next: 60,
      });
      await clock.advance(60 * MINUTE_MS);
      await run(BOTH);
      expect(await shown()).to.deep.equal({ state: 'valid', error: null, domain: 'out.example.com', next: 1440 });
    });

    it('makes a valid one invalid when either direction fails, restores the earlier name, and makes it valid again', async () => {
      for (const [zone, error] of [
        [FORWARD, 'Invalid reverse DNS'],
        [{ '1.2.0.192.in-addr.arpa': { PTR: ['out.example.com'] } }, 'out.example.com does not exist'],
        [{ ...BOTH, 'out.example.com': { TXT: ['x'] } }, 'No A record found'],
      ] as const) {
        await store.ips.remove({ id: '192.0.2.1' });
        await put({ customState: 'valid', customError: null, domain: 'out.example.com' });
        await run(zone);
        expect(await shown()).to.deep.equal({ state: 'invalid', error, domain: 'home.example.net', next: 60 });
        await clock.advance(60 * MINUTE_MS);
        await run(BOTH);
        expect(await shown()).to.deep.equal({ state: 'valid', error: null, domain: 'out.example.com', next: 1440 });
      }
    });

    it('falls back to a name under our own by default', async () => {
      await put({ customState: 'valid', customError: null, domain: 'out.example.com', homeDomain: null });
      await run(FORWARD);
      expect((await shown())?.domain).to.equal('192-0-2-1.mx.example.net');
    });

    it('changes nothing while the DNS does not answer, and checks again in five minutes', async () => {
      await put({ customState: 'valid', customError: null, domain: 'out.example.com' });
      for (const zone of [
        { ...BOTH, 'out.example.com': { fails: 'timeout' } },
        { ...FORWARD, '1.2.0.192.in-addr.arpa': { fails: 'servfail' } },
      ] as const) {
        expect(await run(zone)).to.equal(undefined);
        expect(await shown()).to.deep.equal({ state: 'valid', error: null, domain: 'out.example.com', next: 5 });
        await clock.advance(5 * MINUTE_MS);
      }
    });

    it('queries only due changes', async () => {
      await put({ customTestAt: new Date(clock.now() + 1) });
      await putIp(store, 'a', '192.0.2.2');
      const resolver = zoneResolver(BOTH);
      await retestReverseDnsTask({ hostname: 'mx.example.net' }, { store, resolver, clock, log }).run();
      expect(resolver.questions).to.deep.equal([]);
    });

    it('works for an IPv6 address, by its AAAA record and its ip6.arpa name', async () => {
      await put({}, '2001:db8::1');
      await run({
        'out.example.com': { AAAA: ['2001:0DB8::0001'] },
        '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa': { PTR: ['out.example.com'] },
      });
      expect((await shown('2001:db8::1'))?.state).to.equal('valid');
    });

    it('overwrites nothing that was requested or returned during the query', async () => {
      await put();
      const asked = {
        customDomain: 'new.example.com',
        customSetAt: new Date(clock.now() + 1),
        customTestAt: new Date(clock.now() + 1),
      };
      const real = zoneResolver(BOTH);
      const meddling = {
        ...real,
        resolve: (async (...args: Parameters<typeof real.resolve>) => {
          await store.ips.change({ id: '192.0.2.1' }, asked);
          return real.resolve(...args);
        }) as typeof real.resolve,
      };
      await retestReverseDnsTask({ hostname: 'mx.example.net' }, { store, resolver: meddling, clock, log }).run();
      expect(await store.ips.one({ id: '192.0.2.1' })).to.include({
        customDomain: 'new.example.com',
        customState: 'pending',
        domain: 'home.example.net',
      });
      await store.ips.change({ id: '192.0.2.1' }, { releasedAt: new Date(clock.now()) });
      await clock.advance(1);
      await run({ 'new.example.com': { A: ['192.0.2.1'] }, '1.2.0.192.in-addr.arpa': { PTR: ['new.example.com'] } });
      expect((await store.ips.one({ id: '192.0.2.1' }))?.customState).to.equal('pending');
    });
  });
}
