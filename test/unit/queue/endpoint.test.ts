import { expect } from 'chai';
import {
  askNow,
  type BreakerState,
  type Change,
  fromMemory,
  learn,
  mayProbe,
  newEndpoint,
  readMemory,
  toMemory,
} from '../../../src/queue/schedule/breaker.ts';
import type { ConcurrencyBounds } from '../../../src/queue/schedule/concurrency-limit.ts';
import type { Lesson } from '../../../src/queue/settle.ts';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const pass: Lesson = { kind: 'passed', aside: false, strained: false, leaveAlone: 0 };
const fail: Lesson = { kind: 'failed', aside: false, strained: false, leaveAlone: 0 };
const miss: Lesson = { kind: 'unanswered', aside: false, strained: false, leaveAlone: 0 };
const gone: Lesson = { kind: 'gone', aside: false, strained: false, leaveAlone: 0 };

const BOUNDS: ConcurrencyBounds = { start: 2, most: 8, heedsLatency: true };
/** An attempt that was sent and came back now, among as many as there may be. */
const occasionAt = (now: number) => ({ now, jitter: 0.5, sentAt: now, full: true, lag: 0, bounds: BOUNDS });

/** An endpoint that gets results one after the other. */
function pupil(state: BreakerState = newEndpoint(0, BOUNDS)) {
  let now = 0;
  const changes: Change[] = [];
  return {
    state: () => state,
    changes,
    wait(ms: number) {
      now += ms;
      return this;
    },
    tell(lesson: Lesson, times = 1, probe = state.phase !== 'closed') {
      for (let i = 0; i < times; i++) {
        const learned = learn(state, lesson, { ...occasionAt(now), probe });
        state = learned.state;
        if (learned.change) changes.push(learned.change);
      }
      return this;
    },
  };
}

describe('the breaker of an endpoint', () => {
  it('opens after five attempts in a row without an answer', () => {
    const site = pupil().tell(miss, 4).tell(pass).tell(miss, 4);
    expect(site.changes).to.deep.equal([]);
    site.tell(miss);
    expect(site.changes).to.deep.equal(['opened']);
  });

  it('opens when 70% of at least ten results in five minutes failed', () => {
    expect(pupil().tell(fail, 9).changes).to.deep.equal([]);
    expect(pupil().tell(fail, 10).changes).to.deep.equal(['opened']);
    expect(pupil().tell(pass, 3).tell(fail, 6).changes).to.deep.equal([]);
    expect(pupil().tell(pass, 3).tell(fail, 7).changes).to.deep.equal(['opened']);
    expect(pupil().tell(pass, 100).tell(fail, 200).changes).to.deep.equal([]);
  });

  it('forgets results after five minutes', () => {
    expect(
      pupil()
        .tell(fail, 9)
        .wait(5 * MINUTE + 1)
        .tell(fail).changes,
    ).to.deep.equal([]);
    expect(
      pupil()
        .tell(fail, 5)
        .wait(2 * MINUTE)
        .tell(fail, 5).changes,
    ).to.deep.equal(['opened']);
  });

  it('does not open for parked deliveries', () => {
    expect(pupil().tell({ ...fail, aside: true }, 100).changes).to.deep.equal([]);
  });

  it('allows one probe every 30 seconds, and every two minutes after six hours', () => {
    const site = pupil().tell(miss, 5);
    expect(mayProbe(site.state(), 29_999, false)).to.equal(false);
    expect(mayProbe(site.state(), 30_000, false)).to.equal(true);
    expect(mayProbe(site.state(), 30_000, true)).to.equal(false);
    site.wait(30_000).tell(miss);
    expect(site.state().probeAt).to.equal(60_000);
    site.wait(6 * HOUR).tell(miss);
    expect(site.state().probeAt).to.equal(30_000 + 6 * HOUR + 2 * MINUTE);
  });

  it('spreads probes by a fifth either way', () => {
    const at = (jitter: number) =>
      learn(pupil().tell(miss, 4).state(), miss, { ...occasionAt(0), jitter, probe: false }).state.probeAt;
    expect(at(0)).to.equal(24_000);
    expect(at(0.9999)).to.be.closeTo(36_000, 10);
  });

  it('pauses the endpoint for the time of Retry-After', () => {
    expect(
      pupil()
        .tell({ ...fail, leaveAlone: HOUR }, 10)
        .state().probeAt,
    ).to.equal(HOUR);
  });

  it('ignores late failures of attempts that began before it opened', () => {
    const site = pupil().tell(miss, 5);
    const before = site.state();
    expect(site.wait(10_000).tell(fail, 8, false).state()).to.equal(before);
  });

  it('closes when a probe succeeds, and allows 1, 2, 4 and then 8 at a time', () => {
    const site = pupil().tell(miss, 5).wait(30_000).tell(pass);
    expect(site.changes).to.deep.equal(['opened', 'closed']);
    const limits = [site.state().concurrency.limit];
    for (let i = 0; i < 20; i++) limits.push(site.tell(pass).state().concurrency.limit);
    expect([...new Set(limits)]).to.deep.equal([1, 2, 4, 8]);
    expect(mayProbe(site.state(), Number.MAX_SAFE_INTEGER, false)).to.equal(false);
  });

  it('halves the concurrency when the endpoint is at its limit', () => {
    const strained = { ...fail, strained: true };
    expect(pupil().tell(pass, 30).tell(strained).state().concurrency.limit).to.equal(4);
    expect(pupil().tell(pass, 30).tell(miss).state().concurrency.limit).to.equal(4);
  });
});

