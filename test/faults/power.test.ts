import { join } from 'node:path';
import { expect } from 'chai';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import { type DiskKind, noDisk, openDisk } from '../support/faults/disk.ts';
import type { Life } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import { SMALL, size } from '../support/faults/sizes.ts';
import { openWorld } from '../support/faults/world.ts';
import { until } from '../support/until.ts';

const CUTS = size('CUTS', 50, 2);
const CONTROL_CUTS = size('CONTROL_CUTS', 2, 1);
const KINDS: readonly DiskKind[] = SMALL ? ['ext4'] : ['ext4', 'xfs'];
/** Messages taken before a cut, at least; the last ones just before it, and some posts under way. */
const BETWEEN = size('CUT_MESSAGES', 300, 100);
/** Posts at one time to the one endpoint, at most (`delivery.concurrency_per_endpoint`): what a cut may take the results of. */
const IN_FLIGHT = 128;
const LARGE_EVERY = 20;
const WITHOUT_SYNC = new URL('../support/faults/without-sync.ts', import.meta.url);

/** Takes mail and has its power cut, again and again; then whatever is there is delivered. */
async function cuts(kind: DiskKind, count: number, life: Life = {}): Promise<Verdict> {
  const disk = openDisk(kind, 4096); // what was delivered stays in the queue for a day
  try {
    const world = await openWorld({ data: join(disk.path, 'data') });
    try {
      const { edge, ledger, sink } = world;
      await edge.start(); // domain and route are made in safety: their loss would say nothing of mail
      await edge.stop();
      const load = world.load({ connections: 50, bytes: (n) => (n % LARGE_EVERY === 0 ? 300_000 : 10_000) });
      for (let cut = 0; cut < count; cut++) {
        await edge.start(life);
        load.turnTo(edge.daemon().smtp);
        const before = load.acknowledged();
        const posted = sink.arrivals.length;
        const enough = before + BETWEEN * (1 + Math.random() / 4);
        await until(
          'mail to be taken and posted',
          () => load.acknowledged() >= enough && sink.arrivals.length > posted + BETWEEN / 4,
          120_000,
        );
        // Without power nobody runs. A daemon that did could be told by ext4 that a sync which began before the cut went
        // well, though its transaction was thrown away, and give a 250 that no real one would have lived to give.
        edge.freeze();
        disk.cut();
        await edge.kill();
        load.turnTo(undefined);
        await disk.remount();
      }
      await edge.start();
      await load.stop();
      return await judgeWhenQuiet(edge.dir, ledger, sink, life.imports ? 3000 : 300_000);
    } finally {
      await world.close();
    }
  } finally {
    await disk.remove();
  }
}

for (const kind of KINDS) {
  describe(`a power cut under load, ${CUTS} times on ${kind}`, function () {
    this.timeout(1_800_000);
    before(function () {
      const reason = noDisk(kind);
      if (reason !== undefined) {
        console.log(`    the power is not cut on ${kind}: ${reason}`);
        this.skip();
      }
    });

    it('loses no acknowledged mail', async () => {
      const verdict = await cuts(kind, CUTS);
      tell(`power cut, ${kind}`, verdict, { cuts: CUTS });
      expect(verdict.acknowledged).to.be.at.least(CUTS * BETWEEN);
      expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
      expect(verdict.duplicates).to.be.at.most(CUTS * IN_FLIGHT);
    });

    it('loses mail if writes are not synced (control)', async () => {
      const verdict = await cuts(kind, CONTROL_CUTS, { imports: [WITHOUT_SYNC] });
      tell(`power cut, ${kind}, control`, verdict, { cuts: CONTROL_CUTS });
      expect(verdict.lost).to.not.deep.equal([]);
    });
  });
}
