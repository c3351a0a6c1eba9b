import { expect } from 'chai';
import { sentId } from '../../../src/mail/addresses/return-address.ts';
import { createScheduling } from '../../../src/sending/scheduling.ts';
import type { ScheduledRow } from '../../../src/store/rows/messages.ts';
import type { Store } from '../../../src/store/store.ts';
import { NO_COPIES } from '../../support/copies.ts';
import { messageRow } from '../../support/messages.ts';
import { freshSpool, put } from '../../support/spool.ts';
import { openTestStore } from '../../support/store.ts';

const [HOUR, DAY] = [3_600_000, 86_400_000];

describe('scheduling over several hosts', () => {
  let store: Store;
  let opened: Awaited<ReturnType<typeof freshSpool>>;
  beforeEach(async () => {
    opened = await freshSpool();
    store = await openTestStore(opened.log, opened.dir);
  });
  afterEach(() => store.close());

  let sure = true;
  const part = () =>
    createScheduling({
      store,
      spool: opened.spool,
      copies: NO_COPIES,
      clock: opened.clock,
      time: { sure: () => sure },
    });
  /** A message that waits here for an hour, or somewhere else. */
  async function scheduled(here: boolean, fields: Partial<ScheduledRow> = {}): Promise<ScheduledRow> {
    const now = opened.clock.now();
    const sendAt = fields.sendAt ?? new Date(now + HOUR);
    const delivery = here
      ? (await put(opened.spool, opened.clock, { kind: 'outbound', url: 'smtp://example.com' })).delivery.id
      : 'elsewhere';
    if (here) await opened.spool.reschedule({ ids: [delivery] }, now + HOUR);
    const id = sentId(delivery);
    const row = {
      id,
      account: 'acme',
      createdAt: new Date(now),
      sender: 'a@example.com',
      email: 'jo@example.com',
      subject: 's',
      delivery,
      state: null,
      ...fields,
      sendAt,
    };
    await store.scheduled.insert(row);
    await store.messages.insert(messageRow('acme', id, { delivery, tags: ['t'], state: 'queued' }));
    await store.messageTags.insert({ id: `${id} t`, account: 'acme', tag: 't', message: id, createdAt: row.createdAt });
    return row;
  }
  const stateOf = async ({ delivery }: ScheduledRow) => (await opened.spool.delivery(delivery))?.state;
  const rowOf = ({ id }: ScheduledRow) => store.scheduled.one({ id });
  const nothing = async () =>
    expect([
      await store.scheduled.many({}),
      await store.messages.many({}),
      await store.messageTags.many({}),
    ]).to.deep.equal([[], [], []]);

  it('drops mail that was cancelled on another host', async () => {
    const row = await scheduled(true, { state: 'cancelled' });
    expect(await part().tend()).to.equal(1);
    expect(await stateOf(row)).to.equal('dropped');
    await nothing();
    expect(await part().tend()).to.equal(0);
  });

  it('applies a move from another host, but not back over a later move', async () => {
    const sendAt = new Date(opened.clock.now() + 2 * HOUR);
    const row = await scheduled(true, { state: 'moved', sendAt });
    expect(await part().tend()).to.equal(1);
    expect(await opened.spool.delivery(row.delivery)).to.include({
      dueAt: sendAt.getTime(),
      budgetFrom: sendAt.getTime(),
      state: 'waiting',
    });
    expect((await rowOf(row))?.state).to.equal(null);
  });

  it('finishes a change of a message elsewhere once no host can send it, and keeps it for that host', async () => {
    const row = await scheduled(false);
    expect(await part().cancel(row)).to.equal('done');
    expect(await store.messages.many({}), 'found no more').to.deep.equal([]);
    expect(await part().tend()).to.equal(0);
    expect((await rowOf(row))?.state).to.equal('cancelled');
    expect(await part().claim(row.delivery)).to.deep.equal({ kind: 'cancelled' });
  });

  it('processes own messages regardless of those on hosts that are down', async () => {
    for (let n = 0; n < 450; n++) {
      await store.scheduled.insert({
        id: `0${n}`,
        account: 'acme',
        createdAt: new Date(),
        sendAt: new Date(opened.clock.now() + HOUR),
        sender: '',
        email: '',
        subject: '',
        delivery: `gone ${n}`,
        state: 'cancelled',
      });
    }
    const row = await scheduled(true, { state: 'cancelled' });
    expect(await part().tend()).to.equal(1);
    expect(await stateOf(row)).to.equal('dropped');
  });

  it('finishes a cancellation that was interrupted after the store, or after the spool', async () => {
    const row = await scheduled(true);
    await store.scheduled.change({ id: row.id }, { state: 'cancelled' });
    expect(await part().cancel(row)).to.equal('done');
    await nothing();
    const other = await scheduled(true, { state: 'cancelled' });
    await opened.spool.drop({ ids: [other.delivery] }, opened.clock.now());
    expect(await part().tend()).to.equal(1);
    await nothing();
  });

  it('gives a due message to the host that has it, repeatedly, and it can no longer be cancelled or moved', async () => {
    const row = await scheduled(true);
    await opened.clock.leap(HOUR);
    for (const first of [true, false, false])
      expect(await part().claim(row.delivery)).to.deep.equal({ kind: 'ours', first });
    expect([await part().cancel(row), await part().move(row, new Date(opened.clock.now() + HOUR))]).to.deep.equal([
      'late',
      'late',
    ]);
    expect(await stateOf(row)).to.equal('waiting');
    expect(await store.messages.many({})).to.have.length(1);
  });

  it('allows a cancellation again after a claim was returned', async () => {
    const row = await scheduled(true);
    await opened.clock.leap(HOUR);
    await part().claim(row.delivery);
    await part().release(row.delivery);
    expect(await part().cancel(row)).to.equal('done');
    await part().release(row.delivery);
    expect(await stateOf(row), 'and is not given back behind that').to.equal('dropped');
  });

  it('gives it to exactly one of concurrent senders and cancellations', async () => {
    const rows = await Promise.all(Array.from({ length: 40 }, () => scheduled(true)));
    await opened.clock.leap(HOUR);
    const outcomes = await Promise.all(
      rows.map(async (row, n) => {
        const [first, second] =
          n % 2 === 0
            ? [part().claim(row.delivery), part().cancel(row)]
            : [part().cancel(row), part().claim(row.delivery)];
        return (await Promise.all([first, second])).map((one) => (typeof one === 'string' ? one : one.kind));
      }),
    );
    for (const both of outcomes)
      expect(both, JSON.stringify(both)).to.satisfy((said: string[]) =>
        said.includes('ours') ? said.includes('late') : said.includes('done') && said.includes('cancelled'),
      );
  });

  it('does not release it before the time set on another host, and adopts that time', async () => {
    const row = await scheduled(true);
    const sendAt = new Date(opened.clock.now() + 10 * DAY);
    await store.scheduled.change({ id: row.id }, { sendAt, state: 'moved' });
    await opened.clock.leap(HOUR);
    expect(await part().claim(row.delivery)).to.deep.equal({ kind: 'moved', at: sendAt.getTime() });
    expect(await opened.spool.delivery(row.delivery)).to.include({
      dueAt: sendAt.getTime(),
      budgetFrom: sendAt.getTime(),
    });
  });

  it('keeps a message whose row is gone, but not one that was just cancelled and dropped', async () => {
    const [owed, over] = [await scheduled(true), await scheduled(true)];
    for (const { id } of [owed, over]) await store.scheduled.remove({ id });
    await opened.spool.drop({ ids: [over.delivery] }, opened.clock.now());
    await opened.clock.leap(HOUR);
    expect(await part().claim(owed.delivery)).to.deep.equal({ kind: 'ours', first: false });
    expect(await part().claim(over.delivery)).to.deep.equal({ kind: 'cancelled' });
  });

  it('changes no messages of another account on the spool', async () => {
    const row = await scheduled(true);
    await store.scheduled.change({ id: row.id }, { account: 'other' });
    await part().move({ ...row, account: 'other' }, new Date(opened.clock.now() + 3 * HOUR));
    await part().cancel({ ...row, account: 'other' });
    expect(await opened.spool.delivery(row.delivery)).to.include({ state: 'waiting', dueAt: row.sendAt.getTime() });
  });

  it('deletes sent messages after a day, and those cancelled for a lost host after a year', async () => {
    const left = await scheduled(true, { state: 'leaving' });
    await store.scheduled.insert({ ...left, id: 'cancelled', delivery: 'elsewhere', state: 'cancelled' });
    await opened.clock.leap(HOUR + DAY);
    expect(await part().tend()).to.equal(0);
    await opened.clock.advance(1);
    sure = false;
    expect(await part().tend(), 'by a clock that may be wrong').to.equal(0);
    sure = true;
    expect(await part().tend()).to.equal(1);
    expect((await store.scheduled.many({})).map(({ id }) => id)).to.deep.equal(['cancelled']);
    opened.clock.jump(364 * DAY);
    expect(await part().tend()).to.equal(1);
    expect(await store.scheduled.many({})).to.deep.equal([]);
  });
});
