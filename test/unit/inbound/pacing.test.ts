import { expect } from 'chai';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import { createPacing } from '../../../src/inbound/pacing.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const SETTINGS = { above: 1000, longestMs: 5000 };

function open(settings = SETTINGS) {
  const clock = createTestClock();
  const log = createTestLog();
  let behind = 0;
  const backlog = { before: () => behind, total: () => behind };
  const pacing = createPacing(settings, { backlog, clock, log, metrics: NO_METRICS });
  return {
    clock,
    log,
    pacing,
    /** The delay of a reply while this number waits for us, to a tenth of a second; at once: 0. */
    async delay(count: number): Promise<number> {
      behind = count;
      const turn = pacing.delay([]);
      if (!turn) return 0;
      let left = false;
      void turn.then(() => {
        left = true;
      });
      const from = clock.monotonic();
      while (!left) await clock.advance(100);
      return clock.monotonic() - from;
    },
  };
}

describe('the replies to accepted messages', () => {
  it('are sent at once while fewer deliveries wait for preparation than allowed', async () => {
    const world = open();
    expect(await world.delay(0)).to.equal(0);
    expect(await world.delay(1000)).to.equal(0);
    expect(world.log.lines).to.deep.equal([]);
  });

  for (const { behind, ms } of [
    { behind: 2000, ms: 300 },
    { behind: 5000, ms: 1000 },
    { behind: 11_000, ms: 2500 },
    { behind: 21_000, ms: 5000 },
    { behind: 1_000_000, ms: 5000 },
  ])
    it(`wait ${ms} ms while ${behind} wait`, async () => {
      expect(await open().delay(behind)).to.equal(ms);
    });

  it('never wait when pacing is disabled', async () => {
    expect(await open({ above: 0, longestMs: 5000 }).delay(1_000_000)).to.equal(0);
  });

  it('are sent at once on stop', async () => {
    const world = open();
    world.pacing.stop();
    expect(await world.delay(1_000_000)).to.be.at.most(100);
  });

  it('are logged once when they begin to wait, and once when none has waited for a minute', async () => {
    const world = open();
    for (let n = 0; n < 30; n++) await world.delay(9000);
    expect(world.log.of('accept.slowed').map(({ fields }) => fields)).to.deep.equal([{ behind: 9000, delay_ms: 2000 }]);
    await world.clock.advance(50_000);
    await world.delay(2000);
    await world.clock.advance(50_000);
    expect(world.log.of('accept.resumed')).to.have.length(0);
    await world.clock.advance(11_000);
    expect(world.log.of('accept.resumed').map(({ fields }) => fields)).to.deep.equal([
      { messages: 31, longest_ms: 2000 },
    ]);
    await world.delay(9000);
    expect(world.log.of('accept.slowed')).to.have.length(2);
  });
});
