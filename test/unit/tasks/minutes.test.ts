import { expect } from 'chai';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import type { Task } from '../../../src/base/service.ts';
import { taskSchedules } from '../../../src/composition/slices.ts';
import { loadSettings } from '../../../src/config.ts';
import type { Store } from '../../../src/store/store.ts';
import { createLeases } from '../../../src/tasks/lease.ts';
import { createScheduler, type Scheduler } from '../../../src/tasks/scheduler.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Tasks of one host need no lease, so there is no store. */
const leases: Pick<Store, 'leases'>['leases'] = new Proxy(Object.create(null), {
  get() {
    throw new Error('no lease is needed');
  },
});

describe('the run times of tasks', () => {
  let clock: TestClock;
  let scheduler: Scheduler;
  let ran: Record<string, number[]>;

  /** Starts at half past a minute, with one task for each schedule. */
  async function begin(...schedules: readonly string[]): Promise<void> {
    clock = createTestClock(Date.UTC(2026, 2, 28, 23, 59, 30));
    ran = Object.fromEntries(schedules.map((schedule) => [schedule, []]));
    const tasks = schedules.map((schedule): [string, Task] => [
      schedule,
      {
        perHost: true,
        async run() {
          ran[schedule]?.push(clock.monotonic() / SECOND);
          return undefined;
        },
      },
    ]);
    const named = Object.fromEntries(schedules.map((schedule) => [schedule, schedule]));
    scheduler = createScheduler(Object.fromEntries(tasks), named, {
      leases: createLeases({ holder: 'one' }, { store: { leases }, clock }),
      clock,
      log: createTestLog(),
      metrics: NO_METRICS,
    });
    await scheduler.start();
  }
  afterEach(() => scheduler.stop());

  it('are those of the schedule, once each, and none at the start', async () => {
    await begin('* * * * *', '*/10 * * * *', '23 * * * *');
    await clock.advance(HOUR);
    expect(ran['* * * * *']).to.have.length(60);
    expect(ran['* * * * *']?.slice(0, 3)).to.deep.equal([30, 90, 150]);
    expect(ran['*/10 * * * *']).to.deep.equal([30, 630, 1230, 1830, 2430, 3030]);
    expect(ran['23 * * * *']).to.deep.equal([30 + 23 * 60]);
  });

  it('may be seconds apart', async () => {
    await begin('*/20 * * * * *', '45 * * * * *', '* * * * *');
    await clock.advance(2 * MINUTE);
    expect(ran['*/20 * * * * *']).to.deep.equal([10, 30, 50, 70, 90, 110]);
    expect(ran['45 * * * * *']).to.deep.equal([15, 75]);
    expect(ran['* * * * *']).to.deep.equal([30, 90]);
  });

  it('are caught up when the process was busy for seconds', async () => {
    await begin('45 * * * * *');
    await clock.advance(14 * SECOND);
    clock.jump(5 * SECOND); // no timer fired meanwhile
    await clock.advance(2 * SECOND);
    expect(ran['45 * * * * *']).to.have.length(1);
  });

  it('continue every minute when the clock is set back by an hour, or by days', async () => {
    await begin('* * * * *');
    for (const by of [-HOUR, -3 * DAY]) {
      const before = ran['* * * * *']?.length ?? 0;
      clock.jump(by);
      await clock.advance(10 * MINUTE);
      expect((ran['* * * * *']?.length ?? 0) - before, `after ${by} ms`).to.equal(10);
    }
  });

  it('occur once when the clock is set ahead by days or the machine slept', async () => {
    await begin('* * * * *');
    for (const by of [3 * DAY, 300 * DAY]) {
      const before = ran['* * * * *']?.length ?? 0;
      clock.jump(by);
      await clock.advance(10 * MINUTE);
      expect((ran['* * * * *']?.length ?? 0) - before, `after ${by} ms`).to.equal(10);
    }
  });

  it('are neither repeated nor skipped by a leap second', async () => {
    await begin('* * * * *');
    await clock.advance(30 * SECOND + 100); // the tick of midnight has been
    clock.jump(-SECOND);
    await clock.advance(3 * MINUTE + 30 * SECOND);
    expect(ran['* * * * *']).to.deep.equal([30, 91, 151, 211]);
  });

  it('are those of the settings', async () => {
    const minutes = async (env: Record<string, string>) => {
      clock = createTestClock(Date.UTC(2026, 2, 28, 23, 59, 30));
      const runs: number[] = [];
      const schedules = taskSchedules(loadSettings(undefined, env).settings);
      const run = async () => void runs.push((clock.monotonic() - 30 * SECOND) / MINUTE);
      const idle = { perHost: true, run: async () => undefined } as const;
      const tasks = { ...mapped(schedules, () => idle), 'purge-rows': { perHost: true, run } as const };
      scheduler = createScheduler(tasks, schedules, {
        leases: createLeases({ holder: 'one' }, { store: { leases }, clock }),
        clock,
        log: createTestLog(),
        metrics: NO_METRICS,
      });
      await scheduler.start();
      await clock.advance(HOUR);
      await scheduler.stop();
      return runs;
    };
    expect(await minutes({})).to.deep.equal([23]);
    expect(await minutes({ POSTERN_TASKS__PURGE_ROWS: '7,40 * * * *' })).to.deep.equal([7, 40]);
  });

  it('have the same defaults as ever', () => {
    const often = mapped(taskSchedules(loadSettings(undefined, {}).settings), () => '* * * * *');
    expect(taskSchedules(loadSettings(undefined, {}).settings)).to.deep.equal({
      ...often,
      'expire-exports': '*/10 * * * *',
      'tend-copies': '43 * * * *',
      'expire-links': '*/10 * * * *',
      'purge-rows': '23 * * * *',
      'count-usage': '41 3 * * *',
      'finish-warmups': '*/10 * * * *',
      'retest-reverse-dns': '*/5 * * * *',
      'retest-sender-domains': '*/5 * * * *',
      'retest-tracking-domains': '4-59/5 * * * *',
      'retest-inbound-domains': '2-59/5 * * * *',
    });
  });
});

/** The same names, each with a value of its own. */
function mapped<N extends string, T>(names: Readonly<Record<N, unknown>>, value: () => T): Record<N, T> {
  return Object.fromEntries(Object.keys(names).map((name) => [name, value()])) as Record<N, T>;
}
