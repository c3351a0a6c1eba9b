import { expect } from 'chai';
import type { Task } from '../../../src/base/service.ts';
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

describe('the times of tasks', () => {
  let clock: TestClock;
  let scheduler: Scheduler;
  let ran: Record<string, number[]>;

  /** Starts at half past a minute, with one task for each schedule. */
  async function begin(...schedules: readonly string[]): Promise<void> {
    clock = createTestClock(Date.UTC(2026, 2, 28, 23, 59, 30));
    ran = Object.fromEntries(schedules.map((schedule) => [schedule, []]));
    const tasks = schedules.map(
      (schedule): Task => ({
        name: schedule,
        schedule,
        perHost: true,
        async run() {
          ran[schedule]?.push(clock.monotonic() / SECOND);
          return undefined;
        },
      }),
    );
    scheduler = createScheduler(tasks, {
      leases: createLeases({ holder: 'one' }, { store: { leases }, clock }),
      clock,
      log: createTestLog(),
    });
    await scheduler.start();
  }
  afterEach(() => scheduler.stop());

  it('are those of the schedule, once each, and nothing runs at the start', async () => {
    await begin('* * * * *', '*/10 * * * *', '23 * * * *');
    await clock.advance(HOUR);
    expect(ran['* * * * *']).to.have.length(60);
    expect(ran['* * * * *']?.slice(0, 3)).to.deep.equal([30, 90, 150]);
    expect(ran['*/10 * * * *']).to.deep.equal([30, 630, 1230, 1830, 2430, 3030]);
    expect(ran['23 * * * *']).to.deep.equal([30 + 23 * 60]);
  });

  it('go on every minute when the clock is set back by an hour, or by days', async () => {
    await begin('* * * * *');
    for (const by of [-HOUR, -3 * DAY]) {
      const before = ran['* * * * *']?.length ?? 0;
      clock.jump(by);
      await clock.advance(10 * MINUTE);
      expect((ran['* * * * *']?.length ?? 0) - before, `after ${by} ms`).to.equal(10);
    }
  });

  it('come once and not thousands of times when the clock is set ahead by days or the machine slept', async () => {
    await begin('* * * * *');
    for (const by of [3 * DAY, 300 * DAY]) {
      const before = ran['* * * * *']?.length ?? 0;
      clock.jump(by);
      await clock.advance(10 * MINUTE);
      expect((ran['* * * * *']?.length ?? 0) - before, `after ${by} ms`).to.equal(10);
    }
  });

  it('are neither doubled nor left out by a leap second', async () => {
    await begin('* * * * *');
    await clock.advance(30 * SECOND + 100); // the tick of midnight has been
    clock.jump(-SECOND);
    await clock.advance(3 * MINUTE + 30 * SECOND);
    expect(ran['* * * * *']).to.deep.equal([30, 91, 151, 211]);
  });
});
