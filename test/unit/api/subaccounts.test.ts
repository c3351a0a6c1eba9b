import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, startApi } from '../../support/api.ts';
import { putCounts } from '../../support/counts.ts';
import { rejectRow, subaccountRow } from '../../support/lists.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

describe('the subaccounts API', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const ok = async (path: string, params: object = {}) => {
    const { status, body } = await world.call(`/subaccounts/${path}`, params);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  };
  const ids = async (params: object = {}) => (await ok('list', params)).map(({ id }: { id: string }) => id);
  const refused = async (path: string, params: object) => {
    const { status, body } = await world.call(`/subaccounts/${path}`, params);
    return { status, name: body.name, message: body.message };
  };
  const put = (slug: string, fields: Parameters<typeof subaccountRow>[2] = {}, account = ACCOUNT) =>
    world.store.subaccounts.insert(subaccountRow(account, slug, fields));
  /** Mail that the subaccount sent some time ago. */
  const sent = (count: number, agoMs: number, more: Parameters<typeof putCounts>[4] = {}) =>
    putCounts(
      world.store,
      ACCOUNT,
      'subaccount',
      'cust-123',
      { sent: count, ...more },
      new Date(world.clock.now() - agoMs),
    );

  describe('/subaccounts/add', () => {
    it('creates a subaccount that has not sent yet', async () => {
      expect(
        await ok('add', { id: 'new one/1', name: 'ABC Widgets, Inc.', notes: 'Free plan', custom_quota: 42 }),
      ).to.deep.equal({
        id: 'new one/1',
        name: 'ABC Widgets, Inc.',
        custom_quota: 42,
        status: 'active',
        reputation: 50,
        created_at: '2026-01-05 12:00:00',
        first_sent_at: null,
        sent_weekly: 0,
        sent_monthly: 0,
        sent_total: 0,
      });
      expect(await ok('info', { id: 'new one/1' })).to.include({
        notes: 'Free plan',
        sent_hourly: 0,
        hourly_quota: 42,
      });
    });

    it('needs only an id; the quota then follows the reputation', async () => {
      expect(await ok('add', { id: 'bare', name: null, notes: null, custom_quota: null })).to.include({
        name: null,
        custom_quota: null,
      });
      expect(await ok('info', { id: 'bare' })).to.include({ notes: '', hourly_quota: 250 });
    });

    it('rejects an existing id, whose record does not change', async () => {
      expect(await refused('add', { id: 'cust-123', name: 'Another' })).to.deep.equal({
        status: 422,
        name: 'ValidationError',
        message: 'Validation error: {"id":"A subaccount with this id already exists"}',
      });
      expect(await ok('info', { id: 'cust-123' })).to.include({ name: 'ABC Widgets, Inc.' });
      expect(await ok('add', { id: 'CUST-123' }), 'letters count as they are').to.include({ id: 'CUST-123' });
    });

    it('lets one of 50 concurrent callers have an id', async () => {
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, i) => world.call('/subaccounts/add', { id: 'wanted', name: `caller ${i}` })),
      );
      expect(answers.filter(({ status }) => status === 200)).to.have.length(1);
      expect(await ids({ q: 'wanted' })).to.deep.equal(['wanted']);
    });

    it('accepts an id of up to 255 characters, a name of up to 1024, a quota from 1', async () => {
      const id = 'i'.repeat(255);
      expect(await ok('add', { id, name: 'n'.repeat(1024), custom_quota: 1 })).to.deep.include({ id, custom_quota: 1 });
      expect(await ok('update', { id, name: 'm'.repeat(1024), custom_quota: Number.MAX_SAFE_INTEGER })).to.deep.include(
        { custom_quota: Number.MAX_SAFE_INTEGER },
      );
      for (const [field, value] of Object.entries({
        id: 'i'.repeat(256),
        name: 'n'.repeat(1025),
        notes: 'n'.repeat(10_001),
        custom_quota: 0,
      })) {
        const { status, message } = await refused('add', { id: 'x', [field]: value });
        expect(status, field).to.equal(422);
        expect(JSON.parse(message.slice('Validation error: '.length))).to.have.all.keys(field);
      }
      for (const value of [-1, 1.5, 1e300, 'twelve', true, {}])
        expect(await refused('update', { id: 'cust-123', custom_quota: value })).to.include({ status: 422 });
    });

    it('keeps names and notes as given, and an id that is valid in a header', async () => {
      expect(await ok('add', { id: 'kundin 📮 Ü', name: '<b>\r\n$gt', notes: 'a\r\nb\t📮' })).to.include({
        id: 'kundin 📮 Ü',
        name: '<b>\r\n$gt',
      });
      expect(await ok('info', { id: 'kundin 📮 Ü' })).to.include({ notes: 'a\r\nb\t📮' });
      for (const id of ['a\r\nX-Injected: 1', '\t', ' ', '', 'a\u2028b'])
        expect(await refused('add', { id })).to.include({ status: 422 });
    });

    it('starts without the numbers and rejects of an earlier one of this id', async () => {
      await putCounts(world.store, ACCOUNT, 'subaccount', 'again', { sent: 5 }, new Date(world.clock.now()));
      await world.store.rejects.insert(rejectRow(ACCOUNT, 'ann@example.com', { subaccount: 'again' }));
      expect(await ok('add', { id: 'again' })).to.include({ sent_total: 0 });
      expect((await world.call('/rejects/list', { subaccount: 'again' })).body).to.deep.equal([]);
    });
  });

  describe('/subaccounts/info', () => {
    it('counts by hour, week from Monday, month from the 1st, and in all', async () => {
      // It is Monday, 5 January 2026, 12:00.
      await sent(1, 0);
      await sent(2, 11 * HOUR_MS);
      await sent(4, 13 * HOUR_MS);
      await sent(8, 5 * DAY_MS);
      await sent(16, 40 * DAY_MS);
      expect(await ok('info', { id: 'cust-123' })).to.deep.include({
        sent_hourly: 1,
        sent_weekly: 3,
        sent_monthly: 7,
        sent_total: 31,
        first_sent_at: '2026-01-05 12:00:00',
        last_30_days: {
          sent: 15,
          hard_bounces: 0,
          soft_bounces: 0,
          rejects: 0,
          complaints: 0,
          unsubs: 0,
          opens: 0,
          unique_opens: 0,
          clicks: 0,
          unique_clicks: 0,
        },
      });
    });

    it('counts the last 60 minutes exactly, not by the hour', async () => {
      await sent(100, 1);
      const hourly = async () => (await ok('info', { id: 'cust-123' })).sent_hourly;
      expect(await hourly(), 'at 12:00').to.equal(100);
      await world.clock.advance(HOUR_MS / 4);
      expect(await hourly(), 'at 12:15').to.equal(100);
      await sent(10, 0);
      expect(await hourly(), 'at 12:15').to.equal(110);
      await world.clock.advance((HOUR_MS / 4) * 3);
      expect(await hourly(), 'at 13:00').to.equal(10);
      await world.clock.advance(HOUR_MS);
      expect(await hourly(), 'at 14:00').to.equal(0);
    });

    it('shows when it first sent, and null if only other events were counted', async () => {
      await putCounts(world.store, ACCOUNT, 'subaccount', 'cust-123', { rejects: 1 }, new Date(world.clock.now()));
      expect(await ok('info', { id: 'cust-123' })).to.include({ first_sent_at: null });
      await put('early', { firstSentAt: new Date('2025-03-01T00:00:00Z') });
      expect(await ok('info', { id: 'early' })).to.include({ first_sent_at: '2025-03-01 00:00:00' });
    });

    it('has its own reputation and quota, from this month and the last', async () => {
      const { reputation: fresh, hourly_quota: quota } = await ok('info', { id: (await ok('add', { id: 'good' })).id });
      expect([fresh, quota]).to.deep.equal([50, 250]);
      await putCounts(world.store, ACCOUNT, 'subaccount', 'good', { sent: 5000 }, new Date('2025-12-20T00:00:00Z'));
      const good = await ok('info', { id: 'good' });
      expect(good.reputation).to.be.above(90);
      expect(good.hourly_quota).to.be.above(quota);
      await sent(1000, 0, { complaints: 50 });
      const bad = await ok('info', { id: 'cust-123' });
      expect(bad.reputation).to.be.below(20);
      expect(bad.hourly_quota, 'set by hand').to.equal(42);
    });
  });

  describe('/subaccounts/list', () => {
    beforeEach(async () => {
      await put('Zeta', { name: 'alpha' });
      await put('alpha-2', { name: 'Zeta' });
      await put('100%', { name: 'a_b' });
    });

    it('lists by id', async () => {
      expect(await ids()).to.deep.equal(['100%', 'alpha-2', 'cust-123', 'Zeta']);
      expect((await ok('list')).find(({ id }: { id: string }) => id === 'cust-123')).to.have.all.keys(
        'id',
        'name',
        'custom_quota',
        'status',
        'reputation',
        'created_at',
        'first_sent_at',
        'sent_weekly',
        'sent_monthly',
        'sent_total',
      );
    });

    it('finds by the prefix of an id or of a name, in any case, each once', async () => {
      expect(await ids({ q: 'ALPHA' })).to.deep.equal(['alpha-2', 'Zeta']);
      expect(await ids({ q: 'zeta' })).to.deep.equal(['Zeta', 'alpha-2']);
      expect(await ids({ q: 'abc w' })).to.deep.equal(['cust-123']);
      await put('same', { name: 'same' });
      expect(await ids({ q: 'same' })).to.deep.equal(['same']);
      expect(await ids({ q: '' })).to.have.length(5);
      for (const q of ['eta', 'nothing', '%', '_', '.*', '$gt', '100_']) expect(await ids({ q }), q).to.deep.equal([]);
      expect(await ids({ q: '100%' })).to.deep.equal(['100%']);
      expect(await ids({ q: 'a_' })).to.deep.equal(['100%']);
    });

    it('finds a renamed one by the new name only', async () => {
      await ok('update', { id: 'cust-123', name: 'Übersee GmbH' });
      expect(await ids({ q: 'ÜBER' })).to.deep.equal(['cust-123']);
      expect(await ids({ q: 'abc' })).to.deep.equal([]);
    });

    it('returns 1000 of 1001 with their numbers, in few queries', async () => {
      await world.stop();
      let queries = 0;
      world = await startApi({
        store: (real) => ({
          ...real,
          of: (account) => {
            const own = real.of(account);
            const counted =
              <A extends unknown[], T>(work: (...args: A) => T) =>
              (...args: A) => {
                queries++;
                return work(...args);
              };
            return {
              ...own,
              subaccounts: { ...own.subaccounts, many: counted(own.subaccounts.many) },
              counters: { ...own.counters, one: counted(own.counters.one), many: counted(own.counters.many) },
            };
          },
        }),
      });
      const slug = (i: number) => `a${String(i).padStart(4, '0')}`;
      await Promise.all(Array.from({ length: 1001 }, (_, i) => put(slug(i), { name: i === 1000 ? slug(0) : '' })));
      await putCounts(world.store, ACCOUNT, 'subaccount', slug(999), { sent: 7 }, new Date(world.clock.now()));
      const found = await ok('list');
      expect(queries).to.be.at.most(5);
      expect(found).to.have.length(1000);
      expect(found[0]).to.include({ id: slug(0), sent_total: 0 });
      expect(found[999]).to.include({
        id: slug(999),
        sent_weekly: 7,
        sent_monthly: 7,
        sent_total: 7,
        first_sent_at: '2026-01-05 12:00:00',
      });
      expect(await ids({ q: 'a' }), 'ids come before names')
        .to.have.length(1000)
        .and.not.include('cust-123');
    });
  });

  describe('/subaccounts/update', () => {
    it('changes only the given fields', async () => {
      await ok('update', { id: 'cust-123', notes: 'paid' });
      expect(await ok('info', { id: 'cust-123' })).to.include({
        name: 'ABC Widgets, Inc.',
        notes: 'paid',
        custom_quota: 42,
      });
      await ok('update', { id: 'cust-123', name: null, notes: null, custom_quota: 7 });
      expect(await ok('info', { id: 'cust-123' })).to.include({
        name: 'ABC Widgets, Inc.',
        notes: 'paid',
        custom_quota: 7,
        hourly_quota: 7,
      });
      expect(await ok('update', { id: 'cust-123' })).to.include({ custom_quota: 7 });
      expect(await ok('update', { id: 'cust-123', name: '', notes: '' })).to.include({ name: null });
    });

    it('removes a custom quota, so that reputation decides again', async () => {
      await ok('update', { id: 'cust-123', custom_quota: 7 });
      expect(await ok('update', { id: 'cust-123', remove_custom_quota: true })).to.include({ custom_quota: null });
      expect(await ok('info', { id: 'cust-123' })).to.include({ custom_quota: null, hourly_quota: 250 });
      await ok('update', { id: 'cust-123', custom_quota: 8, remove_custom_quota: false });
      expect(await refused('update', { id: 'cust-123', custom_quota: 9, remove_custom_quota: true })).to.include({
        status: 422,
      });
      expect(await ok('info', { id: 'cust-123' })).to.include({ custom_quota: 8, hourly_quota: 8 });
    });

    it('loses none of 50 concurrent changes', async () => {
      await Promise.all(
        Array.from({ length: 50 }, (_, i) =>
          ok('update', {
            id: 'cust-123',
            ...(i % 3 === 0 ? { name: 'N' } : i % 3 === 1 ? { notes: 'M' } : { custom_quota: 9 }),
          }),
        ),
      );
      expect(await ok('info', { id: 'cust-123' })).to.include({ name: 'N', notes: 'M', custom_quota: 9 });
    });
  });

  describe('/subaccounts/pause and resume', () => {
    it('change the status; a repeat changes nothing', async () => {
      const row = () => world.store.subaccounts.one({ account: ACCOUNT, slug: 'cust-123' });
      expect(await ok('resume', { id: 'cust-123' })).to.include({ status: 'active' });
      expect(await ok('pause', { id: 'cust-123' })).to.include({ status: 'paused' });
      const since = (await row())?.pausedAt;
      await world.clock.advance(HOUR_MS);
      expect(await ok('pause', { id: 'cust-123' })).to.include({ status: 'paused' });
      expect((await row())?.pausedAt, 'its 3 days count from the first time').to.deep.equal(since);
      expect(await ok('resume', { id: 'cust-123' })).to.include({ status: 'active' });
      expect((await row())?.pausedAt).to.equal(null);
    });

    it('end in one of both states for 50 concurrent callers', async () => {
      await Promise.all(Array.from({ length: 50 }, (_, i) => ok(i % 2 === 0 ? 'pause' : 'resume', { id: 'cust-123' })));
      const row = await world.store.subaccounts.one({ account: ACCOUNT, slug: 'cust-123' });
      expect(row?.pausedAt !== null).to.equal(row?.status === 'paused');
      await ok('pause', { id: 'cust-123' });
      expect(await ok('info', { id: 'cust-123' })).to.include({ status: 'paused' });
    });
  });

  describe('/subaccounts/delete', () => {
    it('returns the last record, deletes its numbers and rejects, and keeps its mail', async () => {
      await sent(3, 0);
      for (const [email, expired] of [
        ['a@example.com', false],
        ['b@example.com', true],
      ] as const)
        await world.store.rejects.insert(rejectRow(ACCOUNT, email, { subaccount: 'cust-123', expired }));
      const message = {
        id: 'f'.repeat(32),
        account: ACCOUNT,
        createdAt: new Date(world.clock.now()),
        sender: 'news@example.com',
        email: 'a@example.com',
        subject: 'Hi',
        tags: [],
        template: null,
        subaccount: 'cust-123',
        metadata: {},
        apiKey: null,
        state: 'sent' as const,
        opens: 0,
        clicks: 0,
        openDetail: [],
        clickDetail: [],
        diag: null,
        bounceDescription: null,
        version: 1,
      };
      await world.store.messages.insert(message);
      expect(await ok('delete', { id: 'cust-123' })).to.include({
        id: 'cust-123',
        sent_total: 3,
        custom_quota: 42,
        status: 'active',
      });
      expect(await ids()).to.deep.equal([]);
      expect(await world.store.counters.many({ account: ACCOUNT, kind: 'subaccount' })).to.deep.equal([]);
      expect(await world.store.rejects.many({ account: ACCOUNT, subaccount: 'cust-123' })).to.deep.equal([]);
      expect(await world.store.rejects.many({ account: ACCOUNT }), 'of the account').to.have.length(1);
      expect(await world.store.messages.one({ id: message.id })).to.include({ subaccount: 'cust-123' });
      expect(world.published.map(({ event }) => JSON.parse(event.body).action)).to.deep.equal(['remove', 'remove']);
    });

    it('makes later calls for it fail', async () => {
      await ok('delete', { id: 'cust-123' });
      for (const path of ['info', 'update', 'delete', 'pause', 'resume']) {
        expect(await refused(path, { id: 'cust-123' })).to.deep.equal({
          status: 404,
          name: 'Unknown_Subaccount',
          message: 'No subaccount exists with the id cust-123',
        });
      }
    });

    it('removes many rejects, and runs once for 50 concurrent callers', async () => {
      await Promise.all(
        Array.from({ length: 450 }, (_, i) =>
          world.store.rejects.insert(rejectRow(ACCOUNT, `${i}@example.com`, { subaccount: 'cust-123' })),
        ),
      );
      const answers = await Promise.all(
        Array.from({ length: 50 }, () => world.call('/subaccounts/delete', { id: 'cust-123' })),
      );
      expect(answers.filter(({ status }) => status === 200)).to.have.length(1);
      expect(await world.store.rejects.many({ account: ACCOUNT, subaccount: 'cust-123' })).to.deep.equal([]);
    });

    it('costs no reputation, for any rejects', async () => {
      const before = (await world.call('/users/info')).body.reputation;
      await Promise.all(
        Array.from({ length: 20 }, (_, i) =>
          world.store.rejects.insert(
            rejectRow(ACCOUNT, `${i}@example.com`, { subaccount: 'cust-123', reason: 'spam' }),
          ),
        ),
      );
      await ok('delete', { id: 'cust-123' });
      expect((await world.call('/users/info')).body.reputation).to.equal(before);
    });
  });
});
