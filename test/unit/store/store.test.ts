import { expect } from 'chai';
import type { Database } from '../../../src/store/driver/port.ts';
import type { InboundRouteRow } from '../../../src/store/rows/domains.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { drivers } from '../../support/database.ts';

const route = (id: string, pattern: string): Omit<InboundRouteRow, 'account'> => ({
  id,
  domain: 'example.com',
  pattern,
  url: 'http://example.com/',
  createdAt: new Date(1000),
});

for (const driver of drivers) {
  describe(`a store bound to an account, ${driver.name}`, () => {
    let database: Database;
    let store: Store;

    beforeEach(async () => {
      database = await driver.open();
      store = await openStore(database);
      await store.of('mine').inboundRoutes.insert(route('1.1', 'a'));
      await store.of('theirs').inboundRoutes.insert(route('2.1', 'a'));
    });
    afterEach(() => store.close());

    it('gives its rows the account', async () => {
      expect(await store.inboundRoutes.one({ id: '1.1' })).to.deep.equal({ ...route('1.1', 'a'), account: 'mine' });
    });

    it('finds its own rows only', async () => {
      const mine = store.of('mine').inboundRoutes;
      expect((await mine.many({})).map(({ id }) => id)).to.deep.equal(['1.1']);
      expect((await mine.many({ pattern: 'a' }, { sort: 'createdAt' })).map(({ id }) => id)).to.deep.equal(['1.1']);
      expect(await mine.one({ id: '2.1' })).to.equal(undefined);
      expect((await mine.many({ id: { in: ['1.1', '2.1'] } })).map(({ id }) => id)).to.deep.equal(['1.1']);
    });

    it('changes and removes its own rows only', async () => {
      const mine = store.of('mine').inboundRoutes;
      expect(await mine.change({ id: '2.1' }, { pattern: 'stolen' })).to.equal(undefined);
      expect(await mine.remove({ id: '2.1' })).to.equal(undefined);
      expect(await store.inboundRoutes.one({ id: '2.1' })).to.include({ pattern: 'a', account: 'theirs' });
      expect(await mine.change({ pattern: 'a' }, { pattern: 'b' })).to.include({ id: '1.1', pattern: 'b' });
      expect(await mine.remove({})).to.include({ id: '1.1' });
      expect(await mine.remove({})).to.equal(undefined);
    });

    it('ignores another account named by a caller', async () => {
      const mine = store.of('mine').inboundRoutes;
      const theirs: object = { account: 'theirs' };
      expect((await mine.many({ ...theirs })).map(({ id }) => id)).to.deep.equal(['1.1']);
      await mine.insert({ ...route('1.2', 'b'), ...theirs });
      expect(await store.inboundRoutes.one({ id: '1.2' })).to.include({ account: 'mine' });
      await mine.change({ id: '1.1' }, { pattern: 'moved', ...theirs });
      expect(await store.inboundRoutes.one({ id: '1.1' })).to.include({ account: 'mine', pattern: 'moved' });
    });

    it('cannot take an id that another account has', async () => {
      expect(await store.of('mine').inboundRoutes.insert(route('2.1', 'x'))).to.equal('duplicate');
      expect(await store.inboundRoutes.one({ id: '2.1' })).to.include({ pattern: 'a', account: 'theirs' });
    });
  });
}
