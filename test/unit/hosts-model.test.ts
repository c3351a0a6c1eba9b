import { expect } from 'chai';
import { runModel } from '../support/hosts-model/model.ts';
import type { Left } from '../support/hosts-model/process.ts';

/** How many schedules of faults, and the seed of the first. */
const SCHEDULES = Number(process.env['HOST_SCHEDULES'] ?? 2);
const FIRST = Number(process.env['HOST_SEED'] ?? 1);

interface Sum {
  acknowledged: number;
  again: number;
  adopted: number;
  readonly lost: string[];
  readonly faults: string[];
  readonly events: Record<string, number>;
}

async function runAll(count: number, left: Left = {}, only?: Parameters<typeof runModel>[2]): Promise<Sum> {
  const sum: Sum = { acknowledged: 0, again: 0, adopted: 0, lost: [], faults: [], events: {} };
  for (let seed = FIRST; seed < FIRST + count; seed++) {
    const one = await runModel(seed, left, only);
    sum.acknowledged += one.acknowledged;
    sum.again += one.again;
    sum.adopted += one.adopted;
    sum.lost.push(...one.lost.map((id) => `seed ${seed}: ${id}`));
    sum.faults.push(...one.faults.map((fault) => `seed ${seed}: ${fault}`));
    for (const [name, times] of Object.entries(one.events)) sum.events[name] = (sum.events[name] ?? 0) + times;
  }
  return sum;
}

function show(what: string, { acknowledged, lost, again, faults, adopted, events }: Sum): void {
  console.log(
    `      ${what}: acknowledged ${acknowledged}, lost ${lost.length}, sent again ${again}, faults ${faults.length}, ` +
      `hosts adopted ${adopted}; ${Object.entries(events)
        .toSorted()
        .map(([name, times]) => `${name} ${times}`)
        .join(', ')}`,
  );
}

describe('three hosts of a store that are cut off, killed, lost, stopped, slow and copied, by clocks that are wrong', function () {
  this.timeout(60_000 * (SCHEDULES + 2));

  it('lose nothing that was acknowledged, and send twice only what was in flight', async () => {
    const sum = await runAll(SCHEDULES);
    show(`${SCHEDULES} schedules`, sum);
    expect(sum.faults).to.deep.equal([]);
    expect(sum.lost).to.deep.equal([]);
    expect([sum.acknowledged, sum.adopted].every((count) => count > 0)).to.equal(true);
  });

  it('send each once that is cut off from the store', async () => {
    const sum = await runAll(1, {}, 'cut');
    show('cut off', sum);
    expect([sum.faults, sum.lost]).to.deep.equal([[], []]);
    expect(sum.adopted).to.be.above(0);
  });

  it('(control) send more than once what another host has, without claims and leases', async () => {
    const sum = await runAll(1, { fencing: true }, 'cut');
    show('without claims and leases', sum);
    expect(sum.faults).to.not.deep.equal([]);
  });

  it('(control) lose mail without copies', async () => {
    const sum = await runAll(1, { copies: true }, 'lose');
    show('without copies', sum);
    expect(sum.lost).to.not.deep.equal([]);
  });
});
