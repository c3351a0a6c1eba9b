import { expect } from 'chai';
import { OPERATIONS } from '../../../src/api/operations/index.ts';
import { ACCOUNT, type ApiWorld, KEY, OTHER_KEY, putDeadDelivery, startApi } from '../../support/api.ts';
import { JOB, putHistory } from '../../support/history.ts';
import { putMessages, putWaiting } from '../../support/messages.ts';
import { PULLED, putPulled } from '../../support/pulled.ts';
import { queued } from '../../support/shared-spool.ts';
import { putBatch } from '../../support/webhooks.ts';

// Two accounts: what one has must be for the other as if it were not there.

const DEAD = '01kcexamplemessage00000000-eKx7WvL3VyFo';
const [SENT, LATER, WAITING, NOBODYS] = [
  '5c1e0d0000000000000000000000000a',
  '5c1e0d0000000000000000000000000b',
  '5c1e0d0000000000000000000000000c',
  '5c1e0d0000000000000000000000ffff',
] as const;

const [OURS, NOBODYS_URL] = ['https://app.example.com/hooks/mail', 'https://app.example.com/hooks/nobody'] as const;
const [PULLED_LEASE, NO_LEASE] = [`${PULLED}-86VOL8iLh_6y.1`, `${PULLED}-xxxxxxxxxxxx.1`] as const;
const MESSAGE = { from_email: 'news@example.com', subject: 'x', text: 'x', to: [{ email: 'ann@example.com' }] };
const [SPARE, NO_KEY] = ['a6355eee6291ff6e', 'ffffffffffffffff'];

/**
 * For each operation that takes a name or an id: a call that names what the other has, and the same for what nobody
 * has. In the order in which they are made: a deletion or a list stands before what adds the same name.
 */
