import { expect } from 'chai';
import type { Draft } from '../../../src/mail/outgoing.ts';
import { ACCOUNT, type ApiWorld, OTHER_KEY, startApi } from '../../support/api.ts';
import { putMessages, putSubmitted } from '../../support/messages.ts';
import { settled } from '../../support/spool.ts';

const LATER = '5c1e0d0000000000000000000000000b';
const ID = '5c1e0d000000000000000000000000aa';
const HOUR_MS = 3_600_000;

describe('a message that was submitted', () => {
  let world: ApiWorld;
  let delivery: string;
  beforeEach(async () => {
    world = await startApi({ journal: true });
  });
  afterEach(() => world.stop());

  /** A message that was tried at 09:30 and is tried again in an hour. */
  async function putOff(given: Parameters<typeof putSubmitted>[3] = {}) {
    delivery = await putSubmitted(world, ACCOUNT, ID, given);
    const queued = await world.spool.delivery(delivery);
    if (!queued) throw new Error('it is not there');
    await world.spool.settle({
      ...settled(world.clock, queued),
      state: 'waiting',
      dueAt: world.clock.now() + HOUR_MS,
    });
  }
  const call = (name: string, params: object = {}) => world.call(`/messages/${name}`, { id: ID, ...params });
  const done = async () => {
    await world.journal.flush();
    const { actions } = (await world.call('/actions/list')).body;
    return actions.map(({ by, what, detail }: any) => [by, what, detail]);
  };

  describe('and was put off', () => {
    beforeEach(() => putOff());

    it('is due at once when it is tried, and the list of actions says who did that', async () => {
      expect((await call('retry')).body).to.deep.equal({
        _id: ID,
        state: 'waiting',
        next_attempt_at: '2026-01-05 12:00:00',
      });
      expect((await world.spool.delivery(delivery))?.dueAt).to.equal(world.clock.now());
      expect(await done()).to.deep.equal([['Exam', 'message retried', ID]]);
    });

    it('is rejected when it is stopped, with an event that says why, and its address is not listed', async () => {
      expect((await call('stop')).body).to.deep.equal({ _id: ID, state: 'dropped', next_attempt_at: null });
      const { body } = await call('info');
      expect([body.state, body.delivery.state]).to.deep.equal(['rejected', 'dropped']);
      const [event] = await world.store.messageEvents.many({ message: ID });
      expect(event).to.deep.include({ kind: 'reject', detail: { reason: 'rule', diag: 'stopped by its account' } });
      expect((await world.call('/rejects/list', { email: 'reader@example.com' })).body).to.deep.equal([]);
      expect(await done()).to.deep.equal([['Exam', 'message stopped', ID]]);
    });

    it('is stopped to the end by a second call if the first one was interrupted', async () => {
      await world.spool.drop({ ids: [delivery] }, world.clock.now());
      expect((await call('info')).body.state).to.equal('queued');
      expect((await call('stop')).status).to.equal(200);
      expect((await call('info')).body.state).to.equal('rejected');
      const again = await call('stop');
      expect([again.status, again.body.message]).to.deep.equal([
        422,
        'Validation error: {"id":"It does not wait on this host: it was sent, given up or stopped before, or another host has it"}',
      ]);
      expect(await world.store.messageEvents.many({ message: ID })).to.have.length(1);
    });

    it('is not there for another account', async () => {
      for (const name of ['retry', 'stop', 'resend'])
        expect((await call(name, { key: OTHER_KEY })).body.name, name).to.equal('Unknown_Message');
      expect((await world.spool.delivery(delivery))?.dueAt).to.equal(world.clock.now() + HOUR_MS);
    });
  });

  it('is neither tried nor stopped when it was sent, or is not on this host', async () => {
    await putOff();
    const queued = await world.spool.delivery(delivery);
    if (queued) await world.spool.settle(settled(world.clock, queued));
    for (const name of ['retry', 'stop']) {
      expect((await call(name)).body.message, name).to.contain('It does not wait on this host');
      await world.store.messages.change({ id: ID }, { delivery: 'on-another-host' });
    }
    expect((await call('info')).body.state).to.equal('queued');
  });

  it('keeps its time while it is scheduled', async () => {
    await putMessages(world, ACCOUNT);
    for (const name of ['retry', 'stop'])
      expect((await call(name, { id: LATER })).body.message, name).to.contain('/messages/cancel-scheduled');
    expect((await world.call('/messages/list-scheduled')).body).to.have.length(1);
  });

  describe('and is sent again', () => {
    const draft: Partial<Draft> = { html: '<p>Hi *|NAME|*</p>' };
    const outgoing = { tags: ['billing'], globalVars: [{ name: 'name', content: 'Ann' }] };

    it('becomes a new message with the same content and options, and leaves the first as it was', async () => {
      await putOff({ draft, outgoing });
      const { body } = await call('resend');
      expect(body).to.include({ email: 'reader@example.com', status: 'queued' });
      expect(body._id).to.not.equal(ID);
      const { body: shown } = await call('content', { id: body._id });
      expect(shown).to.deep.include({ html: '<p>Hi Ann</p>', tags: ['billing'] });
      expect((await call('info')).body).to.include({ state: 'queued' });
      expect(await done()).to.deep.equal([['Exam', 'message sent again', `${ID} as ${body._id}`]]);
    });

    it('passes the checks of every message: the list of rejected addresses, the sender, the subaccount', async () => {
      await putOff({ draft, outgoing: { subaccount: 'shop' } });
      expect((await call('resend')).body.name).to.equal('Unknown_Subaccount');
      await world.call('/subaccounts/add', { id: 'shop' });
      expect((await call('resend')).body.status).to.equal('queued');
      await world.call('/rejects/add', { email: 'reader@example.com' });
      expect((await call('resend')).body).to.include({ status: 'rejected', reject_reason: 'custom' });
    });

    it('is not known any more when its content is forgotten', async () => {
      await putOff();
      await world.store.messages.change({ id: ID }, { delivery: 'on-another-host' });
      expect((await call('resend')).body.message).to.contain('its content is not kept any more');
    });
  });
});
