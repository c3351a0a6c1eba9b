import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createRouting } from '../../../src/inbound/routing.ts';
import { type Collection, type Row, StoreAway } from '../../../src/store/driver/port.ts';
import type { InboundRouteRow } from '../../../src/store/rows/domains.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';

type Shared = Pick<Store, 'inboundDomains' | 'inboundRoutes' | 'revisions' | 'routingChanges' | 'understands'>;

/** The same store, in which `before` runs before each operation and may throw; `after` gets what a search found. */
function watched(store: Store, before: () => Promise<void>, after: (rows: number) => void = () => undefined): Shared {
  const over = <R extends Row>(rows: Collection<R>): Collection<R> => ({
    one: (filter) => before().then(() => rows.one(filter)),
    async many(filter, page) {
      await before();
      const found = await rows.many(filter, page);
      after(found.length);
      return found;
    },
    insert: (row) => before().then(() => rows.insert(row)),
    change: (filter, patch) => before().then(() => rows.change(filter, patch)),
    add: (id, amounts, fresh) => before().then(() => rows.add(id, amounts, fresh)),
    remove: (filter) => before().then(() => rows.remove(filter)),
    insertAll: (all) => before().then(() => rows.insertAll(all)),
    removeAll: (filter) => before().then(() => rows.removeAll(filter)),
  });
  return {
    understands: store.understands,
    inboundDomains: over(store.inboundDomains),
    inboundRoutes: over(store.inboundRoutes),
    revisions: over(store.revisions),
    routingChanges: over(store.routingChanges),
  };
}