describe('an endpoint that answers 410', () => {
  it('is paused at once and probed once a day', () => {
    const site = pupil().tell(pass, 50).tell(gone);
    expect(site.changes).to.deep.equal(['paused']);
    expect(mayProbe(site.state(), DAY - 1, false)).to.equal(false);
    expect(mayProbe(site.state(), DAY, false)).to.equal(true);
    site.wait(DAY).tell(gone);
    expect(site.state().probeAt).to.equal(2 * DAY);
    site.wait(DAY).tell(miss);
    expect(site.state()).to.include({ phase: 'paused', probeAt: 3 * DAY });
  });

  it('resumes when a probe succeeds', () => {
    const site = pupil().tell(gone).wait(DAY).tell(pass);
    expect(site.changes).to.deep.equal(['paused', 'resumed']);
    expect(site.state().concurrency.limit).to.equal(1);
  });

  it('is probed at once after a retry by an operator', () => {
    expect(mayProbe(askNow(pupil().tell(gone).state(), 5), 5, false)).to.equal(true);
    const closed = pupil().state();
    expect(askNow(closed, 5)).to.equal(closed);
  });
});

describe('the saved state of an endpoint', () => {
  const SHIFT = Date.UTC(2026, 0, 5);

  it('is empty while it is closed', () => {
    expect(toMemory(pupil().tell(fail, 9).state(), SHIFT, null)).to.equal(null);
  });

  it('keeps breaker and pause over a restart', () => {
    const open = pupil().tell(miss, 5).state();
    const laterShift = SHIFT + 10_000; // ten seconds later the new process counts from 0
    const restored = fromMemory(toMemory(open, SHIFT, null), laterShift, 0, BOUNDS);
    expect(restored).to.include({ phase: 'open', since: -10_000, probeAt: 20_000 });
    const paused = fromMemory(toMemory(pupil().tell(gone).state(), SHIFT, null), laterShift, 0, BOUNDS);
    expect(paused).to.include({ phase: 'paused', probeAt: DAY - 10_000 });
  });

  it('keeps the pause of its account, also while it is closed, and not beyond its end', () => {
    const held = { ...newEndpoint(0, BOUNDS), hold: { by: 'operator' as const, since: -MINUTE, until: HOUR } };
    const memory = toMemory(held, SHIFT, null);
    expect(readMemory(memory)).to.deep.include({
      phase: 'closed',
      hold: { by: 'operator', since: SHIFT - MINUTE, until: SHIFT + HOUR, shared: true },
    });
    const laterShift = SHIFT + 10_000;
    expect(fromMemory(memory, laterShift, 0, BOUNDS)).to.deep.equal({
      ...newEndpoint(0, BOUNDS),
      hold: { by: 'operator', since: -MINUTE - 10_000, until: HOUR - 10_000 },
    });
    expect(fromMemory(memory, SHIFT + HOUR, 0, BOUNDS)).to.deep.equal(newEndpoint(0, BOUNDS));
    expect(fromMemory(memory, SHIFT - 400 * DAY, 0, BOUNDS).hold?.until).to.equal(7 * DAY);
    const down = pupil({ ...held, phase: 'open' })
      .tell(pass)
      .state();
    expect(down, 'the breaker closes, and the hold stays').to.deep.include({ phase: 'closed', hold: held.hold });
  });

  it('reads a hold of an earlier version as one of its account, which the store does not have', () => {
    const memory = JSON.stringify({
      phase: 'closed',
      since: SHIFT,
      probeAt: SHIFT,
      hold: { since: SHIFT, until: SHIFT + HOUR },
    });
    expect(fromMemory(memory, SHIFT, 0, BOUNDS).hold).to.deep.equal({
      by: 'account',
      since: 0,
      until: HOUR,
      local: true,
    });
  });

  it('allows a probe at once if its time passed meanwhile', () => {
    const restored = fromMemory(toMemory(pupil().tell(miss, 5).state(), SHIFT, null), SHIFT + HOUR, 0, BOUNDS);
    expect(mayProbe(restored, 0, false)).to.equal(true);
  });

  it('is not delayed for ever by a wrong clock', () => {
    const memory = toMemory(pupil().tell(miss, 5).state(), SHIFT + 400 * DAY, null);
    expect(fromMemory(memory, SHIFT, 0, BOUNDS).probeAt).to.be.at.most(6 * HOUR);
  });

  it('is ignored if it is not ours', () => {
    for (const text of [
      '',
      '{',
      '[]',
      'null',
      '{"phase":"closed"}',
      '{"phase":"open","since":"x","probeAt":1}',
      '{"__proto__":{"phase":"open"}}',
    ]) {
      expect(fromMemory(text, SHIFT, 0, BOUNDS), text).to.deep.equal(newEndpoint(0, BOUNDS));
    }
  });
});
