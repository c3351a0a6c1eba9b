import { expect } from 'chai';
import { type ApiWorld, startApi } from '../../support/api.ts';

describe('a message waiting for its next attempt', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const send = async (params: object = {}): Promise<string> => {
    const message = { text: 'x', from_email: 'news@example.com', to: [{ email: 'ann@example.com' }] };
    return (await world.call('/messages/send', { message, ...params })).body[0]._id;
  };
  const delivery = async (id: string) => {
    const row = await world.store.messages.one({ id });
    return world.spool.delivery(row?.delivery ?? '');
  };

  it('is due now after a retry', async () => {
    const id = await send();
    const waiting = await delivery(id);
    await world.spool.settle({
      deliveryId: waiting?.id ?? '',
      attempt: null,
      state: 'waiting',
      dueAt: world.clock.now() + 600_000,
      parked: false,
      at: world.clock.now(),
    });
    expect((await delivery(id))?.dueAt).to.equal(world.clock.now() + 600_000);
    expect((await world.call('/messages/retry', { id })).body).to.deep.equal({ _id: id });
    expect((await delivery(id))?.dueAt).to.equal(world.clock.now());
  });

  it('ends when it is cancelled, and can then be neither retried nor cancelled', async () => {
    const id = await send();
    expect((await world.call('/messages/stop', { id })).body).to.deep.equal({ _id: id });
    expect((await delivery(id))?.state).to.equal('dropped');
    for (const path of ['/messages/retry', '/messages/stop']) {
      const { status, body } = await world.call(path, { id });
      expect([status, body.name, body.message]).to.deep.equal([
        404,
        'Unknown_Message',
        `No message exists with the id ${id} that waits`,
      ]);
    }
  });

  it('is cancelled or moved by other operations while it is scheduled', async () => {
    const id = await send({ send_at: '2026-01-07 00:00:00' });
    for (const path of ['/messages/retry', '/messages/stop']) {
      const { status, body } = await world.call(path, { id });
      expect([status, body.name]).to.deep.equal([422, 'ValidationError']);
      expect(body.message).to.include('/messages/cancel-scheduled');
    }
    expect((await delivery(id))?.state).to.equal('waiting');
  });
});
