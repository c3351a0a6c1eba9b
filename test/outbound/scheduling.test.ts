import { expect } from 'chai';
import { createScheduling } from '../../src/outbound/scheduling.ts';
import type { ScheduledRow } from '../../src/store/scheduled.ts';
import type { Store } from '../../src/store/store.ts';
import { messageRow } from '../support/messages.ts';
import { freshSpool, put } from '../support/spool.ts';
import { openTestStore } from '../support/store.ts';

const ID = '5c1e0d0000000000000000000000000a';

describe('scheduling', () => {
  let store: Store;
  let opened: Awaited<ReturnType<typeof freshSpool>>;
  beforeEach(async () => {
    opened = await freshSpool();
    store = await openTestStore(opened.log, opened.dir);
  });
  afterEach(() => store.close());

  const part = () => createScheduling({ store, spool: opened.spool, clock: opened.clock });
  /** A message that waits here, or somewhere else. */
  async function scheduled(here: boolean, fields: Partial<ScheduledRow> = {}): Promise<ScheduledRow> {
    const sendAt = new Date(opened.clock.now() + 3_600_000);
    const delivery = here ? (await put(opened.spool, opened.clock, { url: 'smtp://example.com' })).delivery.id : 'elsewhere';
    if (here) await opened.spool.reschedule({ ids: [delivery] }, sendAt.getTime());
    const row = { id: ID, account: 'acme', createdAt: new Date(opened.clock.now()), sendAt, sender: 'a@example.com', email: 'jo@example.com', subject: 's', delivery, wish: null, ...fields };
    await store.scheduled.insert(row);
    await store.messages.insert(messageRow('acme', ID, { delivery, tags: ['t'], state: 'queued' }));
    await store.messageTags.insert({ id: `${ID} t`, account: 'acme', tag: 't', message: ID, createdAt: row.createdAt });
    return row;
  }
  const stateOf = async ({ delivery }: ScheduledRow) => (await opened.spool.delivery(delivery))?.state;

  it('does what was wished on another host, on the host that has the message', async () => {
    const row = await scheduled(true, { wish: 'cancel' });
    expect(await part().tend()).to.equal(1);
    expect(await stateOf(row)).to.equal('dropped');
    expect([await store.scheduled.many({}), await store.messages.many({}), await store.messageTags.many({})]).to.deep.equal([[], [], []]);
    expect(await part().tend()).to.equal(0);
  });

  it('moves what was wished to be moved', async () => {
    const sendAt = new Date(opened.clock.now() + 7_200_000);
    const row = await scheduled(true, { wish: 'move', sendAt });
    expect(await part().tend()).to.equal(1);
    expect(await opened.spool.delivery(row.delivery)).to.include({ dueAt: sendAt.getTime(), budgetFrom: sendAt.getTime(), state: 'waiting' });
    expect((await store.scheduled.one({ id: ID }))?.wish).to.equal(null);
  });

  it('leaves to other hosts what waits there', async () => {
    const row = await scheduled(false);
    expect(await part().cancel(row)).to.equal('noted');
    expect(await part().tend()).to.equal(0);
    expect((await store.scheduled.one({ id: ID }))?.wish).to.equal('cancel');
  });

  it('finishes a cancellation that was cut off behind the spool', async () => {
    const row = await scheduled(true);
    await opened.spool.drop({ ids: [row.delivery] }, opened.clock.now());
    expect(await part().cancel(row)).to.equal('done');
    expect(await store.messages.many({})).to.deep.equal([]);
  });

  it('neither cancels nor moves what was attempted, and takes such a wish back', async () => {
    const row = await scheduled(true);
    await opened.spool.settle({ deliveryId: row.delivery, attempt: null, state: 'delivered', dueAt: 0, parked: false, at: opened.clock.now() });
    expect(await part().cancel(row)).to.equal('gone');
    expect(await part().move(row, new Date(opened.clock.now() + 1000))).to.equal('gone');
    await store.scheduled.change({ id: ID }, { wish: 'cancel' });
    await part().tend();
    expect((await store.scheduled.one({ id: ID }))?.wish).to.equal(null);
    expect(await store.messages.many({})).to.have.length(1);
  });

  it('moves nothing that another account has', async () => {
    const row = await scheduled(true);
    expect(await part().move({ ...row, account: 'other' }, new Date(opened.clock.now() + 1000))).to.equal('gone');
    expect(await part().cancel({ ...row, account: 'other' })).to.equal('gone');
    expect(await stateOf(row)).to.equal('waiting');
  });

  it('forgets rows a day after their time', async () => {
    await scheduled(true);
    await opened.clock.advance(3_600_000 + 86_400_000);
    expect(await part().tend()).to.equal(0);
    await opened.clock.advance(1);
    expect(await part().tend()).to.equal(1);
    expect(await store.scheduled.many({})).to.deep.equal([]);
  });
});
