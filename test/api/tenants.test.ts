import { expect } from 'chai';
import { OPERATIONS } from '../../src/api/operations/index.ts';
import { ACCOUNT, KEY, OTHER_KEY, putDeadDelivery, startApi, type ApiWorld } from '../support/api.ts';

// Two accounts: what one has must be for the other as if it were not there.

const DEAD = '01kcexamplemessage00000000-ExampleHash0';

/** For each operation that takes a name or an id: a call that names what the other has, and the same for what nobody has. */
const CALLS: Readonly<Record<string, readonly [object, object]>> = {
  '/inbound/check-domain': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/delete-domain': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/routes': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/add-route': [{ domain: 'inbound.example.com', pattern: '*', url: 'http://a.example/' }, { domain: 'nowhere.example.com', pattern: '*', url: 'http://a.example/' }],
  '/inbound/update-route': [{ id: '1.1', pattern: 'taken', url: 'http://a.example/' }, { id: '9.9', pattern: 'taken', url: 'http://a.example/' }],
  '/inbound/delete-route': [{ id: '1.1' }, { id: '9.9' }],
  '/inbound/send-raw': [{ raw_message: 'Subject: a\n\nb', to: ['mailbox-1@inbound.example.com'] }, { raw_message: 'Subject: a\n\nb', to: ['mailbox-1@nowhere.example.com'] }],
  '/inbound/route-key': [{ id: '1.1', rotate: true }, { id: '9.9', rotate: true }],
  '/inbound/test-route': [{ address: 'mailbox-1@inbound.example.com' }, { address: 'mailbox-1@nowhere.example.com' }],
  '/inbound/deliveries': [{ id: DEAD, route: '1.1' }, { id: 'none', route: '9.9' }],
  '/inbound/replay': [{ ids: [DEAD], route: '1.1' }, { ids: ['none'], route: '9.9' }],
};
/** A second claim on a domain has to be refused in words: the one thing that shows. */
const SHOWS = ['/inbound/add-domain'];
const names = (value: unknown) => JSON.stringify(value).replaceAll('nowhere.example.com', 'inbound.example.com').replaceAll('9.9', '1.1');

describe('another account', () => {
  let world: ApiWorld;
  beforeEach(async () => { world = await startApi(); putDeadDelivery(world); });
  afterEach(() => world.stop());

  const mine = async () => ({
    domains: await world.store.inboundDomains.many({ account: ACCOUNT }), routes: await world.store.inboundRoutes.many({ account: ACCOUNT }),
    keys: await world.store.signingKeys.many({ account: ACCOUNT }), deliveries: world.spool.deliveries.filter((one) => one.account === ACCOUNT),
    redirects: [...world.spool.redirects], messages: [...world.spool.messages],
  });

  it('is tried with every operation that takes a name or an id', () => {
    const naming = OPERATIONS.filter((operation) => Object.keys(operation.params.shape).some((name) => /^(id|ids|domain|route|address|to)$/.test(name))).map((operation) => operation.path);
    expect([...Object.keys(CALLS), ...SHOWS]).to.have.members(naming);
  });

  for (const [path, [ours, nobodys]] of Object.entries(CALLS)) {
    it(`cannot see, change or infer anything by ${path}`, async () => {
      const before = await mine();
      const real = await world.call(path, { key: OTHER_KEY, ...ours });
      const absent = await world.call(path, { key: OTHER_KEY, ...nobodys });
      expect(names(real.body)).to.equal(names(absent.body));
      expect(real.status).to.equal(absent.status);
      expect(await mine()).to.deep.equal(before);
    });
  }

  it('sees nothing of the first in its lists and numbers', async () => {
    expect((await world.call('/inbound/domains', { key: OTHER_KEY })).body).to.deep.equal([]);
    expect((await world.call('/inbound/deliveries', { key: OTHER_KEY })).body).to.deep.equal([]);
    expect((await world.call('/users/senders', { key: OTHER_KEY })).body).to.deep.equal([]);
    const { body } = await world.call('/users/info', { key: OTHER_KEY });
    expect(body).to.include({ username: 'other', backlog: 0 });
    expect(body.stats.all_time.sent).to.equal(0);
  });

  it('cannot replay by time what belongs to the first', async () => {
    expect((await world.call('/inbound/replay', { key: OTHER_KEY, from: '2020-01-01' })).body).to.deep.equal({ replayed: 0 });
    expect((await world.call('/inbound/replay', { key: KEY, from: '2020-01-01' })).body).to.deep.equal({ replayed: 1 });
  });

  it('has a signing key of its own for the same URL', async () => {
    await world.call('/inbound/add-domain', { key: OTHER_KEY, domain: 'other.example.com' });
    const { body: route } = await world.call('/inbound/add-route', { key: OTHER_KEY, domain: 'other.example.com', pattern: '*', url: 'https://app.example.com/hooks/mail' });
    const { body: theirs } = await world.call('/inbound/route-key', { key: OTHER_KEY, id: route.id });
    const { body: ours } = await world.call('/inbound/route-key', { id: '1.1' });
    expect(theirs.auth_key).to.not.equal(ours.auth_key);
  });
});
