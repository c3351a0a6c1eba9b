import { expect } from 'chai';
import { createPoolFinder, DEFAULT_POOL, moveIp, poolId, readPlacement, rewrite } from '../../../src/store/rows/ips.ts';

import { openStore, type Store } from '../../../src/store/store.ts';
import { drivers } from '../../support/database.ts';

const CALLS = 12;

for (const driver of drivers) {
  describe(`a placement, changed by several processes at once, ${driver.name}`, () => {
    let store: Store;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
    });
    afterEach(() => store.close());

    const addresses = Array.from({ length: CALLS }, (_, n) => `192.0.2.${n}`);

    it('loses nothing', async () => {
      await Promise.all(
        addresses.map((ip, n) =>
          rewrite(store.of('a'), async (placement) => ({ elsewhere: moveIp(placement, ip, `P${n}`) })),
        ),
      );
      const placement = await readPlacement(store.of('a'));
      expect(placement.version).to.equal(CALLS);
      expect(addresses.map(createPoolFinder(placement))).to.deep.equal(addresses.map((_, n) => `P${n}`));
    }).timeout(30_000);

    it('lets each decide on the latest state: the last address stays', async () => {
      const moved = await Promise.all(
        addresses.map(async (ip) => {
          let moves = true;
          await rewrite(store.of('a'), async (placement) => {
            const poolOf = createPoolFinder(placement);
            moves = addresses.some((other) => other !== ip && poolOf(other) === DEFAULT_POOL);
            return moves ? { elsewhere: moveIp(placement, ip, 'P') } : undefined;
          });
          return moves;
        }),
      );
      expect(moved.filter((one) => !one)).to.have.length(1);
      expect((await readPlacement(store.of('a'))).elsewhere).to.have.length(CALLS - 1);
    }).timeout(30_000);

    it('exists once for each account', async () => {
      await rewrite(store.of('a'), async (placement) => ({ elsewhere: moveIp(placement, '192.0.2.1', 'P') }));
      expect((await readPlacement(store.of('b'))).elsewhere).to.deep.equal([]);
    });

    it('removes closing pools for any reader, and not a later one of the same name', async () => {
      const pool = (token: string) => ({
        id: poolId('a', 'P'),
        account: 'a',
        name: 'P',
        token,
        createdAt: new Date(0),
      });
      await store.pools.insert(pool('old'));
      await rewrite(store.of('a'), async () => ({ closing: [{ id: poolId('a', 'P'), token: 'old' }] }));
      await Promise.all(Array.from({ length: CALLS }, () => readPlacement(store.of('a'))));
      expect(await store.pools.many({})).to.deep.equal([]);
      await store.pools.insert(pool('new'));
      await rewrite(store.of('a'), async () => ({ closing: [{ id: poolId('a', 'P'), token: 'old' }] }));
      expect((await readPlacement(store.of('a'))).closing).to.deep.equal([]);
      expect(await store.pools.many({})).to.have.length(1);
    });
  });
}