for (const driver of drivers)
  describe(`a change of routes on another host, on ${driver.name}`, function () {
    this.timeout(60_000);
    const clock = createTestClock();
    const ids = createIds(clock);
    let store: Store;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
    });
    afterEach(() => store.close());

    const log = createTestLog();
    /** A host that would look by itself in an hour. */
    const host = (over: Shared = store) => createRouting({ refreshMs: 3_600_000 }, { store: over, clock, ids, log });
    const started = async (over?: Shared) => {
      const routing = host(over);
      await routing.start();
      return routing;
    };
    const hit = (routing: ReturnType<typeof host>, mailbox: string, domain = 'in.test') => {
      const found = routing.lookup(mailbox, domain);
      return found.kind === 'matched' ? found.match.url : found.kind;
    };
    let made = 0;
    const domainRow = (id: string) => ({
      ...{ id, account: 'a', domain: id, createdAt: new Date(clock.now()), validMx: false, testedAt: null },
    });
    const routeRow = (domain: string, pattern: string): InboundRouteRow => ({
      ...{ id: `1.${++made}`, account: 'a', domain, pattern, url: `https://hook.test/${domain}/${pattern}` },
      createdAt: new Date(clock.now() + made),
    });
    const put = async (domain: string, ...patterns: string[]) => {
      await store.inboundDomains.insert(domainRow(domain));
      for (const pattern of patterns) await store.inboundRoutes.insert(routeRow(domain, pattern));
      await store.revisions.add('routing', { count: 1 }, { count: 0 });
    };

    const CHANGES = {
      'adds a route': { make: (rows: Shared) => rows.inboundRoutes.insert(routeRow('in.test', 'new')) },
      'changes the URL of a route': {
        make: (rows: Shared) => rows.inboundRoutes.change({ domain: 'in.test', pattern: 'box' }, { url: 'https://b/' }),
      },
      'renames a route': {
        make: (rows: Shared) => rows.inboundRoutes.change({ domain: 'in.test', pattern: 'box' }, { pattern: 'new' }),
      },
      'deletes a route': { make: (rows: Shared) => rows.inboundRoutes.remove({ domain: 'in.test', pattern: 'box' }) },
      'adds a catch-all': { make: (rows: Shared) => rows.inboundRoutes.insert(routeRow('in.test', '*')) },
      'deletes the domain': {
        async make(rows: Shared) {
          await rows.inboundRoutes.remove({ domain: 'in.test', pattern: 'box' });
          await rows.inboundDomains.remove({ id: 'in.test' });
        },
      },
    };

    for (const [what, { make }] of Object.entries(CHANGES))
      it(`holds although the host that ${what} dies, whichever of its writes was the last`, async () => {
        await put('in.test', 'box');
        const truth = async () => {
          const fresh = await started();
          await fresh.stop();
          return ['box', 'new', 'other'].map((mailbox) => hit(fresh, mailbox));
        };
        const seen = new Set<string>();
        const rows = await Promise.all([store.inboundDomains.many({}), store.inboundRoutes.many({})]);
        for (let last = 0, died = true; died; last++) {
          const b = await started();
          let writes = 0;
          died = false;
          const dying = watched(store, async () => {
            // The worst case: the other host has looked right before each of them.
            await b.refresh();
            if (writes++ < last) return;
            died = true;
            throw new StoreAway('the host is dead');
          });
          await host(dying)
            .change<unknown>('in.test', () => make(dying))
            .catch(() => undefined);
          await b.refresh();
          const expected = await truth();
          expect(
            ['box', 'new', 'other'].map((mailbox) => hit(b, mailbox)),
            `dead after ${last} operations`,
          ).to.deep.equal(expected);
          seen.add(expected.join());
          await b.stop();
          // As it was before.
          for (const { id } of await store.inboundRoutes.many({})) await store.inboundRoutes.remove({ id });
          for (const { id } of await store.inboundDomains.many({})) await store.inboundDomains.remove({ id });
          for (const row of rows[0]) await store.inboundDomains.insert(row);
          for (const row of rows[1]) await store.inboundRoutes.insert(row);
          await store.revisions.add('routing', { count: 1 }, { count: 0 });
        }
        expect(seen.size, 'deaths before and after the row').to.be.at.least(2);
      });

    it('that never ended is read again at every poll for ten minutes, and then costs nothing more', async () => {
      await put('in.test', 'box');
      const b = await started();
      const dying = watched(store, async () => undefined);
      await host({ ...dying, revisions: { ...dying.revisions, add: () => Promise.reject(new StoreAway('dead')) } })
        .change('in.test', async () => undefined)
        .catch(() => undefined);
      await b.refresh();
      await clock.advance(500_000);
      await store.inboundRoutes.insert(routeRow('in.test', 'late'));
      await b.refresh();
      expect(hit(b, 'late')).to.equal('https://hook.test/in.test/late');
      expect(await store.routingChanges.many({ revision: null })).to.have.length(1);
      await clock.advance(100_000);
      await b.refresh();
      expect(await store.routingChanges.many({ revision: null })).to.deep.equal([]);
      await b.stop();
    });

    it('is read with its domain, whatever the number of others', async () => {
      for (const name of ['in.test', '*.wild.test']) await put(name, 'box', '*');
      const many = Array.from({ length: 200 }, (_, n) => `d${n}.test`);
      await Promise.all(many.map((name) => put(name, 'box', '*')));
      let read = 0;
      const b = await started(
        watched(
          store,
          async () => undefined,
          (rows) => {
            read += rows;
          },
        ),
      );
      expect(read, 'at the start: everything').to.be.at.least(600);
      const a = await started();
      const costs: Record<string, number> = {};
      const change = async (what: string, domain: string, make: () => Promise<unknown>) => {
        await a.change(domain, make);
        read = 0;
        await b.refresh();
        costs[what] = read;
      };
      await change('route', 'in.test', () => store.inboundRoutes.insert(routeRow('in.test', 'new')));
      expect(hit(b, 'new')).to.equal('https://hook.test/in.test/new');
      await change('wildcard', '*.wild.test', () => store.inboundRoutes.insert(routeRow('*.wild.test', 'new')));
      expect(hit(b, 'new', 'a.b.wild.test')).to.equal('https://hook.test/*.wild.test/new');
      await change('domain', 'd7.test', () => store.inboundDomains.remove({ id: 'd7.test' }));
      expect(hit(b, 'box', 'd7.test')).to.equal('not-ours');
      await change('first wildcard', '*.new.test', async () => {
        await store.inboundDomains.insert(domainRow('*.new.test'));
        await store.inboundRoutes.insert(routeRow('*.new.test', '*'));
      });
      expect(hit(b, 'x', 'y.new.test')).to.equal('https://hook.test/*.new.test/*');
      await change('key', 'in.test', () => store.inboundDomains.change({ id: 'in.test' }, { replyKey: 'k' }));
      await change('nothing', 'in.test', async () => undefined);
      for (const [what, rows] of Object.entries(costs)) expect(rows, what).to.be.at.most(6);
      read = 0;
      await b.refresh();
      expect(read, 'no change').to.equal(0);
      await Promise.all([a.stop(), b.stop()]);
    });

    it('is in force everywhere after many at once, by several hosts', async () => {
      const names = Array.from({ length: 20 }, (_, n) => `d${n}.test`);
      for (const name of names) await put(name, 'box');
      const hosts = await Promise.all([started(), started(), started()]);
      let looking = true;
      const [, , b] = hosts;
      const looks = (async () => {
        while (looking) await b?.refresh();
      })();
      await Promise.all(
        names.flatMap((name, at) =>
          Array.from({ length: 5 }, (_, n) =>
            hosts[(at + n) % 2]?.change(name, () => store.inboundRoutes.insert(routeRow(name, `new${n}`))),
          ),
        ),
      );
      looking = false;
      await looks;
      for (const one of hosts) {
        await one.refresh();
        const missed = names.flatMap((name) =>
          [0, 1, 2, 3, 4].filter((n) => hit(one, `new${n}`, name) !== `https://hook.test/${name}/new${n}`),
        );
        expect(missed).to.deep.equal([]);
        await one.stop();
      }
    });

    it('is noticed although the other host only raises the revision, as earlier versions do', async () => {
      await put('in.test', 'box');
      const b = await started();
      await host().change('in.test', async () => undefined);
      await put('other.test', 'box');
      await b.refresh();
      expect(hit(b, 'box', 'other.test')).to.equal('https://hook.test/other.test/box');
      await b.stop();
    });

    it('is noticed after more changes than are read one by one, and more than are kept', async () => {
      await put('in.test', 'box');
      const b = await started();
      for (const skipped of [2000, 20_000]) {
        await store.revisions.add('routing', { count: skipped }, { count: 0 });
        await host().change('in.test', () => store.inboundRoutes.insert(routeRow('in.test', `after${skipped}`)));
        await b.refresh();
        expect(hit(b, `after${skipped}`)).to.equal(`https://hook.test/in.test/after${skipped}`);
      }
      expect((await store.routingChanges.many({})).length, 'old rows go').to.be.at.most(1);
      await b.stop();
    });

    it('of a domain with thousands of routes is read completely', async () => {
      await put('big.test');
      const patterns = Array.from({ length: 2100 }, (_, n) => `box${n}`);
      await Promise.all(patterns.map((pattern) => store.inboundRoutes.insert(routeRow('big.test', pattern))));
      await put('small.test', 'box');
      const b = await started();
      expect([hit(b, 'box0', 'big.test'), hit(b, 'box2099', 'big.test'), hit(b, 'box', 'small.test')]).to.deep.equal([
        'https://hook.test/big.test/box0',
        'https://hook.test/big.test/box2099',
        'https://hook.test/small.test/box',
      ]);
      await b.stop();
    });
  });
