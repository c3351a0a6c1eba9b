import { expect } from 'chai';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import type { Task } from '../../../src/base/service.ts';
import type { Spool } from '../../../src/queue/delivery.ts';
import { purgeTask } from '../../../src/queue/purge.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createLeases } from '../../../src/tasks/lease.ts';
import { createScheduler, type Scheduler } from '../../../src/tasks/scheduler.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { until } from '../../support/until.ts';

/** A task whose runs last until the test ends them. */
function slowTask(more: Partial<Task> = {}) {
  const ends: (() => void)[] = [];
  const seen = { runs: 0, ended: 0, signal: undefined as AbortSignal | undefined };
  const task: Task = {
    ...more,
    async run(ending) {
      seen.runs++;
      seen.signal = ending;
      await new Promise<void>((resolve) => {
        ends.push(resolve);
      });
      seen.ended++;
      return { n: seen.runs };
    },
  };
  return {
    task,
    seen,
    end: () => {
      for (const end of ends.splice(0)) end();
    },
  };
}

for (const driver of drivers)
  describe(`the scheduler, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    let log: ReturnType<typeof createTestLog>;
    let started: Scheduler[];
    beforeEach(async () => {
      clock = createTestClock();
      log = createTestLog();
      store = await openStore(await driver.open({ log, crowded: true }));
      started = [];
    });
    afterEach(async () => {
      await Promise.all(started.map((scheduler) => scheduler.stop()));
      await store.close();
    });

    /** A scheduler of one life of one process, as it would be with others on the same store. */
    function scheduler(holder: string, tasks: Readonly<Record<string, Task>>, other: Pick<Store, 'leases'> = store) {
      const never = Object.fromEntries(Object.keys(tasks).map((name) => [name, '0 0 1 1 *']));
      const leases = createLeases({ holder }, { store: other, clock });
      const made = createScheduler(tasks, never, { leases, clock, log, metrics: NO_METRICS });
      started.push(made);
      return made;
    }
    const running = (what: { readonly seen: { readonly runs: number } }, runs = 1) =>
      until('the run', () => what.seen.runs === runs);
    /** Long enough for whatever would be wrong to happen: the lease was asked for and answered. */
    const settled = async () => {
      for (let n = 0; n < 3; n++) await store.leases.many({});
    };

    it('never runs a task twice concurrently, and logs the result', async () => {
      const slow = slowTask();
      const one = scheduler('one', { slow: slow.task });
      const both = Promise.all([one.run('slow'), one.run('slow')]);
      await running(slow);
      slow.end();
      await both;
      expect(slow.seen.runs).to.equal(1);
      expect(log.of('task.run').map(({ fields }) => fields)).to.deep.equal([{ task: 'slow', n: 1 }]);
    });

    it('survives a task that fails', async () => {
      const one = scheduler('one', { bad: { run: () => Promise.reject(new Error('no')) } });
      await one.run('bad');
      await one.run('bad');
      expect(log.of('task.fault')).to.have.length(2);
    });

    it('signals running tasks to stop, and waits for them', async () => {
      const slow = slowTask();
      const one = scheduler('one', { slow: slow.task });
      await one.start();
      void one.run('slow');
      await running(slow);
      const stopping = one.stop();
      expect(slow.seen.signal?.aborted).to.equal(true);
      slow.end();
      await stopping;
      expect(slow.seen.ended).to.equal(1);
      one.poke('slow');
      await settled();
      expect(slow.seen.runs, 'nothing begins any more').to.equal(1);
    });

    it('runs a task in one of two processes at a time, and in the other afterwards', async () => {
      const [mine, theirs] = [slowTask(), slowTask()];
      const [one, two] = [scheduler('one', { slow: mine.task }), scheduler('two', { slow: theirs.task })];
      const first = one.run('slow');
      await running(mine);
      await two.run('slow');
      expect(theirs.seen.runs).to.equal(0);
      mine.end();
      await first;
      expect(await store.leases.one({ id: 'slow' })).to.include({ holder: null });
      await clock.advance(10_000); // it looks again by itself
      await running(theirs);
      theirs.end();
    });

    it('keeps the lease for as long as the run lasts', async () => {
      const [mine, theirs] = [slowTask(), slowTask()];
      const [one, two] = [scheduler('one', { slow: mine.task }), scheduler('two', { slow: theirs.task })];
      const first = one.run('slow');
      await running(mine);
      for (let minutes = 0; minutes < 5; minutes++) {
        for (let thirds = 0; thirds < 3; thirds++) {
          const before = (await store.leases.one({ id: 'slow' }))?.until.getTime() ?? 0;
          await clock.advance(20_000);
          await until(
            'it is renewed',
            async () => ((await store.leases.one({ id: 'slow' }))?.until.getTime() ?? 0) > before,
          );
          await settled();
        }
        await two.run('slow');
      }
      expect(theirs.seen.runs).to.equal(0);
      expect(mine.seen.signal?.aborted).to.equal(false);
      mine.end();
      await first;
    });

    it('takes over within two minutes when the running process dies', async () => {
      // Dead is who never renews: its timers do not turn.
      const dead = createLeases({ holder: 'dead' }, { store, clock: { ...clock, after: () => () => {} } });
      expect((await dead.acquire('slow', 0)).kind).to.equal('held');
      const mine = slowTask();
      const one = scheduler('one', { slow: mine.task });
      await one.run('slow');
      expect(mine.seen.runs).to.equal(0);
      for (let seconds = 0; seconds < 60; seconds += 10) {
        expect(mine.seen.runs, `${seconds} s`).to.equal(0);
        await clock.advance(10_000);
        await settled();
      }
      await running(mine);
      mine.end();
    });

    it('signals a run whose lease went to another process', async () => {
      const mine = slowTask();
      const one = scheduler('one', { slow: mine.task });
      const run = one.run('slow');
      await running(mine);
      await store.leases.change({ id: 'slow' }, { holder: 'another', until: new Date(clock.now() + 60_000) });
      await clock.advance(20_000);
      await until('it is told', () => mine.seen.signal?.aborted);
      mine.end();
      await run;
      expect(await store.leases.one({ id: 'slow' }), 'and leaves it alone').to.include({ holder: 'another' });
    });

    it('runs host tasks on every host', async () => {
      const [mine, theirs] = [slowTask({ perHost: true }), slowTask({ perHost: true })];
      const both = [
        scheduler('one', { slow: mine.task }).run('slow'),
        scheduler('two', { slow: theirs.task }).run('slow'),
      ];
      await running(mine);
      await running(theirs);
      expect(await store.leases.many({})).to.deep.equal([]);
      mine.end();
      theirs.end();
      await Promise.all(both);
    });

    it('runs once more after the current run, however often it is triggered meanwhile', async () => {
      const mine = slowTask();
      const one = scheduler('one', { slow: mine.task });
      one.poke('slow');
      await running(mine);
      for (let n = 0; n < 5; n++) one.poke('slow');
      mine.end();
      await running(mine, 2);
      mine.end();
      await until('it ends', () => mine.seen.ended === 2);
      await settled();
      expect(mine.seen.runs).to.equal(2);
    });

    it('keeps a trigger while another process runs the task', async () => {
      const [mine, theirs] = [slowTask(), slowTask()];
      const [one, two] = [scheduler('one', { slow: mine.task }), scheduler('two', { slow: theirs.task })];
      const first = one.run('slow');
      await running(mine);
      await clock.advance(1000);
      two.poke('slow');
      await settled();
      mine.end();
      await first;
      await clock.advance(10_000);
      await running(theirs);
      theirs.end();
    });

    it('skips tasks with a lease while the store is unavailable, with one log line, and runs host tasks', async () => {
      let away = true;
      const leases = {
        ...store.leases,
        one: (filter: Parameters<Store['leases']['one']>[0]) =>
          away ? Promise.reject(new StoreAway('away')) : store.leases.one(filter),
      };
      let [shared, own] = [0, 0];
      const one = scheduler(
        'one',
        {
          shared: {
            run: async () => {
              shared++;
              return undefined;
            },
          },
          'also shared': { run: async () => undefined },
          own: {
            perHost: true,
            run: async () => {
              own++;
              return undefined;
            },
          },
        },
        { leases },
      );
      for (let n = 0; n < 3; n++) for (const name of ['shared', 'also shared', 'own']) await one.run(name);
      expect({ shared, own }).to.deep.equal({ shared: 0, own: 3 });
      expect(log.of('task.skipped')).to.have.length(1);
      expect(log.of('task.fault')).to.have.length(0);
      away = false;
      await one.run('shared');
      expect(shared).to.equal(1);
      away = true;
      await one.run('shared');
      expect(log.of('task.skipped'), 'a second outage').to.have.length(2);
    });
  });

describe('the purge', () => {
  it('deletes delivered messages after hours and dead letters after days, and logs nothing if there were none', async () => {
    const clock = createTestClock();
    const asked: unknown[] = [];
    const purge: Spool['purge'] = async (limits) => {
      asked.push(limits);
      return asked.length === 1 ? 3 : 0;
    };
    const task = purgeTask(
      { keepDeadDays: 30, keepDeliveredHours: 24, keepDeliveredBytes: 5 },
      { spool: { purge }, clock, time: { believed: () => true } },
    );
    expect(await task.run()).to.deep.equal({ forgotten: 3 });
    expect(await task.run()).to.equal(undefined);
    expect(asked[0]).to.deep.equal({
      deliveredBefore: clock.now() - 86_400_000,
      deadBefore: clock.now() - 30 * 86_400_000,
      deliveredBytes: 5,
    });
  });

  it('deletes nothing for ten minutes after the wall clock jumped, so that an operator or NTP can correct it', async () => {
    const clock = createTestClock();
    let purges = 0;
    const task = purgeTask(
      { keepDeadDays: 30, keepDeliveredHours: 24, keepDeliveredBytes: 5 },
      {
        time: { believed: () => true },
        spool: {
          purge: async () => {
            purges++;
            return 0;
          },
        },
        clock,
      },
    );
    await task.run();
    clock.jump(40 * 86_400_000);
    await task.run();
    await clock.advance(599_999);
    await task.run();
    expect(purges).to.equal(1);
    await clock.advance(1);
    await task.run();
    expect(purges).to.equal(2);
  });
});
