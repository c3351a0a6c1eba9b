import { join } from 'node:path';
import { expect } from 'chai';
import { accountLimits } from '../../../src/composition/slices.ts';
import { openDatabase } from '../../../src/composition/storage.ts';
import { openEmbedded } from '../../../src/store/driver/embedded.ts';
import type { Database } from '../../../src/store/driver/port.ts';
import { openStore } from '../../../src/store/store.ts';
import { countUsageTask, meteredDatabase } from '../../../src/store/usage.ts';

import { ACCOUNT, type ApiWorld, KEY, limitsOf, NO_LIMITS, OTHER_KEY, startApi } from '../../support/api.ts';
import { createTestClock } from '../../support/clock.ts';
import { startDaemon, testSettings } from '../../support/daemon.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { NO_FLOOR } from '../../support/room.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

for (const driver of drivers) {
  describe(`the limits of an account, ${driver.name}`, () => {
    let world: ApiWorld;
    const start = async (limits: Partial<typeof NO_LIMITS>) => {
      world = await startApi({
        settings: { limits: { ...NO_LIMITS, ...limits } },
        database: (log) => driver.open({ log }),
      });
    };
    afterEach(() => world.stop());

    const ADDS: Readonly<Record<string, readonly [string, (n: number) => object]>> = {
      'inbound domains': ['/inbound/add-domain', (n) => ({ domain: `in${n}.example.com` })],
      routes: [
        '/inbound/add-route',
        (n) => ({ domain: 'inbound.example.com', pattern: `box${n}`, url: 'https://app.example.com/' }),
      ],
      webhooks: ['/webhooks/add', (n) => ({ url: `https://app.example.com/${n}`, events: ['send'] })],
      templates: ['/templates/add', (n) => ({ name: `T${n}`, code: '<p></p>' })],
      subaccounts: ['/subaccounts/add', (n) => ({ id: `sub-${n}` })],
      'sender domains': ['/senders/add-domain', (n) => ({ domain: `from${n}.example.com` })],
      'tracking domains': ['/urls/add-tracking-domain', (n) => ({ domain: `links${n}.example.com` })],
      'IP pools': ['/ips/create-pool', (n) => ({ pool: `pool-${n}` })],
      'entries in its rejection list': ['/rejects/add', (n) => ({ email: `r${n}@example.com` })],
      'entries in its allow list': ['/whitelists/add', (n) => ({ email: `w${n}@example.com` })],
    };
    for (const [words, [path, params]] of Object.entries(ADDS)) {
      it(`reject more ${words}, with a ValidationError that names the limit, for that account only`, async () => {
        await start({ rows: limitsOf(10) });
        let refused: any;
        let added = 0;
        for (; added < 20 && !refused; added++) {
          const { status, body } = await world.call(path, params(added));
          if (status !== 200) refused = { status, body };
        }
        expect(added, 'those that were there count').to.be.within(6, 11);
        expect(refused?.body, words).to.include({ status: 'error', code: -2, name: 'ValidationError' });
        expect(refused?.body.message).to.contain(`The account has 10 ${words}, which is its limit`);
        expect((await world.call(path, { ...params(99), key: OTHER_KEY })).body.message ?? '').to.not.contain('limit');
      });
    }

    it('allow another after a deletion, by any host', async () => {
      await start({ rows: limitsOf(3) });
      const add = async (n: number) => (await world.call('/subaccounts/add', { id: `sub-${n}` })).status;
      const statuses = [];
      for (let n = 0; n < 6; n++) statuses.push(await add(n));
      expect(statuses.at(-1)).to.equal(422);
      await world.call('/subaccounts/delete', { id: 'sub-0' });
      expect(await add(7)).to.equal(200);
      expect(await add(8)).to.equal(422);
      // Another host takes one away and brings its count.
      await world.clock.advance(1000);
      await world.meter.correct(ACCOUNT, { ...limitsOf(0), bytes: 0, subaccounts: -1 });
      await world.clock.advance(2000);
      expect(await add(9)).to.equal(200);
      expect(await add(10)).to.equal(422);
    });

    it('reject additions and sending at the storage limit; reading and deleting still work', async () => {
      const used = async () => (await world.meter.of(ACCOUNT)).bytes;
      await start({ bytes: 500_000 });
      const template = { name: 'Large', code: `<p>${'x'.repeat(100_000)}</p>` };
      expect((await world.call('/templates/add', template)).status).to.equal(200);
      const before = await used();
      let status = 200;
      for (let n = 0; n < 10 && status === 200; n++)
        status = (await world.call('/templates/add', { ...template, name: `Large ${n}` })).status;
      expect(status).to.equal(422);
      expect(await used()).to.be.within(before + 200_000, 900_000);
      const message = { message: { from_email: 'a@example.com', to: [{ email: 'b@example.net' }], text: 'x' } };
      for (const [path, params] of [
        ['/messages/send', message],
        ['/subaccounts/add', { id: 'one-more' }],
        ['/rejects/add', { email: 'a@example.com' }],
        ['/templates/update', { ...template, code: 'y'.repeat(10_000) }],
      ] as const) {
        expect((await world.call(path, params)).body.message, path).to.contain(
          'The account has reached its storage limit of 500000 bytes',
        );
      }
      expect((await world.call('/templates/list')).status).to.equal(200);
      for (let n = 0; n < 4; n++) await world.call('/templates/delete', { name: `Large ${n}` });
      expect((await world.call('/subaccounts/add', { id: 'one-more' })).status).to.equal(200);
      expect((await world.call('/messages/send', message)).status).to.equal(200);
    });

    it('limit its calls per second, with bursts of ten seconds, and say when to retry', async () => {
      await start({ callsPerSecond: 2 });
      const ping = async (key = KEY) => (await world.call('/users/ping', { key })).status;
      const first = await Promise.all(Array.from({ length: 25 }, () => ping()));
      expect(first.filter((status) => status === 429)).to.have.length(5);
      const { status, body, headers } = await world.call('/users/ping');
      expect({ status, name: body.name, retry: headers.get('retry-after') }).to.deep.equal({
        status: 429,
        name: 'RequestLimitExceeded',
        retry: '1',
      });
      expect(await ping(OTHER_KEY), 'another account').to.equal(200);
      await world.clock.advance(1000);
      expect([await ping(), await ping(), await ping()]).to.deep.equal([200, 200, 429]);
    });

    it('are recounted from the rows every night, including rows of older versions or the command line', async () => {
      await start({});
      const task = countUsageTask(world);
      await world.clock.advance(2000);
      await until('what was written so far to be counted', async () => (await task.run()) === undefined);
      await world.clock.advance(2000);
      await world.meter.correct(ACCOUNT, { ...limitsOf(7), bytes: -1_000_000 });
      await world.clock.advance(2000);
      expect(await task.run()).to.include({ corrected: 1 });
      await world.clock.advance(2000);
      const usage = await world.meter.of(ACCOUNT);
      const bytes = (await world.store.templates.many({ account: ACCOUNT })).reduce(
        (sum, row) => sum + JSON.stringify(row).length,
        0,
      );
      expect(usage.subaccounts)
        .to.equal((await world.store.subaccounts.many({ account: ACCOUNT })).length)
        .and.to.be.above(0);
      expect(usage.inbound_routes).to.equal(1);
      expect(usage.bytes).to.be.above(bytes);
      expect(await task.run(), 'and find nothing the next night').to.equal(undefined);
    });

    it('are counted over all hosts of a store', async () => {
      await start({});
      const database = await driver.open();
      const clock = createTestClock();
      const hosts = await Promise.all(
        [1, 2].map(() =>
          meteredDatabase({ ...database, close: async () => undefined }, { clock, log: createTestLog() }),
        ),
      );
      const stores = await Promise.all(hosts.map((host) => openStore(host.database)));
      for (const [n, store] of stores.entries()) {
        for (let i = 0; i < 5; i++)
          await store.pools.insert({
            id: `${n} ${i}`,
            account: 'a',
            name: `${n} ${i}`,
            token: '',
            createdAt: new Date(0),
          });
      }
      await clock.advance(1000);
      await until('both counts', async () => {
        await clock.advance(1000);
        return (await Promise.all(hosts.map(({ meter }) => meter.of('a')))).every(
          ({ pools, bytes }) => pools === 10 && bytes > 500,
        );
      });
      for (const store of stores) await store.close();
      await database.close();
    });
  });
}

