import { expect } from 'chai';
import { clockAt, createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { borrowSpool, type TestSpool } from '../../support/shared-spool.ts';
import { put, settled } from '../../support/spool.ts';

const MINUTE = 60_000;
const HERE = { account: 'acme', url: 'https://hooks.example.com/in' };
const OTHER = { account: 'other', url: 'https://hooks.example.com/in' };

describe('waiting deliveries, by age', () => {
  const clock = createTestClock();
  const now = clock.now();
  let spool: TestSpool;
  beforeEach(async () => {
    spool = await borrowSpool({ clock, log: createTestLog() });
  });
  afterEach(() => spool.close());

  it('are empty while nothing waits', async () => {
    const { delivery } = await put(spool, clockAt(now), HERE);
    await spool.settle(settled(clock, delivery));
    expect(await spool.ages(now)).to.deep.equal([]);
  });

  it('are counted for each endpoint of each account, in doubling spans', async () => {
    for (const minutes of [0, 4, 6, 15, 39, 41, 159, 161, 10_000])
      await put(spool, clockAt(now - minutes * MINUTE), HERE);
    await put(spool, clockAt(now - MINUTE), OTHER);
    const ages = await spool.ages(now);
    expect(ages.toSorted((a, b) => b.waiting - a.waiting)).to.deep.equal([
      { ...HERE, waiting: 9, ages: [2, 1, 1, 1, 1, 1, 2], later: 0, parked: 0, oldest: now - 10_000 * MINUTE },
      { ...OTHER, waiting: 1, ages: [1, 0, 0, 0, 0, 0, 0], later: 0, parked: 0, oldest: now - MINUTE },
    ]);
  });

  it('are counted apart from scheduled and parked ones', async () => {
    await put(spool, clockAt(now), { ...HERE, notBefore: now + 60 * MINUTE });
    const { delivery } = await put(spool, clockAt(now - 50 * MINUTE), HERE);
    await spool.settle(settled(clock, delivery, { state: 'waiting', parked: true }));
    const [one] = await spool.ages(now);
    expect(one).to.deep.include({ waiting: 2, ages: [0, 0, 0, 0, 1, 0, 0], later: 1, parked: 1 });
  });
});
