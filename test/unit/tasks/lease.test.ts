import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createLeases, type Lease } from '../../../src/tasks/lease.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { until } from '../../support/until.ts';

for (const driver of drivers)
  describe(`a lease, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    beforeEach(async () => {
      clock = createTestClock();
      store = await openStore(await driver.open({ crowded: true }));
    });
    afterEach(() => store.close());

    const row = () => store.leases.one({ id: 'task' });
    /** Asks for it as one life of one process; without `since` for a run that must be. */
    const ask = (holder: string, since = Number.POSITIVE_INFINITY, leases = store.leases) =>
      createLeases({ holder }, { store: { leases }, clock }).acquire('task', since);
    async function held(...args: Parameters<typeof ask>): Promise<Lease> {
      const asked = await ask(...args);
      if (asked.kind !== 'held') throw new Error(asked.kind);
      return asked.lease;
    }

    it('is held by one process at a time, and free when it was released', async () => {
      const lease = await held('one');
      expect(await row()).to.deep.include({
        holder: 'one',
        until: new Date(clock.now() + 60_000),
        ranAt: new Date(clock.now()),
      });
      expect(await ask('two')).to.deep.equal({ kind: 'elsewhere' });
      await lease.release();
      await (await held('two')).release();
    });

    it('is given to one of many concurrent callers', async () => {
      for (let round = 0; round < 5; round++) {
        const asked = await Promise.all(Array.from({ length: 20 }, (_, n) => ask(`${round} ${n}`)));
        const leases = asked.flatMap((one) => (one.kind === 'held' ? [one.lease] : []));
        expect(leases).to.have.length(1);
        await leases[0]?.release();
      }
    });

    it('is given once for a time of the schedule that two processes share', async () => {
      const first = await held('one', clock.now() - 30_000);
      await first.release();
      await clock.advance(900);
      expect(await ask('two', clock.now() - 30_000)).to.deep.equal({ kind: 'done' });
      await clock.advance(59_100);
      await (await held('two', clock.now() - 30_000)).release();
    });

    it('is not blocked by the time of a clock that was ahead and is corrected', async () => {
      const DAY = 86_400_000;
      clock.jump(3 * DAY);
      await (await held('one')).release();
      await createLeases({ holder: 'dead' }, { store, clock: { ...clock, after: () => () => {} } }).acquire('task', 0);
      clock.jump(-3 * DAY);
      const lease = await held('two', clock.now() - 30_000);
      await lease.release();
      clock.jump(-3_600_000);
      await (await held('two', clock.now() - 30_000)).release();
    });

    it('expires after a minute without renewal, and not before', async () => {
      await createLeases({ holder: 'dead' }, { store, clock: { ...clock, after: () => () => {} } }).acquire('task', 0);
      await clock.advance(59_999);
      expect(await ask('two')).to.deep.equal({ kind: 'elsewhere' });
      await clock.advance(1);
      await (await held('two', 0)).release();
    });

    it('is taken again by a process that could not release it', async () => {
      await held('one', undefined, { ...store.leases, change: () => Promise.reject(new StoreAway('away')) }).then(
        (lease) => lease.release(),
      );
      expect(await row()).to.include({ holder: 'one' });
      await (await held('one', 0)).release();
      expect(await row()).to.include({ holder: null });
    });

    it('is lost before another can have it if it cannot be renewed', async () => {
      const lease = await held('one', undefined, {
        ...store.leases,
        change: () => Promise.reject(new StoreAway('away')),
      });
      const took = clock.now();
      for (let seconds = 0; seconds < 60 && !lease.lost.aborted; seconds++) await clock.advance(1000);
      await until('it is lost', () => lease.lost.aborted);
      expect(clock.now() - took).to.be.within(20_001, 59_999);
      await lease.release();
    });

    it('survives one failed renewal', async () => {
      let away = true;
      const change: Store['leases']['change'] = (...args) =>
        away ? Promise.reject(new StoreAway('away')) : store.leases.change(...args);
      const lease = await held('one', undefined, { ...store.leases, change });
      await clock.advance(20_000);
      away = false;
      await clock.advance(20_000);
      await until('it is renewed', async () => (await row())?.until.getTime() === clock.now() + 60_000);
      expect(lease.lost.aborted).to.equal(false);
      await lease.release();
    });
  });