describe('the usage counts of accounts', () => {
  it('survive store errors and are written later', async () => {
    const clock = createTestClock();
    const log = createTestLog();
    const database = await openEmbedded(
      { file: join(await tempDir(), 'store.db'), timeoutMs: 5000, room: NO_FLOOR },
      { clock, log },
    );
    let faults = 1;
    const faulty: Database = {
      ...database,
      async collection(spec) {
        const rows = await database.collection(spec);
        if (spec.name !== 'usage') return rows;
        return {
          ...rows,
          add: async (...row) => (faults-- > 0 ? Promise.reject(new Error('a fault')) : rows.add(...row)),
        };
      },
    };
    const { database: metered, meter } = await meteredDatabase(faulty, { clock, log });
    const store = await openStore(metered);
    await store.pools.insert({ id: '1', account: 'a', name: '1', token: '', createdAt: new Date(0) });
    await until('the fault to be logged', async () => {
      await clock.advance(1000);
      return log.of('store.fault').length > 0;
    });
    await until('the count to be written', async () => {
      await clock.advance(1000);
      return (await meter.stored('a')).pools === 1;
    });
    await store.close();
  });
});

describe('limits in the settings', () => {
  it('are those that the daemon enforces', async () => {
    const running = await startDaemon({
      POSTERN_ACCOUNTS__MAX_DOMAINS: '2',
      POSTERN_ACCOUNTS__MAX_CALLS_PER_SECOND: '5',
    });
    try {
      for (let n = 0; n < 2; n++)
        expect((await running.ask('/inbound/add-domain', { domain: `d${n}.test` })).status).to.equal(200);
      expect((await running.ask('/inbound/add-domain', { domain: 'd2.test' })).body.message).to.contain(
        'The account has 2 inbound domains',
      );
      const statuses = await Promise.all(
        Array.from({ length: 80 }, async () => (await running.ask('/users/ping')).status),
      );
      expect(statuses).to.include(429).and.to.include(200);
    } finally {
      await running.stop();
    }
    // What was counted is there at the next start.
    const { database, meter } = await meteredDatabase(await openDatabase(testSettings(running.dir), running.log), {
      clock: createTestClock(),
      log: running.log,
    });
    const store = await openStore(database);
    const account = await store.accounts.one({ number: 1 });
    expect((await meter.of(account?.id ?? '')).inbound_domains).to.equal(2);
    await store.close();
  });

  it('cover every counted kind', () => {
    expect(Object.keys(accountLimits(testSettings('/nowhere')).rows).sort()).to.deep.equal(
      Object.keys(limitsOf(0)).sort(),
    );
  });
});
