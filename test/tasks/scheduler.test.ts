import { expect } from 'chai';
import { createScheduler } from '../../src/tasks/scheduler.ts';
import { purgeTask } from '../../src/tasks/purge.ts';
import type { Spool } from '../../src/spool/types.ts';
import { createTestClock } from '../support/clock.ts';
import { createTestLog } from '../support/log.ts';

describe('the scheduler', () => {
  it('never runs a task beside itself, and says what it did', async () => {
    const log = createTestLog();
    let runs = 0;
    let finish = () => {};
    const run = () => { runs++; return new Promise<{ n: number }>((resolve) => { finish = () => resolve({ n: 1 }); }); };
    const scheduler = createScheduler([{ name: 'slow', schedule: '0 0 1 1 *', run }], { log });
    const both = Promise.all([scheduler.run('slow'), scheduler.run('slow')]);
    finish();
    await both;
    expect(runs).to.equal(1);
    expect(log.of('task.run').map(({ fields }) => fields)).to.deep.equal([{ task: 'slow', n: 1 }]);
  });

  it('survives a task that fails', async () => {
    const log = createTestLog();
    const scheduler = createScheduler([{ name: 'bad', schedule: '0 0 1 1 *', run: () => Promise.reject(new Error('no')) }], { log });
    await scheduler.run('bad');
    await scheduler.run('bad');
    expect(log.of('task.fault')).to.have.length(2);
  });

  it('stops only when what runs has ended', async () => {
    let ended = false;
    let finish = () => {};
    const run = async () => { await new Promise<void>((resolve) => { finish = resolve; }); ended = true; return undefined; };
    const scheduler = createScheduler([{ name: 'slow', schedule: '0 0 1 1 *', run }], { log: createTestLog() });
    await scheduler.start();
    void scheduler.run('slow');
    const stopping = scheduler.stop();
    finish();
    await stopping;
    expect(ended).to.equal(true);
  });
});

describe('the purge', () => {
  it('forgets delivered messages after hours and dead letters after days, and is quiet when there was nothing', async () => {
    const clock = createTestClock();
    const asked: unknown[] = [];
    const purge: Spool['purge'] = async (limits) => { asked.push(limits); return asked.length === 1 ? 3 : 0; };
    const task = purgeTask({ keepDeadDays: 30, keepDeliveredHours: 24, keepDeliveredBytes: 5 }, { spool: { purge }, clock });
    expect(await task.run()).to.deep.equal({ forgotten: 3 });
    expect(await task.run()).to.equal(undefined);
    expect(asked[0]).to.deep.equal({ deliveredBefore: clock.now() - 86_400_000, deadBefore: clock.now() - 30 * 86_400_000, deliveredBytes: 5 });
  });

  it('forgets nothing for ten minutes after the wall clock jumped, so that an operator or NTP can set it right', async () => {
    const clock = createTestClock();
    let purges = 0;
    const task = purgeTask({ keepDeadDays: 30, keepDeliveredHours: 24, keepDeliveredBytes: 5 }, { spool: { purge: async () => { purges++; return 0; } }, clock });
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
