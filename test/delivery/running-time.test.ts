import { expect } from 'chai';
import { createAgenda, type Sleeper } from '../../src/delivery/schedule/agenda.ts';
import { createRunningTime } from '../../src/delivery/schedule/running-time.ts';
import { createTestClock } from '../support/clock.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

describe('running time', () => {
  it('is wall time while nobody sets the clock', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    const from = clock.now();
    await clock.advance(5 * HOUR);
    expect(time.age(from)).to.equal(5 * HOUR);
    expect(time.age(from + DAY)).to.equal(0);
  });

  it('leaves out what the clock jumped over, for what was there before and not for what came after', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    const from = clock.now();
    await clock.advance(HOUR);
    clock.jump(3 * DAY);
    const later = clock.now();
    await clock.advance(HOUR);
    expect(time.age(from)).to.equal(2 * HOUR);
    expect(time.age(later)).to.equal(HOUR);
  });

  it('adds several jumps up', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    const from = clock.now();
    for (let i = 0; i < 3; i++) {
      clock.jump(DAY);
      await clock.advance(MINUTE);
      expect(time.age(from)).to.equal((i + 1) * MINUTE);
    }
  });

  it('is unsure for ten minutes after the start and after a jump either way', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    expect(time.sure()).to.equal(false);
    await clock.advance(10 * MINUTE);
    expect(time.sure()).to.equal(true);
    for (const jump of [2 * HOUR, -2 * HOUR]) {
      clock.jump(jump);
      expect(time.sure()).to.equal(false);
      await clock.advance(10 * MINUTE);
      expect(time.sure()).to.equal(true);
    }
  });

  it('takes the small corrections of a clock that is kept right for what they are', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    await clock.advance(10 * MINUTE);
    clock.jump(900);
    expect(time.sure()).to.equal(true);
  });
});

describe('the agenda', () => {
  it('wakes each sleeper once at its last time, with one timer for all', async () => {
    const clock = createTestClock();
    let timers = 0;
    const counting = { ...clock, after: (ms: number, fn: () => void) => { timers++; const cancel = clock.after(ms, () => { timers--; fn(); }); return () => { timers--; cancel(); }; } };
    const woken: [string, number][] = [];
    const agenda = createAgenda<Sleeper & { name: string }>(counting, ({ name }) => woken.push([name, clock.monotonic()]));
    const [a, b, c] = ['a', 'b', 'c'].map((name) => ({ name, wakeAt: Number.POSITIVE_INFINITY }));
    if (!a || !b || !c) throw new Error('three');
    agenda.set(a, 300);
    agenda.set(b, 100);
    agenda.set(c, 200);
    agenda.set(b, 400);
    agenda.set(c, Number.POSITIVE_INFINITY);
    agenda.set(a, 50);
    expect(timers).to.equal(1);
    await clock.advance(1000);
    expect(woken).to.deep.equal([['a', 50], ['b', 400]]);
    expect(timers).to.equal(0);
    agenda.set(a, 2000);
    agenda.stop();
    expect(timers).to.equal(0);
    await clock.advance(5000);
    expect(woken).to.have.length(2);
  });
});
