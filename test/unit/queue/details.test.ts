import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { readDetail } from '../../../src/queue/detail.ts';
import { attempt, damagePage, freshSpool, type OpenedSpool, put, settled } from '../../support/spool.ts';

const textOf = (n: number) => JSON.stringify({ address: `127.0.0.1:${n}`, ms: { dns: n } });

/** Attempts a delivery this number of times, each with its own detail; it keeps waiting. */
async function fail({ spool, clock }: OpenedSpool, delivery: Parameters<typeof settled>[1], times: number, from = 1) {
  for (let n = from; n < from + times; n++)
    await spool.settle(
      settled(clock, delivery, { attempt: { ...attempt(clock, 500), detail: textOf(n) }, state: 'waiting' }),
    );
}

const rowsIn = (dir: string): number => {
  const db = new DatabaseSync(join(dir, 'spool.db'), { readOnly: true });
  const row = db.prepare('SELECT count(*) AS n FROM details').get();
  db.close();
  return Number(row?.['n']);
};

describe('the details of an attempt', () => {
  it('are kept with it over a restart, and an attempt without them has none', async () => {
    const world = await freshSpool();
    const { delivery } = await put(world.spool, world.clock);
    await fail(world, delivery, 1);
    await world.spool.settle(settled(world.clock, delivery, { state: 'waiting' }));
    await fail(world, delivery, 1, 3);
    const kept = (await (await world.reopen()).attempts(delivery.id)).map(({ detail }) => detail);
    expect(kept).to.deep.equal([textOf(1), undefined, textOf(3)]);
  });

  it('are those of the last eight attempts, and only the result of earlier ones', async () => {
    const world = await freshSpool();
    const { delivery } = await put(world.spool, world.clock);
    const other = await put(world.spool, world.clock);
    await fail(world, delivery, 20);
    await fail(world, other.delivery, 1);
    const attempts = await world.spool.attempts(delivery.id);
    expect(attempts).to.have.length(20);
    expect(attempts.map(({ detail }) => detail)).to.deep.equal([
      ...Array(12).fill(undefined),
      ...[13, 14, 15, 16, 17, 18, 19, 20].map(textOf),
    ]);
    expect(rowsIn(world.dir)).to.equal(9);
  });

  it('are deleted with the delivery; those of the next recipient stay', async () => {
    const world = await freshSpool();
    const { spool, clock } = world;
    const { deliveries } = await put(spool, clock, { recipients: ['a@in.test', 'b@in.test', 'c@in.test'] });
    const [first, second, third] = deliveries;
    if (!first || !second || !third) throw new Error('three deliveries');
    for (const delivery of deliveries) await fail(world, delivery, 9);
    await spool.settle(settled(clock, second));
    clock.jump(1000);
    expect(await spool.purge({ deliveredBefore: clock.now(), deadBefore: 0, deliveredBytes: 1e9 })).to.equal(1);
    for (const one of [first, third])
      expect((await spool.attempts(one.id)).filter(({ detail }) => detail !== undefined)).to.have.length(8);
    expect(rowsIn(world.dir)).to.equal(16);
    for (const one of [first, third]) await spool.settle(settled(clock, one));
    clock.jump(1000);
    expect(await spool.purge({ deliveredBefore: clock.now(), deadBefore: 0, deliveredBytes: 1e9 })).to.equal(2);
    expect(rowsIn(world.dir)).to.equal(0);
  });

  it('are kept when the queue file is rebuilt', async () => {
    const world = await freshSpool();
    const { delivery } = await put(world.spool, world.clock);
    await fail(world, delivery, 10);
    await world.spool.close();
    await damagePage(join(world.dir, 'spool.db'), 'messages');
    const rebuilt = await world.reopen();
    expect(world.log.lines.map(({ fields }) => String(fields?.['reason'] ?? '')).join()).to.contain('damaged');
    expect((await rebuilt.attempts(delivery.id)).at(-1)?.detail).to.equal(textOf(10));
  });

  it('are dropped if the disk damaged them', () => {
    expect(readDetail('{"ms":{"dns":1}}')).to.deep.equal({ ms: { dns: 1 } });
    expect(readDetail('{"ms":{"dns":1')).to.equal(undefined);
  });
});
