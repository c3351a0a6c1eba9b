import { expect } from 'chai';
import { startApi, type ApiWorld } from '../support/api.ts';

describe('scheduled messages', () => {
  let world: ApiWorld;
  beforeEach(async () => { world = await startApi(); });
  afterEach(() => world.stop());

  const schedule = async (email: string, sendAt: string): Promise<string> => {
    const { body } = await world.call('/messages/send', { message: { text: 'x', subject: 'Later', from_email: 'news@example.com', to: [{ email }], tags: ['later'] }, send_at: sendAt });
    expect(body[0].status).to.equal('scheduled');
    return body[0]._id;
  };
  const listed = async (params: object = {}): Promise<string[]> => (await world.call('/messages/list-scheduled', params)).body.map(({ _id: id }: { _id: string }) => id);
  const delivery = (id: string) => world.store.scheduled.one({ id }).then((row) => world.spool.deliveries.find((one) => one.id === row?.delivery));

  it('are listed by their time, or by recipient in any case', async () => {
    const second = await schedule('Ann@example.com', '2026-01-07 00:00:00');
    const first = await schedule('bob@example.com', '2026-01-06 00:00:00');
    expect(await listed()).to.deep.equal([first, second]);
    expect(await listed({ to: 'ann@EXAMPLE.com' })).to.deep.equal([second]);
    expect(await listed({ to: 'nobody@example.com' })).to.deep.equal([]);
    expect((await world.call('/messages/list-scheduled', { to: 'ann@example.com' })).body).to.deep.equal([
      { _id: second, created_at: '2026-01-05 12:00:00', send_at: '2026-01-07 00:00:00', from_email: 'news@example.com', to: 'ann@example.com', subject: 'Later' },
    ]);
  });

  it('are none any more when their time has come', async () => {
    const id = await schedule('ann@example.com', '2026-01-05 12:00:30');
    await world.clock.advance(30_000);
    expect(await listed()).to.deep.equal([]);
    expect((await world.call('/messages/cancel-scheduled', { id })).body.name).to.equal('Unknown_Message');
    expect((await world.call('/messages/reschedule', { id, send_at: '2026-01-06 00:00:00' })).body.name).to.equal('Unknown_Message');
  });

  it('are never sent and found no more when they are cancelled', async () => {
    const id = await schedule('ann@example.com', '2026-01-06 00:00:00');
    const waiting = await delivery(id);
    expect((await world.call('/messages/cancel-scheduled', { id })).body).to.include({ _id: id, send_at: '2026-01-06 00:00:00' });
    expect(world.spool.deliveries.find((one) => one.id === waiting?.id)?.state).to.equal('dropped');
    expect(await listed()).to.deep.equal([]);
    expect((await world.call('/messages/info', { id })).body.name).to.equal('Unknown_Message');
    expect(await world.store.messageTags.many({})).to.deep.equal([]);
    expect((await world.call('/messages/cancel-scheduled', { id })).body.name).to.equal('Unknown_Message');
  });

  it('are sent at another time, with the time to be tried that they would have had', async () => {
    const id = await schedule('ann@example.com', '2026-01-06 00:00:00');
    expect((await world.call('/messages/reschedule', { id, send_at: '2026-02-01 00:00:00' })).body).to.include({ _id: id, send_at: '2026-02-01 00:00:00' });
    expect(await delivery(id)).to.include({ dueAt: Date.UTC(2026, 1, 1), budgetFrom: Date.UTC(2026, 1, 1), state: 'waiting' });
    expect((await world.call('/messages/list-scheduled')).body[0].send_at).to.equal('2026-02-01 00:00:00');
  });

  it('are sent at once with a time that has passed', async () => {
    const id = await schedule('ann@example.com', '2026-01-06 00:00:00');
    expect((await world.call('/messages/reschedule', { id, send_at: '2020-01-01 00:00:00' })).status).to.equal(200);
    expect((await delivery(id))?.dueAt).to.equal(world.clock.now());
    expect(await listed()).to.deep.equal([]);
  });

  it('that wait on the spool of another host are noted for it, and listed as they will be', async () => {
    const [cancelled, moved] = [await schedule('ann@example.com', '2026-01-06 00:00:00'), await schedule('bob@example.com', '2026-01-06 00:00:00')];
    world.spool.deliveries.length = 0;
    expect((await world.call('/messages/cancel-scheduled', { id: cancelled })).status).to.equal(200);
    expect((await world.call('/messages/reschedule', { id: moved, send_at: '2026-01-08 00:00:00' })).body.send_at).to.equal('2026-01-08 00:00:00');
    expect(await listed()).to.deep.equal([moved]);
    expect((await world.call('/messages/cancel-scheduled', { id: cancelled })).body.name).to.equal('Unknown_Message');
    expect((await world.store.scheduled.many({}, { sort: 'id' })).map(({ wish }) => wish)).to.have.members(['cancel', 'move']);
  });
});
