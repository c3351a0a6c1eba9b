import { expect } from 'chai';
import { FORMAT_NAMES } from '../../src/inbound/formats.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import type { Life } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld } from '../support/faults/world.ts';
import { until } from '../support/until.ts';

const KILLS = size('FORMAT_KILLS', 30, 2);
const MESSAGES = size('FORMAT_MESSAGES', 20_000, 400);
/** Posts at one time to an endpoint, at most. */
const IN_FLIGHT = 128;
const EARLY = new URL('../support/faults/acknowledge-early.ts', import.meta.url);

/** Kills the daemon while it takes mail that is posted in every format in turn. */
async function storm(
  kills: number,
  messages: number,
  life: Life = {},
): Promise<{ verdict: Verdict; formats: string[] }> {
  const world = await openWorld();
  try {
    const { edge, ledger, sink } = world;
    await edge.start(life);
    const { api } = createCaller(edge.daemon().base, KEY);
    for (const format of FORMAT_NAMES)
      await api('/inbound/add-route', { domain: 'in.test', pattern: format, format, url: `${sink.base}/${format}` });
    const to = (n: number) => `${FORMAT_NAMES[n % FORMAT_NAMES.length]}@in.test`;
    const load = world.load({ connections: 20, bytes: (n) => (n % 20 === 0 ? 300_000 : 5000), to });
    for (let kill = 0; kill < kills; kill++) {
      load.turnTo(edge.daemon().smtp);
      const at = ((kill + Math.random()) * messages) / (kills + 1);
      const before = load.acknowledged();
      await until('some of the load', () => load.acknowledged() >= Math.max(at, before + 1), 120_000);
      await edge.kill();
      load.turnTo(undefined);
      await edge.start(life);
    }
    load.turnTo(edge.daemon().smtp);
    await until('the rest of the load', () => load.acknowledged() >= messages, 600_000);
    await load.stop();
    const verdict = await judgeWhenQuiet(edge.dir, ledger, sink, life.imports ? 5000 : 300_000);
    return { verdict, formats: [...new Set(sink.arrivals.map(({ path }) => path.slice(1)))] };
  } finally {
    await world.close();
  }
}

describe(`kill -9 under load in every format, ${KILLS} times in ${MESSAGES} messages`, function () {
  this.timeout(1_800_000);

  it('loses no acknowledged mail, and receivers read exactly what was sent', async () => {
    const { verdict, formats } = await storm(KILLS, MESSAGES);
    tell('kill storm in every format', verdict, { kills: KILLS });
    expect(formats).to.have.members([...FORMAT_NAMES]);
    expect(verdict.acknowledged).to.be.at.least(MESSAGES);
    expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
    expect(verdict.duplicates).to.be.at.most(IN_FLIGHT * FORMAT_NAMES.length * KILLS);
  });

  it('loses mail when the 250 does not wait for the queue (control)', async () => {
    const { verdict } = await storm(1, 150, { imports: [EARLY] });
    tell('kill storm in every format, control', verdict);
    expect(verdict.lost).to.not.deep.equal([]);
  });
});
