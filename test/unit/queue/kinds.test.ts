import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect } from 'chai';
import { namesOf } from '../../../src/base/tables.ts';
import { DELIVERY_KINDS, KINDS } from '../../../src/queue/delivery.ts';
import { sumOfDelivery } from '../../../src/queue/disk/sums.ts';
import { freshSpool, put } from '../../support/spool.ts';

/** The numbers that queues on disks hold. */
const ON_DISK = { inbound: 0, events: 1, outbound: 2, return: 3 } as const;

describe('the kinds of deliveries', () => {
  it('keep their unique numbers in the queue file', () => {
    for (const kind of namesOf(ON_DISK)) expect(KINDS[kind].code, kind).to.equal(ON_DISK[kind]);
    const codes = DELIVERY_KINDS.map((kind) => KINDS[kind].code);
    expect(new Set(codes).size).to.equal(codes.length);
  });

  it('are never confused: a delivery of an unknown kind from a newer version becomes a dead letter', async () => {
    const opened = await freshSpool();
    const ours = await put(opened.spool, opened.clock);
    const theirs = await put(opened.spool, opened.clock);
    await opened.spool.close();
    const db = new DatabaseSync(join(opened.dir, 'spool.db'));
    const row = db.prepare('SELECT message FROM deliveries WHERE id = ?').get(theirs.delivery.id);
    const { id, routeId: route, pattern, recipient } = theirs.delivery;
    const sum = sumOfDelivery({ id, kind: 200, task: 0, message: Number(row?.['message']), route, pattern, recipient });
    db.prepare('UPDATE deliveries SET kind = 200, sum = ? WHERE id = ?').run(sum, id);
    db.close();
    const spool = await opened.reopen();
    const due = await spool.due('acme', ours.delivery.url, opened.clock.now(), 10, []);
    expect(due.map((delivery) => delivery.id)).to.deep.equal([ours.delivery.id]);
    expect(await spool.delivery(id)).to.include({ state: 'dead' });
  });
});
