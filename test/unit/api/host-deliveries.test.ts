import { expect } from 'chai';
import { createHostDeliveries } from '../../../src/api/hosts/host-deliveries.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { borrowSpool, type TestSpool } from '../../support/shared-spool.ts';
import { put } from '../../support/spool.ts';

describe('the lists of a queue of a host', () => {
  const clock = createTestClock();
  let spool: TestSpool;
  beforeEach(async () => {
    spool = await borrowSpool({ clock, log: createTestLog() });
    for (const name of ['a', 'b', 'c']) await put(spool, clock, { url: `https://hooks.example.com/${name}` });
  });
  afterEach(() => spool.close());

  it('says whether there is more, which a list that is exactly full does not', async () => {
    const { list, endpoints } = createHostDeliveries({ keepsHeaders: true, hasScanners: false }, { spool, clock });
    for (const [limit, listed, more] of [
      [2, 2, true],
      [3, 3, false],
      [4, 3, false],
    ] as const)
      for (const answer of [await list({ selection: {}, limit }), await endpoints({ limit })])
        expect([answer.rows.length, answer.more], `${limit}`).to.deep.equal([listed, more]);
  });
});
