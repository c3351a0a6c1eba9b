import { expect } from 'chai';
import { finishWarmupsTask } from '../../../src/sending/dedicated-ips.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { putIp, stock } from '../../support/ips.ts';

for (const driver of drivers) {
  describe(`the end of warmups, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    beforeEach(async () => {
      store = await openStore(await driver.open());
      clock = createTestClock();
    });
    afterEach(() => store.close());

    const warming = (inMs: number) => ({
      warmupStartAt: new Date(clock.now() + inMs - 30 * 86_400_000),
      warmupEndAt: new Date(clock.now() + inMs),
    });

    it('ends those that are over, of any account, and leaves the others', async () => {
      await putIp(store, 'a', '192.0.2.1', warming(0));
      await putIp(store, 'b', '192.0.2.2', warming(-86_400_000));
      await putIp(store, 'a', '192.0.2.3', warming(1));
      await putIp(store, 'a', '192.0.2.4');
      await stock(store, '192.0.2.5');
      const task = finishWarmupsTask({ store, clock });
      expect(await task.run()).to.deep.equal({ finished: 2 });
      const left = (await store.ips.many({}, { sort: 'id' })).map((row) => [
        row.id,
        row.warmupStartAt !== null,
        row.warmupEndAt !== null,
      ]);
      expect(left).to.deep.equal([
        ['192.0.2.1', false, false],
        ['192.0.2.2', false, false],
        ['192.0.2.3', true, true],
        ['192.0.2.4', false, false],
        ['192.0.2.5', false, false],
      ]);
      expect(await task.run(), 'nothing to do').to.equal(undefined);
      await clock.advance(1);
      expect(await task.run()).to.deep.equal({ finished: 1 });
    });

    it('is safe to run twice concurrently', async () => {
      for (let n = 1; n <= 20; n++) await putIp(store, 'a', `192.0.2.${n}`, warming(-n));
      const ran = await Promise.all([
        finishWarmupsTask({ store, clock }).run(),
        finishWarmupsTask({ store, clock }).run(),
      ]);
      expect(ran.reduce((sum, done) => sum + Number(done?.finished ?? 0), 0)).to.be.at.least(20);
      expect(await store.ips.many({ warmupEndAt: { exists: true } })).to.deep.equal([]);
    });

    it('stops on request', async () => {
      await putIp(store, 'a', '192.0.2.1', warming(-1));
      expect(await finishWarmupsTask({ store, clock }).run(AbortSignal.abort())).to.equal(undefined);
      expect(await store.ips.many({ warmupEndAt: { exists: true } })).to.have.length(1);
    });
  });
}
