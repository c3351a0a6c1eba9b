import { expect } from 'chai';
import { freshSpool } from '../../support/spool.ts';
import { killAfter, missing, startSpoolProcess } from '../../support/spool-process.ts';
import { tempDir } from '../../support/temp.ts';

describe('a daemon that is killed while it processes mail', function () {
  this.timeout(60_000);

  it('loses nothing that it acknowledged, round after round', async () => {
    const dir = await tempDir();
    const accepted: { id: string; sha256: string }[] = [];
    for (let round = 0; round < 5; round++) {
      const process = startSpoolProcess([dir, 20, 1_000_000, 10]);
      await killAfter(process, 30 + round * 67);
      const results = process.results();
      expect(results.filter(({ outcome }) => outcome !== 'accepted')).to.deep.equal([]);
      accepted.push(...results);
    }
    expect(accepted.length).to.be.greaterThan(5 * 30);
    const { spool, log } = await freshSpool(dir);
    expect(await missing(spool, accepted)).to.deep.equal([]);
    const deliveries = await spool.list({ states: ['waiting'] }, 1_000_000);
    expect(accepted.filter(({ id }) => !deliveries.some(({ messageId }) => messageId === id))).to.deep.equal([]);
    // What was on its way may be there too, but never more than the callers could have sent.
    expect(deliveries.length).to.be.at.most(accepted.length + 5 * 20);
    expect(log.of('spool.recovered')).to.have.length(1);
  });
});
