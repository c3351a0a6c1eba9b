import { expect } from 'chai';
import { type ApiWorld, startApi } from '../../support/api.ts';
import { empty } from '../../support/shared-spool.ts';

describe('scheduled messages', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const schedule = async (email: string, sendAt: string): Promise<string> => {
    const { body } = await world.call('/messages/send', {
      message: { text: 'x', subject: 'Later', from_email: 'news@example.com', to: [{ email }], tags: ['later'] },
      send_at: sendAt,
    });
    expect(body[0].status).to.equal('scheduled');
    return body[0]._id;
  };
  const listed = async (params: object = {}): Promise<string[]> =>
    (await world.call('/messages/list-scheduled', params)).body.map(({ _id: id }: { _id: string }) => id);
  const delivery = (id: string) =>
    world.store.scheduled.one({ id }).then((row) => world.spool.delivery(row?.delivery ?? ''));

  it('are listed by time, or by recipient in any case', async () => {
    const second = await schedule('Ann@example.com', '2026-01-07 00:00:00');
    const first = await schedule('bob@example.com', '2026-01-06 00:00:00');
    expect(await listed()).to.deep.equal([first, second]);
    expect(await listed({ to: 'ann@EXAMPLE.com' })).to.deep.equal([second]);
    expect(await listed({ to: 'nobody@example.com' })).to.deep.equal([]);
    expect((await world.call('/messages/list-scheduled', { to: 'ann@example.com' })).body).to.deep.equal([
      {
        _id: second,
        created_at: '2026-01-05 12:00:00',
        send_at: '2026-01-07 00:00:00',
        from_email: 'news@example.com',
        to: 'ann@example.com',
        subject: 'Later',
      },
    ]);
  });

  it('are not listed after their time, and cannot be cancelled or moved once they are claimed', async () => {
    const id = await schedule('ann@example.com', '2026-01-05 12:00:30');
    await world.clock.advance(30_000);
    expect(await listed()).to.deep.equal([]);
    await world.store.scheduled.change({ id }, { state: 'leaving' });
    for (const [path, params] of [
      ['/messages/cancel-scheduled', { id }],
      ['/messages/reschedule', { id, send_at: '2026-01-06 00:00:00' }],
    ] as const) {
      const { status, body } = await world.call(path, params);
      expect([status, body.name, body.message]).to.deep.equal([
        404,
        'Unknown_Message',
        `It is too late: the message ${id} is being sent, or was sent`,
      ]);
    }
    expect((await delivery(id))?.state).to.equal('waiting');
  });

  it('can be cancelled after their time while something delays them', async () => {
    const id = await schedule('ann@example.com', '2026-01-05 12:00:30');
    await world.clock.advance(30_000);
    expect((await world.call('/messages/cancel-scheduled', { id })).status).to.equal(200);
    expect((await world.spool.list({}, 1))[0]?.state).to.equal('dropped');
  });

  it('are never sent or found after they are cancelled', async () => {
    const id = await schedule('ann@example.com', '2026-01-06 00:00:00');
    const waiting = await delivery(id);
    expect((await world.call('/messages/cancel-scheduled', { id })).body).to.include({
      _id: id,
      send_at: '2026-01-06 00:00:00',
    });
    expect((await world.spool.delivery(waiting?.id ?? ''))?.state).to.equal('dropped');
    expect(await listed()).to.deep.equal([]);
    expect((await world.call('/messages/info', { id })).body.name).to.equal('Unknown_Message');
    expect(await world.store.messageTags.many({})).to.deep.equal([]);
    expect((await world.call('/messages/cancel-scheduled', { id })).body.name).to.equal('Unknown_Message');
  });

  it('are sent at another time, from which the retry period starts', async () => {
    const id = await schedule('ann@example.com', '2026-01-06 00:00:00');
    expect((await world.call('/messages/reschedule', { id, send_at: '2026-02-01 00:00:00' })).body).to.include({
      _id: id,
      send_at: '2026-02-01 00:00:00',
    });
    expect(await delivery(id)).to.include({
      dueAt: Date.UTC(2026, 1, 1),
      budgetFrom: Date.UTC(2026, 1, 1),
      state: 'waiting',
    });
    expect((await world.call('/messages/list-scheduled')).body[0].send_at).to.equal('2026-02-01 00:00:00');
  });

  it('are sent at once if moved to a past time', async () => {
    const id = await schedule('ann@example.com', '2026-01-06 00:00:00');
    expect((await world.call('/messages/reschedule', { id, send_at: '2020-01-01 00:00:00' })).status).to.equal(200);
    expect((await delivery(id))?.dueAt).to.equal(world.clock.now());
    expect(await listed()).to.deep.equal([]);
  });

  it('on the spool of another host: changes are stored for it and listed at once', async () => {
    const [cancelled, moved] = [
      await schedule('ann@example.com', '2026-01-06 00:00:00'),
      await schedule('bob@example.com', '2026-01-06 00:00:00'),
    ];
    await empty(world.spool);
    expect((await world.call('/messages/cancel-scheduled', { id: cancelled })).status).to.equal(200);
    expect(
      (await world.call('/messages/reschedule', { id: moved, send_at: '2026-01-08 00:00:00' })).body.send_at,
    ).to.equal('2026-01-08 00:00:00');
    expect(await listed()).to.deep.equal([moved]);
    expect((await world.call('/messages/info', { id: cancelled })).body.name, 'found no more').to.equal(
      'Unknown_Message',
    );
    expect(
      (await world.call('/messages/cancel-scheduled', { id: cancelled })).status,
      'to cancel it again is no fault',
    ).to.equal(200);
    expect(
      (await world.call('/messages/reschedule', { id: cancelled, send_at: '2026-01-08 00:00:00' })).body.message,
    ).to.match(/^No message exists/);
    expect((await world.store.scheduled.many({}, { sort: 'id' })).map(({ state }) => state)).to.have.members([
      'cancelled',
      'moved',
    ]);
  });
});