const CALLS: Readonly<Record<string, readonly [object, object]>> = {
  '/templates/info': [{ name: 'Example Template' }, { name: 'No Such Template' }],
  '/templates/update': [
    { name: 'Example Template', subject: 'taken' },
    { name: 'No Such Template', subject: 'taken' },
  ],
  '/templates/publish': [{ name: 'Example Template' }, { name: 'No Such Template' }],
  '/templates/render': [
    { template_name: 'Example Template', template_content: [] },
    { template_name: 'No Such Template', template_content: [] },
  ],
  '/templates/time-series': [{ name: 'Example Template' }, { name: 'No Such Template' }],
  '/templates/delete': [{ name: 'Example Template' }, { name: 'No Such Template' }],
  '/keys/revoke': [{ id: SPARE }, { id: NO_KEY }],
  '/senders/info': [{ address: 'news@example.com' }, { address: 'news@nowhere.example.com' }],
  '/senders/time-series': [{ address: 'news@example.com' }, { address: 'news@nowhere.example.com' }],
  '/senders/add-domain': [{ domain: 'example.com' }, { domain: 'example.net' }],
  '/senders/check-domain': [{ domain: 'example.com' }, { domain: 'example.net' }],
  '/senders/verify-domain': [
    { domain: 'example.com', mailbox: 'postmaster' },
    { domain: 'example.net', mailbox: 'postmaster' },
  ],
  '/senders/domain-key': [{ domain: 'example.com' }, { domain: 'example.net' }],
  '/senders/delete-domain': [{ domain: 'example.com' }, { domain: 'example.net' }],
  '/urls/search': [{ q: 'www.example.com' }, { q: 'www.example.net' }],
  '/urls/time-series': [{ url: 'https://www.example.com/offers' }, { url: 'https://www.example.com/other' }],
  '/urls/add-tracking-domain': [{ domain: 'track.example.com' }, { domain: 'track.example.net' }],
  '/urls/check-tracking-domain': [{ domain: 'track.example.com' }, { domain: 'track.example.net' }],
  '/urls/delete-tracking-domain': [
    { domain: 'track.example.com', confirm: true },
    { domain: 'track.example.net', confirm: true },
  ],
  '/metadata/add': [{ name: 'group_id' }, { name: 'no_such_field' }],
  '/metadata/update': [
    { name: 'group_id', view_template: 'taken' },
    { name: 'no_such_field', view_template: 'taken' },
  ],
  '/metadata/delete': [{ name: 'group_id' }, { name: 'no_such_field' }],
  '/tags/info': [{ tag: 'example-tag' }, { tag: 'no-such-tag' }],
  '/tags/time-series': [{ tag: 'example-tag' }, { tag: 'no-such-tag' }],
  '/tags/delete': [{ tag: 'example-tag' }, { tag: 'no-such-tag' }],
  '/ips/info': [{ ip: '192.0.2.3' }, { ip: '198.51.100.99' }],
  '/ips/start-warmup': [{ ip: '192.0.2.3' }, { ip: '198.51.100.99' }],
  '/ips/cancel-warmup': [{ ip: '192.0.2.3' }, { ip: '198.51.100.99' }],
  '/ips/delete': [{ ip: '192.0.2.3' }, { ip: '198.51.100.99' }],
  '/ips/delete-pool': [{ pool: 'Old Pool' }, { pool: 'No Such Pool' }],
  '/ips/set-pool': [
    { ip: '192.0.2.3', pool: 'Transactional', create_pool: true },
    { ip: '198.51.100.99', pool: 'No Such Pool', create_pool: true },
  ],
  '/ips/check-custom-dns': [
    { ip: '192.0.2.1', domain: 'out.example.com' },
    { ip: '198.51.100.99', domain: 'out.example.com' },
  ],
  '/ips/set-custom-dns': [
    { ip: '192.0.2.1', domain: 'out.example.com' },
    { ip: '198.51.100.99', domain: 'out.example.com' },
  ],
  '/ips/provision': [{ pool: 'Transactional' }, { pool: 'No Such Pool' }],
  '/ips/pool-info': [{ pool: 'Transactional' }, { pool: 'No Such Pool' }],
  '/ips/create-pool': [{ pool: 'Transactional' }, { pool: 'No Such Pool' }],
  '/whitelists/add': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/whitelists/list': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/whitelists/delete': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/allowlists/add': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/allowlists/list': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/allowlists/delete': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/rejects/list': [{ email: 'gone@example.com' }, { email: 'never-listed@example.com' }],
  '/rejects/add': [{ email: 'friend@example.com' }, { email: 'never-listed@example.com' }],
  '/rejects/delete': [
    { email: 'gone@example.com', subaccount: 'cust-123' },
    { email: 'gone@example.com', subaccount: 'nobody-here' },
  ],
  '/subaccounts/list': [{ q: 'cust-123' }, { q: 'nobody-here' }],
  '/subaccounts/add': [{ id: 'cust-123' }, { id: 'nobody-here' }],
  '/subaccounts/info': [{ id: 'cust-123' }, { id: 'nobody-here' }],
  '/subaccounts/update': [{ id: 'cust-123' }, { id: 'nobody-here' }],
  '/subaccounts/delete': [{ id: 'cust-123' }, { id: 'nobody-here' }],
  '/subaccounts/pause': [{ id: 'cust-123' }, { id: 'nobody-here' }],
  '/subaccounts/resume': [{ id: 'cust-123' }, { id: 'nobody-here' }],
  '/webhooks/info': [{ id: 4 }, { id: 999 }],
  '/webhooks/update': [
    { id: 4, url: 'http://a.example/' },
    { id: 999, url: 'http://a.example/' },
  ],
  '/webhooks/delete': [{ id: 4 }, { id: 999 }],
  '/webhooks/test': [{ id: 4 }, { id: 999 }],
  '/webhooks/key': [
    { id: 4, rotate: true },
    { id: 999, rotate: true },
  ],
  '/webhooks/deliveries': [{ id: 4 }, { id: 999 }],
  '/inbound/check-domain': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/delete-domain': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/routes': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/add-route': [
    { domain: 'inbound.example.com', pattern: '*', url: 'http://a.example/' },
    { domain: 'nowhere.example.com', pattern: '*', url: 'http://a.example/' },
  ],
  '/inbound/update-route': [
    { id: '1.1', pattern: 'taken', url: 'http://a.example/' },
    { id: '9.9', pattern: 'taken', url: 'http://a.example/' },
  ],
  '/inbound/delete-route': [{ id: '1.1' }, { id: '9.9' }],
  '/inbound/send-raw': [
    { raw_message: 'Subject: a\n\nb', to: ['mailbox-1@inbound.example.com'] },
    { raw_message: 'Subject: a\n\nb', to: ['mailbox-1@nowhere.example.com'] },
  ],
  '/exports/info': [{ id: '2026-01-05 09:20:28.13842' }, { id: '2026-01-05 09:20:28.99999' }],
  '/inbound/try-route': [{ id: '1.1' }, { id: '9.9' }],
  '/inbound/route-key': [
    { id: '1.1', rotate: true },
    { id: '9.9', rotate: true },
  ],
  '/inbound/reply-address': [
    { domain: 'inbound.example.com', mailbox: 'mailbox-1', data: 'x' },
    { domain: 'nowhere.example.com', mailbox: 'mailbox-1', data: 'x' },
  ],
  '/inbound/rotate-reply-key': [
    { domain: 'inbound.example.com', revoke: true },
    { domain: 'nowhere.example.com', revoke: true },
  ],
  '/inbound/test-route': [{ address: 'mailbox-1@inbound.example.com' }, { address: 'mailbox-1@nowhere.example.com' }],
  '/inbound/domain-servers': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/inbound/deliveries': [
    { id: DEAD, route: '1.1' },
    { id: 'none', route: '9.9' },
  ],
  '/inbound/content': [{ id: DEAD }, { id: 'none' }],
  '/inbound/payload': [{ id: DEAD }, { id: 'none' }],
  '/inbound/pull': [{ id: '1.9' }, { id: '9.9' }],
  '/inbound/ack': [{ lease: PULLED_LEASE }, { lease: NO_LEASE }],
  '/inbound/nack': [{ lease: PULLED_LEASE }, { lease: NO_LEASE }],
  '/inbound/tap': [{ id: '1.1' }, { id: '9.9' }],
  '/inbound/try': [
    { id: DEAD, url: 'http://a.example/' },
    { id: 'none', url: 'http://a.example/' },
  ],
  '/messages/send-template': [
    { template_name: 'Example Template', template_content: [], message: MESSAGE },
    { template_name: 'No Such Template', template_content: [], message: MESSAGE },
  ],
  '/templates/add': [{ name: 'Example Template' }, { name: 'No Such Template' }],
  '/messages/info': [{ id: SENT }, { id: NOBODYS }],
  '/messages/content': [{ id: SENT }, { id: NOBODYS }],
  '/messages/list-scheduled': [{ to: 'later@example.com' }, { to: 'nobody@example.com' }],
  '/messages/cancel-scheduled': [{ id: LATER }, { id: NOBODYS }],
  '/messages/reschedule': [
    { id: LATER, send_at: '2026-01-08' },
    { id: NOBODYS, send_at: '2026-01-08' },
  ],
  '/messages/retry': [{ id: WAITING }, { id: NOBODYS }],
  '/messages/stop': [{ id: WAITING }, { id: NOBODYS }],
  '/messages/resend': [{ id: WAITING }, { id: NOBODYS }],
  '/messages/search': [{ tags: ['password-resets'] }, { tags: ['no-such-tag'] }],
  '/messages/search-time-series': [{ tags: ['password-resets'] }, { tags: ['no-such-tag'] }],
  '/endpoints/info': [{ url: OURS }, { url: NOBODYS_URL }],
  '/endpoints/pause': [{ url: OURS }, { url: NOBODYS_URL }],
  '/endpoints/resume': [{ url: OURS }, { url: NOBODYS_URL }],
  '/endpoints/retry': [{ url: OURS }, { url: NOBODYS_URL }],
  '/inbound/replay': [
    { ids: [DEAD], route: '1.1' },
    { ids: ['none'], route: '9.9' },
  ],
  '/inbound/drop': [
    { ids: [DEAD], route: '1.1' },
    { ids: ['none'], route: '9.9' },
  ],
  '/inbound/retry': [
    { ids: [WAITING], route: '1.1' },
    { ids: ['none'], route: '9.9' },
  ],
  '/inbound/search': [
    { query: `id:${DEAD}`, to: '2027-01-01' },
    { query: 'id:none', to: '2027-01-01' },
  ],
  '/inbound/info': [{ id: DEAD }, { id: 'none' }],
  '/inbound/refusals': [{ domain: 'inbound.example.com' }, { domain: 'nowhere.example.com' }],
  '/jobs/info': [{ id: JOB }, { id: '01kcnosuchjob0000000000000' }],
};
/** A second claim on a domain has to be refused in words: the one thing that shows. */
const SHOWS = ['/inbound/add-domain'];
/** The recipients that they name are people, and their tags filter what belongs to the one who asks. */
const PEOPLE = ['/messages/send-raw', '/exports/activity'];
const names = (value: unknown) =>
  JSON.stringify(value)
    .replaceAll(NOBODYS, SENT)
    .replaceAll(LATER, SENT)
    .replaceAll(WAITING, SENT)
    .replaceAll(NOBODYS_URL, OURS)
    .replaceAll(NO_KEY, SPARE)
    .replaceAll('with the id none', `with the id ${DEAD}`)
    .replaceAll('the id none', `the id ${DEAD}`)
    .replaceAll('01kcnosuchjob0000000000000', JOB)
    .replaceAll('hook ID 999', 'hook ID 4')
    .replaceAll('never-listed@example.com', 'friend@example.com')
    .replaceAll('nobody-here', 'cust-123')
    .replaceAll('09:20:28.99999', '09:20:28.13842')
    .replaceAll('nowhere.example.com', 'inbound.example.com')
    .replaceAll(NO_LEASE, PULLED_LEASE)
    .replaceAll('1.9', '1.1')
    .replaceAll('9.9', '1.1')
    .replaceAll('198.51.100.99', '192.0.2.3')
    .replaceAll('192.0.2.1', '192.0.2.3')
    .replaceAll(/No Such Pool|Old Pool/g, 'Transactional')
    .replaceAll('No Such Template', 'Example Template')
    .replaceAll('no-such-template', 'example-template')
    .replaceAll('no-such-tag', 'example-tag')
    .replaceAll('no_such_field', 'group_id')
    .replaceAll('example.net', 'example.com')
    .replaceAll('news@inbound.example.com', 'news@example.com');

