import { expect } from 'chai';
import type { Draft } from '../../../src/mail/outgoing.ts';
import { ACCOUNT, type ApiWorld, startApi } from '../../support/api.ts';
import { putSubmitted } from '../../support/messages.ts';

const ID = '5c1e0d000000000000000000000000aa';

describe('a submitted message', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi({ journal: true });
  });
  afterEach(() => world.stop());

  const putOff = (given: Parameters<typeof putSubmitted>[3] = {}) => putSubmitted(world, ACCOUNT, ID, given);
  const call = (name: string, params: object = {}) => world.call(`/messages/${name}`, { id: ID, ...params });
  const done = async () => {
    await world.journal.flush();
    const { actions } = (await world.call('/actions/list')).body;
    return actions.map(({ by, what, detail }: any) => [by, what, detail]);
  };

  describe('sent again', () => {
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

    it('passes the checks of every message: suppression, sender, subaccount', async () => {
      await putOff({ draft, outgoing: { subaccount: 'shop' } });
      expect((await call('resend')).body.name).to.equal('Unknown_Subaccount');
      await world.call('/subaccounts/add', { id: 'shop' });
      expect((await call('resend')).body.status).to.equal('queued');
      await world.call('/rejects/add', { email: 'reader@example.com' });
      expect((await call('resend')).body).to.include({ status: 'rejected', reject_reason: 'custom' });
    });

    it('is not found after its content has expired', async () => {
      await putOff();
      await world.store.messages.change({ id: ID }, { delivery: 'on-another-host' });
      expect((await call('resend')).body.message).to.contain('its content is not kept any more');
    });
  });
});
