import { expect } from 'chai';
import { createRunningTime } from '../../../src/base/running-time.ts';
import { expireRejectsTask } from '../../../src/events/lists.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { rejectRow } from '../../support/lists.ts';

const ME = 'Account1';

for (const driver of drivers) {
  describe(`the task that expires rejects, ${driver.name}`, function () {
    this.timeout(30_000); // FerretDB has one connection for all rows of a step
    let store: Store;
    let clock: TestClock;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
      clock = createTestClock();
    });
    afterEach(() => store.close());

    const put = (email: string, endsInMs: number | null) =>
      store.rejects.insert(
        rejectRow(
          ME,
          email,
          endsInMs === null ? {} : { reason: 'soft-bounce', expiresAt: new Date(clock.now() + endsInMs) },
        ),
      );
    const expired = async () =>
      (await store.rejects.many({ expired: true }, { sort: 'email' })).map(({ email }) => email);

    it('marks exactly the expired entries, to the millisecond', async () => {
      await put('never', null);
      await put('past', -1);
      await put('now', 0);
      await put('soon', 1);
      expect(await expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run()).to.deep.equal({
        expired: 2,
      });
      expect(await expired()).to.deep.equal(['now', 'past']);
      await clock.advance(1);
      expect(await expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run()).to.deep.equal({
        expired: 1,
      });
      expect(
        await expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run(),
        'nothing is left to do',
      ).to.equal(undefined);
    });

    it('works in steps until nothing is left', async () => {
      for (let i = 0; i < 101; i++) await put(`${i}`, -i);
      expect(await expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run()).to.deep.equal({
        expired: 101,
      });
      expect(await expired()).to.have.length(101);
    });

    it('marks each once when two processes run concurrently', async () => {
      for (let i = 0; i < 25; i++) await put(`${i}`, -i);
      const done = await Promise.all([
        expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run(),
        expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run(),
      ]);
      expect(done.reduce((sum, one) => sum + Number(one?.['expired'] ?? 0), 0)).to.equal(25);
      expect(await expired()).to.have.length(25);
    });

    it('does not change entries that were renewed meanwhile', async () => {
      await put('ann', -1);
      const later = new Date(clock.now() + 1000);
      const renewing = {
        ...store.rejects,
        many: async (...args: Parameters<typeof store.rejects.many>) => {
          const due = await store.rejects.many(...args);
          for (const { id, version } of due)
            await store.rejects.change({ id }, { expiresAt: later, version: version + 1 });
          return due;
        },
      };
      expect(
        await expireRejectsTask({ store: { rejects: renewing }, clock, time: createRunningTime(clock) }).run(),
      ).to.equal(undefined);
      expect(await expired()).to.deep.equal([]);
    });

    it('waits after a jump of the clock, for an operator to correct it', async () => {
      await put('ann', 86_400_000);
      const task = expireRejectsTask({ store, clock, time: createRunningTime(clock) });
      clock.jump(3 * 86_400_000);
      expect(await task.run()).to.equal(undefined);
      await clock.advance(599_999);
      expect(await task.run()).to.equal(undefined);
      expect(await expired()).to.deep.equal([]);
      await clock.advance(1);
      expect(await task.run()).to.deep.equal({ expired: 1 });
    });

    it('stops between two steps on request', async () => {
      await put('ann', -1);
      expect(
        await expireRejectsTask({ store, clock, time: createRunningTime(clock) }).run(AbortSignal.abort()),
      ).to.equal(undefined);
      expect(await expired()).to.deep.equal([]);
    });
  });
}
