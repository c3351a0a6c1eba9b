import { expect } from 'chai';
import { createAccountUsage } from '../../../src/queue/account-usage.ts';
import { openReader } from '../../../src/queue/disk/reader.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { freshSpool, put } from '../../support/spool.ts';
import { until } from '../../support/until.ts';

describe('the bytes of an account on the queue', () => {
  /** Holdings over a queue with some mail of `account`, on a disk with this number of bytes left. */
  async function world(left: number) {
    const { spool, clock, dir } = await freshSpool();
    const { delivery } = await put(spool, clock);
    const log = createTestLog();
    const reading = await openReader({ dir, role: 'visitor', now: 0 }, { clock, log }, async () => {});
    const state = { left };
    const accountUsage = createAccountUsage({
      reading,
      room: { left: () => state.left },
      clock: createTestClock(),
      log,
    });
    await accountUsage.count();
    return { accountUsage, state, account: delivery.account, reading, log };
  }

  it('are counted from the file, plus mail accepted since', async () => {
    const { accountUsage, state, account, reading } = await world(1_000_000);
    expect(accountUsage.isWithinShare(account)).to.equal(true);
    state.left = 1;
    expect(accountUsage.isWithinShare(account), 'what is on the queue is more than three times what is left').to.equal(
      false,
    );
    expect(accountUsage.isWithinShare('another'), 'others are not held back').to.equal(true);
    state.left = 1000;
    accountUsage.add(3001, [{ account: 'another' }]);
    expect(accountUsage.isWithinShare('another')).to.equal(false);
    accountUsage.stop();
    await reading.close();
  });

  it('are counted again at the limit, so that deleted mail no longer counts', async () => {
    const { accountUsage, state, reading } = await world(1000);
    accountUsage.add(5000, [{ account: 'another' }]);
    await accountUsage.count();
    expect(accountUsage.isWithinShare('another'), 'nothing of it is on the queue').to.equal(true);
    state.left = 1000;
    await until('a count of its own', () => accountUsage.isWithinShare('another'));
    accountUsage.stop();
    await reading.close();
  });
});