describe('another account', () => {
  let world: ApiWorld;
  const start = async () => {
    world = await startApi({ journal: true });
    await Promise.all([
      putDeadDelivery(world),
      putBatch(world.spool, ACCOUNT),
      putMessages(world, ACCOUNT),
      putWaiting(world, ACCOUNT),
      putPulled(world, ACCOUNT),
    ]);
    await world.call('/inbound/pull');
    await putHistory(world);
  };

  const mine = async () => ({
    webhooks: await world.store.webhooks.many({ account: ACCOUNT }),
    tallies: await world.store.webhookTallies.many({ account: ACCOUNT }),
    tallies_here: await world.spool.events.tallies(),
    hooks_here: await world.spool.events.hooks(),
    templates: await world.store.templates.many({ account: ACCOUNT }),
    exports: await world.store.exportJobs.many({ account: ACCOUNT }),
    rejects: await world.store.rejects.many({ account: ACCOUNT }),
    whitelists: await world.store.whitelists.many({ account: ACCOUNT }),
    subaccounts: await world.store.subaccounts.many({ account: ACCOUNT }),
    ips: await world.store.ips.many({ account: ACCOUNT }),
    pools: await world.store.pools.many({ account: ACCOUNT }),
    placements: await world.store.placements.many({ account: ACCOUNT }),
    senders: await world.store.senderDomains.many({ account: ACCOUNT }),
    notices: await world.store.notices.many({ account: ACCOUNT }),
    links: await world.store.verifications.many({ account: ACCOUNT }),
    domains: await world.store.inboundDomains.many({ account: ACCOUNT }),
    routes: await world.store.inboundRoutes.many({ account: ACCOUNT }),
    handed: await world.store.messages.many({ account: ACCOUNT }),
    scheduled: await world.store.scheduled.many({ account: ACCOUNT }),
    events: await world.store.messageEvents.many({ account: ACCOUNT }),
    keys: await world.store.signingKeys.many({ account: ACCOUNT }),
    paused: (await world.spool.endpoints()).filter(({ account }) => account === ACCOUNT),
    api_keys: await world.store.keys.many({ account: ACCOUNT }),
    queued: (await queued(world.spool)).filter(({ deliveries }) => deliveries[0]?.account === ACCOUNT),
    links_counted: await world.store.urls.many({ account: ACCOUNT }),
    tracking: await world.store.trackingDomains.many({ account: ACCOUNT }),
    fields: await world.store.metadataFields.many({ account: ACCOUNT }),
    counters: await world.store.counters.many({ account: ACCOUNT }),
  });

  it('is tested with every operation that takes a name or an id', () => {
    const naming = OPERATIONS.filter((operation) =>
      Object.keys(operation.params.shape).some(
        (name) =>
          /^(id|ids|domain|route|address|tag|tags|to|q|ip|pool|email|subaccount|leases|template_name)$/.test(name) ||
          (/^\/(urls|metadata|endpoints|templates)\//.test(operation.path) && /^(url|name)$/.test(name)),
      ),
    ).map((operation) => operation.path);
    expect([...Object.keys(CALLS), ...SHOWS, ...PEOPLE]).to.have.members(naming);
  });

  describe('calling everything, one after another', () => {
    before(start);
    after(() => world.stop());

    for (const [path, [ours, nobodys]] of Object.entries(CALLS))
      it(`cannot see, change or infer anything by ${path}`, async () => {
        const before = await mine();
        const real = await world.call(path, { key: OTHER_KEY, ...ours });
        const absent = await world.call(path, { key: OTHER_KEY, ...nobodys });
        expect(names(real.body)).to.equal(names(absent.body));
        expect(real.status).to.equal(absent.status);
        expect(await mine()).to.deep.equal(before);
      });
  });

  describe('without data of its own', () => {
    beforeEach(start);
    afterEach(() => world.stop());

    it('sees nothing of the first account in its lists and numbers', async () => {
      expect((await world.call('/inbound/domains', { key: OTHER_KEY })).body).to.deep.equal([]);
      expect((await world.call('/inbound/deliveries', { key: OTHER_KEY })).body).to.deep.equal([]);
      expect((await world.call('/endpoints/list', { key: OTHER_KEY })).body).to.deep.equal([]);
      for (const path of [
        '/urls/list',
        '/urls/tracking-domains',
        '/metadata/list',
        '/users/senders',
        '/senders/list',
        '/senders/domains',
        '/templates/list',
        '/exports/list',
        '/webhooks/list',
        '/subaccounts/list',
        '/ips/list',
        '/tags/list',
        '/tags/all-time-series',
      ])
        expect((await world.call(path, { key: OTHER_KEY })).body, path).to.deep.equal([]);
      const { body: keys } = await world.call('/keys/list', { key: OTHER_KEY });
      expect(keys.map(({ label }: any) => label)).to.deep.equal(['example']);
      const { body: pools } = await world.call('/ips/list-pools', { key: OTHER_KEY });
      expect(pools.map(({ name, ips }: any) => [name, ips])).to.deep.equal([['Main Pool', []]]);
      expect((await world.call('/inbound/search', { key: OTHER_KEY })).body).to.deep.equal({ mails: [], next: null });
      expect((await world.call('/inbound/refusals', { key: OTHER_KEY })).body).to.deep.equal({
        refusals: [],
        by_reason: [],
        next: null,
      });
      expect((await world.call('/actions/list', { key: OTHER_KEY })).body).to.deep.equal({ actions: [], next: null });
      const { body } = await world.call('/users/info', { key: OTHER_KEY });
      expect(body).to.include({ username: 'other', backlog: 0 });
      expect(body.stats.all_time.sent).to.equal(0);
    });

    it('cannot replay mail of the first account by time, search or URL', async () => {
      for (const params of [{ from: '2020-01-01' }, { query: '*' }, { url: 'https://app.example.com/hooks/mail' }]) {
        const { body } = await world.call('/inbound/replay', { key: OTHER_KEY, ...params });
        expect(body).to.deep.equal({ matched: 0, forgotten: 0, replayed: 0, job: null });
      }
      expect((await world.call('/inbound/replay', { key: KEY, from: '2020-01-01' })).body.replayed).to.equal(1);
    });

    it('cannot drop mail of the first account by time, search or URL', async () => {
      for (const params of [{ from: '2020-01-01' }, { query: '*' }, { url: 'https://app.example.com/hooks/mail' }]) {
        const { body } = await world.call('/inbound/drop', { key: OTHER_KEY, ...params, at_most: 9 });
        expect(body).to.deep.equal({ matched: 0, dropped: 0, job: null });
      }
      const { body } = await world.call('/inbound/drop', { key: KEY, from: '2020-01-01', at_most: 9 });
      expect(body.dropped).to.equal(1);
    });

    it('has its own signing key for the same URL', async () => {
      await world.call('/inbound/add-domain', { key: OTHER_KEY, domain: 'other.example.com' });
      const { body: route } = await world.call('/inbound/add-route', {
        key: OTHER_KEY,
        domain: 'other.example.com',
        pattern: '*',
        url: 'https://app.example.com/hooks/mail',
      });
      const { body: theirs } = await world.call('/inbound/route-key', { key: OTHER_KEY, id: route.id });
      const { body: ours } = await world.call('/inbound/route-key', { id: '1.1' });
      expect(theirs.auth_key).to.not.equal(ours.auth_key);
    });
  });
});
