import { expect } from 'chai';
import { createRunningTime, readTimeMemory, type TimeMemory } from '../../../src/base/running-time.ts';
import { createTimerQueue, type Sleeper } from '../../../src/queue/schedule/gate.ts';
import { createTestClock } from '../../support/clock.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

describe('running time', () => {
  it('is wall time unless the clock is changed', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    const from = clock.now();
    await clock.advance(5 * HOUR);
    expect(time.age(from)).to.equal(5 * HOUR);
    expect(time.age(from + DAY)).to.equal(0);
  });

  it('excludes a jump of the clock, for earlier times only', async () => {
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

  it('is untrusted for ten minutes after the start and after a jump either way', async () => {
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

  it('accepts small corrections of a synchronised clock', async () => {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    await clock.advance(10 * MINUTE);
    clock.jump(900);
    expect(time.sure()).to.equal(true);
  });
});

describe('running time over a restart', () => {
  /** A process that ran for an hour, and what it kept. */
  async function firstLife(): Promise<{ from: number; kept: TimeMemory }> {
    const clock = createTestClock();
    const time = createRunningTime(clock);
    const from = clock.now();
    await clock.advance(HOUR);
    const kept = readTimeMemory(JSON.stringify(time.memory()));
    if (!kept) throw new Error('nothing was kept');
    return { from, kept };
  }

  it('continues after a short stop, and excludes a long one', async () => {
    const { from, kept } = await firstLife();
    expect(createRunningTime(createTestClock(kept.seen + MINUTE), kept).age(from)).to.equal(HOUR + MINUTE);
    const clock = createTestClock(kept.seen + 5 * HOUR);
    const time = createRunningTime(clock, kept);
    expect(time.odd).to.equal(0);
    expect(time.believed()).to.equal(true);
    await clock.advance(MINUTE);
    expect(time.age(from)).to.equal(HOUR + MINUTE);
    expect(time.age(kept.seen + 5 * HOUR + 1), 'what came since').to.equal(MINUTE - 1);
  });

  for (const [name, off] of [
    ['ahead', 40 * DAY],
    ['behind', -40 * DAY],
  ] as const) {
    it(`distrusts a clock that is days ${name} for an hour, stores nothing meanwhile, and uses up no time`, async () => {
      const { from, kept } = await firstLife();
      const clock = createTestClock(kept.seen + off);
      const time = createRunningTime(clock, kept);
      expect(time.odd).to.equal(off);
      await clock.advance(HOUR - 1);
      expect([time.believed(), time.sure(), time.memory()]).to.deep.equal([false, false, undefined]);
      await clock.advance(1);
      expect([time.believed(), time.sure()]).to.deep.equal([true, true]);
      expect(time.age(from)).to.be.at.most(2 * HOUR);
      // The next start: it neither doubts the clock again, nor counts the days.
      const next = createRunningTime(createTestClock(clock.now() + MINUTE), time.memory());
      expect(next.odd).to.equal(0);
      expect(next.age(from)).to.be.at.most(2 * HOUR + MINUTE);
    });
  }

  it('continues from its last value when the clock is corrected', async () => {
    const { from, kept } = await firstLife();
    const clock = createTestClock(kept.seen + 40 * DAY);
    const time = createRunningTime(clock, kept);
    await clock.advance(2 * HOUR);
    clock.jump(-40 * DAY);
    expect(time.age(from)).to.equal(3 * HOUR);
    await clock.advance(HOUR);
    expect(time.age(from)).to.equal(4 * HOUR);
    expect(time.memory()).to.deep.equal({ seen: kept.seen + 3 * HOUR, skips: [] });
  });

  it('remembers only a few stops, and ignores invalid ones', async () => {
    let kept: TimeMemory | undefined = { seen: Date.UTC(2026, 0, 5), skips: [] };
    for (let n = 0; n < 100; n++) {
      const clock = createTestClock((kept?.seen ?? 0) + HOUR);
      const time = createRunningTime(clock, kept);
      await clock.advance(10 * MINUTE);
      kept = time.memory();
    }
    expect(kept?.skips).to.have.length(64);
    for (const text of [
      '',
      '{',
      '[]',
      '{}',
      '{"seen":1}',
      '{"seen":"1","skips":[]}',
      '{"seen":1,"skips":[{}]}',
      '{"seen":1,"skips":[{"at":1,"by":null}]}',
    ])
      expect(readTimeMemory(text), text).to.equal(undefined);
  });
});

describe('the agenda', () => {
  it('wakes each sleeper once at its latest time, with one timer for all', async () => {
    const clock = createTestClock();
    let timers = 0;
    const counting = {
      ...clock,
      after: (ms: number, fn: () => void) => {
        timers++;
        const cancel = clock.after(ms, () => {
          timers--;
          fn();
        });
        return () => {
          timers--;
          cancel();
        };
      },
    };
    const woken: [string, number][] = [];
    const agenda = createTimerQueue<Sleeper & { name: string }>(counting, ({ name }) =>
      woken.push([name, clock.monotonic()]),
    );
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
    expect(woken).to.deep.equal([
      ['a', 50],
      ['b', 400],
    ]);
    expect(timers).to.equal(0);
    agenda.set(a, 2000);
    agenda.stop();
    expect(timers).to.equal(0);
    await clock.advance(5000);
    expect(woken).to.have.length(2);
  });
});
