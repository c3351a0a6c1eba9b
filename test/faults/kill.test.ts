import { expect } from 'chai';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import type { Life, Ready } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld } from '../support/faults/world.ts';
import { until } from '../support/until.ts';

const KILLS = size('KILLS', 100, 3);
const MESSAGES = size('KILL_MESSAGES', 50_000, 900);
/** Posts at one time to the one endpoint, at most (`delivery.concurrency_per_endpoint`): what a kill may cut off. */
const IN_FLIGHT = 128;
/** It answers at once, so few of them are on their way in the mean. */
const USUALLY = 16;
/** Processor time of a start after a kill, by that of the start on an empty folder just before: mail that waits costs little. */
const MAX_BY_AN_EMPTY_START = 3;
const EARLY = new URL('../support/faults/acknowledge-early.ts', import.meta.url);

/** Kills the daemon `kills` times while it takes `messages`, each time after another share of them. */
async function storm(
  kills: number,
  messages: number,
  life: Life = {},
): Promise<{ verdict: Verdict; first: Ready; starts: Ready[] }> {
  const world = await openWorld();
  try {
    const { edge, ledger, sink } = world;
    const first = await edge.start(life);
    const load = world.load({ connections: 50 });
    const starts: Ready[] = [];
    for (let kill = 0; kill < kills; kill++) {
      load.turnTo(edge.daemon().smtp);
      // A kill in each share, anywhere in it.
      const at = ((kill + Math.random()) * messages) / (kills + 1);
      const before = load.acknowledged();
      await until('some of the load', () => load.acknowledged() >= Math.max(at, before + 1), 120_000);
      await edge.kill();
      load.turnTo(undefined);
      starts.push(await edge.start(life));
    }
    load.turnTo(edge.daemon().smtp);
    await until('the rest of the load', () => load.acknowledged() >= messages, 600_000);
    await load.stop();
    return { verdict: await judgeWhenQuiet(edge.dir, ledger, sink, life.imports ? 5000 : 300_000), first, starts };
  } finally {
    await world.close();
  }
}

describe(`kill -9 under load, ${KILLS} times in ${MESSAGES} messages`, function () {
  this.timeout(1_800_000);

  it('loses no acknowledged mail, and repeats only deliveries in flight, under the same id', async () => {
    const { verdict, first, starts } = await storm(KILLS, MESSAGES);
    const used = median(starts.map(({ processor }) => processor));
    tell('kill storm', verdict, {
      kills: KILLS,
      'ready after (median) ms': median(starts.map(({ wall }) => wall)),
      'of processor ms': used,
      'of processor ms when empty': first.processor,
    });
    expect(verdict.acknowledged).to.be.at.least(MESSAGES);
    expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
    expect(verdict.mostOfOne).to.be.at.most(KILLS + 1);
    expect(verdict.duplicates).to.be.at.most(KILLS < 10 ? IN_FLIGHT * KILLS : USUALLY * KILLS);
    expect(used).to.be.below(MAX_BY_AN_EMPTY_START * first.processor);
  });

  it('loses mail when the 250 does not wait for the queue (control)', async () => {
    const { verdict } = await storm(1, 200, { imports: [EARLY] });
    tell('kill storm, control', verdict);
    expect(verdict.lost).to.not.deep.equal([]);
  });
});

function median(numbers: readonly number[]): number {
  return Math.round([...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? 0);
}
