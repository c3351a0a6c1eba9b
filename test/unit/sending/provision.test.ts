import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { provisionIpsTask } from '../../../src/sending/dedicated-ips.ts';
import type { Collection, Row } from '../../../src/store/driver/port.ts';
import { DEFAULT_POOL, type IpRequestRow, poolId } from '../../../src/store/rows/ips.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { putIp, stock } from '../../support/ips.ts';
import { createTestLog } from '../../support/log.ts';

const DAY_MS = 86_400_000;

for (const driver of drivers) {
  describe(`provisioning, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    let log: ReturnType<typeof createTestLog>;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
      clock = createTestClock();
      log = createTestLog();
    });
    afterEach(() => store.close());

    const task = (on: Store = store) =>
      provisionIpsTask(
        { hostname: 'mx.example.net', quarantineDays: 30 },
        { store: on, clock, ids: createIds(clock), log },
      );
    async function ask(account: string, fields: Partial<IpRequestRow> = {}) {
      await store.ipRequests.insert({
        id: account,
        account,
        token: `request of ${account}`,
        pool: DEFAULT_POOL,
        warmup: false,
        requestedAt: new Date(clock.now()),
        ip: null,
        claim: null,
        ...fields,
      });
    }
    const makePool = (account: string, name: string) =>
      store.pools.insert({ id: poolId(account, name), account, name, token: `t ${name}`, createdAt: new Date(0) });
    const owned = async (account: string) =>
      (await store.ips.many({ account, releasedAt: null }, { sort: 'id' })).map(({ id }) => id);
    const elsewhere = async (account: string) => (await store.placements.one({ id: account }))?.elsewhere ?? [];
    const release = (id: string) => store.ips.change({ id }, { releasedAt: new Date(clock.now()) });

    it('gives the oldest request the address that has been free for the longest time, and one request one address', async () => {
      await stock(store, '192.0.2.1', { freeAt: new Date(2000) });
      await stock(store, '192.0.2.2', { freeAt: new Date(1000) });
      await stock(store, '192.0.2.3', { freeAt: new Date(3000) });
      await ask('young', { requestedAt: new Date(clock.now() - 1) });
      await ask('old', { requestedAt: new Date(clock.now() - 2) });
      expect(await task().run()).to.deep.equal({ given: 2, returned: 0, waiting: 0 });
      expect([await owned('old'), await owned('young'), await owned('')]).to.deep.equal([
        ['192.0.2.2'],
        ['192.0.2.1'],
        ['192.0.2.3'],
      ]);
      expect(await store.ipRequests.many({})).to.deep.equal([]);
      expect(await task().run()).to.equal(undefined);
      expect(log.of('ip.given').map(({ fields }) => fields)).to.deep.equal([
        { ip: '192.0.2.2', account: 'old' },
        { ip: '192.0.2.1', account: 'young' },
      ]);
    });

    it('names the address as the operator set, or by default, and starts a requested warmup', async () => {
      await stock(store, '192.0.2.1', { homeDomain: 'out.example.net' });
      await stock(store, '2001:db8::1');
      await ask('a');
      await ask('b', { warmup: true, requestedAt: new Date(clock.now() + 1) });
      await task().run();
      const now = new Date(clock.now());
      expect(await store.ips.one({ id: '192.0.2.1' })).to.include({
        account: 'a',
        domain: 'out.example.net',
        warmupStartAt: null,
        warmupEndAt: null,
        freeAt: null,
      });
      expect(await store.ips.one({ id: '2001:db8::1' })).to.deep.include({
        account: 'b',
        domain: '2001-0db8-0000-0000-0000-0000-0000-0001.mx.example.net',
        createdAt: now,
        warmupStartAt: now,
        warmupEndAt: new Date(clock.now() + 30 * DAY_MS),
      });
    });

    it('puts the address into the requested pool, or into the default pool if that was deleted', async () => {
      await stock(store, '192.0.2.1');
      await stock(store, '192.0.2.2');
      await makePool('a', 'News');
      await ask('a', { pool: 'News' });
      await ask('b', { pool: 'Gone', requestedAt: new Date(clock.now() + 1) });
      await task().run();
      expect([await elsewhere('a'), await elsewhere('b')]).to.deep.equal([[{ ip: '192.0.2.1', pool: 'News' }], []]);
      expect([await owned('a'), await owned('b')]).to.deep.equal([['192.0.2.1'], ['192.0.2.2']]);
    });

    it('waits while there is no address, logs it once an hour, and continues when there is one', async () => {
      await ask('a');
      const one = task();
      expect(await one.run()).to.include({
        given: 0,
        waiting: 1,
        note: 'the inventory has no free address: postern ip add',
      });
      await clock.advance(3_599_999);
      expect(await one.run()).to.equal(undefined);
      await clock.advance(1);
      expect(await one.run()).to.include({ waiting: 1 });
      await stock(store, '192.0.2.1');
      expect(await one.run()).to.deep.equal({ given: 1, returned: 0, waiting: 0 });
    });

    it('takes back returned addresses, keeps them for 30 days, and assigns them without their history', async () => {
      await putIp(store, 'a', '192.0.2.1', {
        domain: 'mail.a.example',
        homeDomain: 'out.example.net',
        warmupStartAt: new Date(0),
        warmupEndAt: new Date('2999-01-01'),
        customDomain: 'mail.a.example',
        customState: 'valid',
        customSetAt: new Date(0),
        customTestAt: new Date(0),
      });
      await store.placements.insert({
        id: 'a',
        account: 'a',
        version: 1,
        elsewhere: [{ ip: '192.0.2.1', pool: 'News' }],
        closing: [],
      });
      await release('192.0.2.1');
      await ask('b');
      expect(await task().run()).to.include({ given: 0, returned: 1, waiting: 1 });
      expect(await elsewhere('a')).to.deep.equal([]);
      expect(await store.ips.one({ id: '192.0.2.1' })).to.deep.include({
        account: '',
        domain: '',
        freeAt: new Date(clock.now() + 30 * DAY_MS),
        releasedAt: null,
      });
      await clock.advance(30 * DAY_MS - 1);
      await task().run();
      expect(await owned('b')).to.deep.equal([]);
      await clock.advance(1);
      await task().run();
      expect(await store.ips.one({ id: '192.0.2.1' })).to.deep.include({
        account: 'b',
        domain: 'out.example.net',
        warmupStartAt: null,
        warmupEndAt: null,
        customDomain: null,
        customState: null,
        customError: null,
        customSetAt: null,
        customTestAt: null,
      });
    });

    it('gives 20 addresses to 20 of 30 requests in five concurrent processes: none twice, no two to one', async () => {
      for (let n = 1; n <= 20; n++) await stock(store, `192.0.2.${n}`);
      for (let n = 1; n <= 30; n++) {
        await makePool(`a${n}`, 'News');
        await ask(`a${n}`, { pool: n % 2 ? 'News' : DEFAULT_POOL, requestedAt: new Date(n) });
      }
      await Promise.all(Array.from({ length: 5 }, () => task().run()));
      await task().run();
      const given = (await store.ips.many({})).map(({ account }) => account);
      expect(new Set(given).size, 'accounts').to.equal(20);
      expect(given).to.not.include('');
      const waiting = await store.ipRequests.many({});
      expect(waiting.map(({ account, ip }) => [account, ip])).to.have.deep.members(
        Array.from({ length: 30 }, (_, n) => `a${n + 1}`)
          .filter((name) => !given.includes(name))
          .map((name) => [name, null]),
      );
      for (const { id, account } of await store.ips.many({})) {
        expect(await elsewhere(account), account).to.deep.equal(
          Number(account.slice(1)) % 2 ? [{ ip: id, pool: 'News' }] : [],
        );
      }
    });

    it('repairs an interrupted run, before and after each write', async () => {
      for (const when of ['before', 'after'] as const) {
        for (let at = 1; ; at++) {
          const account = `${when}${at}`;
          await putIp(store, account, `198.51.100.${at}`);
          await release(`198.51.100.${at}`);
          await stock(store, `192.0.2.${at}`);
          await makePool(account, 'News');
          await ask(account, { pool: 'News', warmup: true });
          const crashed = await task(crashing(store, at, when))
            .run()
            .then(
              () => false,
              () => true,
            );
          await task().run();
          expect(await owned(account), account).to.have.length(1);
          expect(await elsewhere(account)).to.deep.equal([{ ip: (await owned(account))[0], pool: 'News' }]);
          expect(await store.ipRequests.many({})).to.deep.equal([]);
          expect(await store.ips.many({ releasedAt: { exists: true } })).to.deep.equal([]);
          for (const { id } of await store.ips.many({})) await store.ips.remove({ id });
          expect(crashed, `write ${at}`).to.equal(at < 8);
          if (!crashed) break;
        }
      }
    });

    it('gives no second address to a served request that was still open when the first was returned', async () => {
      await stock(store, '192.0.2.1');
      await stock(store, '192.0.2.2');
      await ask('a');
      // The writes: the request names an address, the address is handed over, the request goes.
      await task(crashing(store, 3, 'before'))
        .run()
        .catch(() => {});
      expect(await owned('a')).to.deep.equal(['192.0.2.1']);
      await release('192.0.2.1');
      await task().run();
      expect([await owned('a'), await store.ipRequests.many({})]).to.deep.equal([[], []]);
    });

    it('changes nothing in a late process: neither reassigned nor returned addresses', async () => {
      await stock(store, '192.0.2.1');
      await makePool('a', 'News');
      await ask('a', { pool: 'News' });
      const late = task(
        pausing(store, async () => {
          await task().run(); // another process serves the request
          await release('192.0.2.1');
          await task().run(); // and takes the address back
          await store.ips.change({ id: '192.0.2.1' }, { freeAt: new Date(clock.now()) });
        }),
      );
      await late.run();
      expect(await owned('a')).to.deep.equal([]);
      expect(await store.ips.one({ id: '192.0.2.1' })).to.include({ account: '' });
      expect([await elsewhere('a'), await store.ipRequests.many({})]).to.deep.equal([[], []]);
    });

    it('chooses again when the operator removes the address, or another request was faster', async () => {
      await stock(store, '192.0.2.9');
      await ask('a', { ip: '192.0.2.1', claim: 'gone', pool: 'News' });
      await makePool('a', 'News');
      await store.placements.insert({
        id: 'a',
        account: 'a',
        version: 1,
        elsewhere: [{ ip: '192.0.2.1', pool: 'News' }],
        closing: [],
      });
      await task().run();
      expect(await owned('a')).to.deep.equal(['192.0.2.9']);
      expect(await elsewhere('a')).to.deep.equal([{ ip: '192.0.2.9', pool: 'News' }]);
    });

    it('stops on request', async () => {
      await stock(store, '192.0.2.1');
      await ask('a');
      expect(await task().run(AbortSignal.abort())).to.not.have.property('note');
      expect(await owned('a')).to.deep.equal([]);
    });
  });
}

const WRITES = ['insert', 'change', 'remove', 'add'] as const;

/**
 * The store with something around every write of the collections that provisioning uses, those bound to an account too.
 */
function around(store: Store, write: <T>(name: string, run: () => Promise<T>) => Promise<T>): Store {
  const wrap = <C extends object>(name: string, collection: C): C => {
    const methods = Object.entries(collection).map(([method, run]) => [
      method,
      WRITES.some((known) => known === method)
        ? (...args: unknown[]) => write(`${name}.${method}`, () => run(...args))
        : run,
    ]);
    return Object.fromEntries(methods);
  };
  const names = ['ips', 'ipRequests', 'placements', 'pools'] as const;
  const all = Object.fromEntries(names.map((name) => [name, wrap<Collection<Row> | object>(name, store[name])]));
  return {
    ...store,
    ...all,
    of: (account) => ({
      ...store.of(account),
      placements: wrap('placements', store.of(account).placements),
      pools: wrap('pools', store.of(account).pools),
    }),
  };
}

/** A process that dies at its nth write. */
function crashing(store: Store, at: number, when: 'before' | 'after'): Store {
  let writes = 0;
  return around(store, async (_, run) => {
    if (++writes > at) throw new Error('dead');
    if (writes === at && when === 'before') throw new Error('crash');
    const answer = await run();
    if (writes === at) throw new Error('crash');
    return answer;
  });
}

/** A process that sleeps before it hands an address over, while others work. */
function pausing(store: Store, meanwhile: () => Promise<void>): Store {
  let slept = false;
  return around(store, async (name, run) => {
    if (name === 'ips.change' && !slept) {
      slept = true;
      await meanwhile();
    }
    return run();
  });
}
