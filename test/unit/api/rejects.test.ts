import { expect } from 'chai';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { ACCOUNT, type ApiWorld, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { putCounts } from '../../support/counts.ts';
import { rejectRow, subaccountRow, whitelistRow } from '../../support/lists.ts';

const DAY_MS = 86_400_000;

describe('the rejection list API', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const ok = async (path: string, params: object = {}) => {
    const { status, body } = await world.call(path, params);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  };
  const list = async (params: object = {}) =>
    (await ok('/rejects/list', params)).map(({ email, subaccount }: { email: string; subaccount: string | null }) =>
      subaccount === null ? email : `${email} of ${subaccount}`,
    );
  const refused = async (path: string, params: object) => {
    const { status, body } = await world.call(path, params);
    return { status, name: body.name, message: body.message };
  };
  const put = (email: string, fields: Parameters<typeof rejectRow>[2] = {}, account = ACCOUNT) =>
    world.store.rejects.insert(rejectRow(account, email, fields));
  const days = (count: number) => new Date(world.clock.now() + count * DAY_MS);

  describe('/rejects/add', () => {
    it('adds an entry by hand that shows all its fields and never expires', async () => {
      expect(await ok('/rejects/add', { email: 'Ann@Example.com', comment: 'asked us to stop' })).to.deep.equal({
        email: 'ann@example.com',
        added: true,
      });
      expect(await ok('/rejects/list', { email: 'ann@' })).to.deep.equal([
        {
          email: 'ann@example.com',
          reason: 'custom',
          detail: 'asked us to stop',
          created_at: '2026-01-05 12:00:00',
          last_event_at: '2026-01-05 12:00:00',
          expires_at: null,
          expired: false,
          sender: null,
          subaccount: null,
          message_id: null,
        },
      ]);
    });

    it('has a null detail without a comment, and with an empty one', async () => {
      for (const [email, comment] of [
        ['a@example.com', undefined],
        ['b@example.com', null],
        ['c@example.com', ''],
      ] as const) {
        await ok('/rejects/add', { email, comment });
        expect((await ok('/rejects/list', { email }))[0].detail).to.equal(null);
      }
    });

    it('reports the change to webhooks', async () => {
      await ok('/rejects/add', { email: 'ann@example.com', subaccount: 'cust-123' });
      expect(world.published.map(({ account, event }) => ({ account, ...JSON.parse(event.body) }))).to.deep.equal([
        {
          account: ACCOUNT,
          type: 'blacklist',
          action: 'add',
          ts: Math.floor(world.clock.now() / 1000),
          reject: {
            reason: 'custom',
            detail: null,
            last_event_at: '2026-01-05 12:00:00',
            email: 'ann@example.com',
            created_at: '2026-01-05 12:00:00',
            expires_at: null,
            expired: false,
            subaccount: 'cust-123',
            sender: null,
          },
        },
      ]);
    });

    it('does not add a whitelisted address, and reports it', async () => {
      expect(await ok('/rejects/add', { email: 'FRIEND@example.com' })).to.deep.equal({
        email: 'friend@example.com',
        added: false,
      });
      expect(await list({ email: 'friend' })).to.deep.equal([]);
    });

    it('replaces an entry made by an event', async () => {
      await ok('/rejects/add', { email: 'gone@example.com', comment: 'by hand' });
      expect((await ok('/rejects/list', { email: 'gone' }))[0]).to.include({
        reason: 'custom',
        detail: 'by hand',
        expires_at: null,
        sender: null,
      });
    });

    it('returns added for an existing entry, whose comment may change', async () => {
      for (const comment of ['one', 'two', null])
        expect(await ok('/rejects/add', { email: 'ann@example.com', comment })).to.include({ added: true });
      expect(
        (await ok('/rejects/list', { email: 'ann' })).map(({ detail }: { detail: string }) => detail),
      ).to.deep.equal(['two']);
    });

    it('keeps the list of the account apart from that of a subaccount', async () => {
      await ok('/rejects/add', { email: 'ann@example.com', subaccount: 'cust-123' });
      await ok('/rejects/add', { email: 'ann@example.com', subaccount: '' });
      expect(await list({ email: 'ann' })).to.deep.equal(['ann@example.com', 'ann@example.com of cust-123']);
      expect(await list({ email: 'ann', subaccount: 'cust-123' })).to.deep.equal(['ann@example.com of cust-123']);
    });

    it('accepts a comment of up to 1000 characters and a subaccount of up to 255', async () => {
      const id = 's'.repeat(255);
      await world.store.subaccounts.insert(subaccountRow(ACCOUNT, id));
      expect(
        await ok('/rejects/add', { email: 'ann@example.com', comment: 'c'.repeat(1000), subaccount: id }),
      ).to.include({ added: true });
      for (const path of ['/rejects/add', '/rejects/list', '/rejects/delete']) {
        expect(await refused(path, { email: 'ann@example.com', subaccount: 's'.repeat(256) })).to.deep.equal({
          status: 422,
          name: 'ValidationError',
          message: 'Validation error: {"subaccount":"Please enter at most 255 characters"}',
        });
      }
      expect(await refused('/rejects/add', { email: 'ann@example.com', comment: 'c'.repeat(1001) })).to.include({
        name: 'ValidationError',
      });
    });

    it('rejects invalid addresses', async () => {
      for (const email of [
        'nobody',
        'a b@example.com',
        'ann@example.com\r\nBcc: b@example.com',
        '@example.com',
        'ann@',
        '\u202eann@example.com',
      ]) {
        expect(await refused('/rejects/add', { email })).to.deep.equal({
          status: 422,
          name: 'ValidationError',
          message: 'Validation error: {"email":"Not a valid email address"}',
        });
      }
      expect(await world.store.rejects.many({ account: ACCOUNT })).to.have.length(1);
    });

    it('keeps a comment as given', async () => {
      const comment = 'a\r\nX-Injected: 1\t<b>📮</b> =1+1 \u202e $gt';
      await ok('/rejects/add', { email: '📮@bücher.example', comment });
      expect((await ok('/rejects/list', { email: '📮@BÜCHER.example' }))[0]).to.include({
        email: '📮@xn--bcher-kva.example',
        detail: comment,
      });
    });

    it('leaves no entry behind when the subaccount is deleted meanwhile', async () => {
      await world.stop();
      let looks = 0;
      world = await startApi({
        store: (real) => ({
          ...real,
          of: (account) => {
            const own = real.of(account);
            return {
              ...own,
              subaccounts: {
                ...own.subaccounts,
                one: async (filter) => (++looks > 1 ? undefined : own.subaccounts.one(filter)),
              },
            };
          },
        }),
      });
      expect(await refused('/rejects/add', { email: 'ann@example.com', subaccount: 'cust-123' })).to.include({
        name: 'Unknown_Subaccount',
      });
      expect(await world.store.rejects.many({ email: 'ann@example.com' })).to.deep.equal([]);
    });
  });

  describe('/rejects/list', () => {
    it('lists by address, and finds one by it or by its prefix in any case', async () => {
      for (const email of ['bob@example.com', 'ann@example.org', 'ann@example.com']) await put(email);
      expect(await list()).to.deep.equal(['ann@example.com', 'ann@example.org', 'bob@example.com', 'gone@example.com']);
      expect(await list({ email: 'ANN@' })).to.deep.equal(['ann@example.com', 'ann@example.org']);
      expect(await list({ email: 'Ann@Example.com' })).to.deep.equal(['ann@example.com']);
      expect(await list({ email: '' })).to.have.length(4);
      expect(await list({ email: 'example' })).to.deep.equal([]);
    });

    it('shows the message of the last event, of this account and while it exists', async () => {
      const event = (id: string, account: string, message: string) =>
        world.store.messageEvents.insert({
          id,
          account,
          message,
          kind: 'hard_bounce',
          at: days(0),
          appliedAt: days(0),
          detail: {},
          unsent: null,
          unsentSince: null,
        });
      await event('e1', ACCOUNT, 'first');
      await event('e2', ACCOUNT, 'second');
      await event('e3', OTHER_ACCOUNT, 'of another');
      await put('a@example.com', { reason: 'hard-bounce', eventIds: ['e1', 'e2'] });
      await put('b@example.com', { reason: 'hard-bounce', eventIds: ['e1', 'forgotten'] });
      await put('c@example.com', { reason: 'hard-bounce', eventIds: ['e3'] });
      const entries = await ok('/rejects/list');
      expect(
        entries.map((one: { email: string; message_id: string | null }) => [one.email, one.message_id]),
      ).to.deep.equal([
        ['a@example.com', 'second'],
        ['b@example.com', null],
        ['c@example.com', null],
        ['gone@example.com', null],
      ]);
    });

    it('takes search characters literally', async () => {
      await put('100%@example.com');
      await put('a_c@example.com');
      for (const email of ['%', '_', 'a.c', 'a*', '.*', '^a', '[a-z]', "'; DROP TABLE rejects; --", '$gt'])
        expect(await list({ email }), email).to.deep.equal([]);
      expect(await list({ email: '100%' })).to.deep.equal(['100%@example.com']);
      expect(await list({ email: 'a_' })).to.deep.equal(['a_c@example.com']);
    });

    it('hides expired entries by default, by the clock and before any task has marked them', async () => {
      await put('soon@example.com', { reason: 'soft-bounce', expiresAt: days(1), termMs: DAY_MS });
      await put('long-ago@example.com', { reason: 'soft-bounce', expiresAt: days(-1), termMs: DAY_MS, expired: true });
      await put('just-now@example.com', {
        reason: 'soft-bounce',
        expiresAt: new Date(world.clock.now()),
        termMs: DAY_MS,
      });
      expect(await list()).to.deep.equal(['gone@example.com', 'soon@example.com']);
      expect(await list({ include_expired: false })).to.have.length(2);
      const all = await ok('/rejects/list', { include_expired: true });
      expect(all.map(({ email, expired }: { email: string; expired: boolean }) => [email, expired])).to.deep.equal([
        ['gone@example.com', false],
        ['just-now@example.com', true],
        ['long-ago@example.com', true],
        ['soon@example.com', false],
      ]);
      await world.clock.advance(DAY_MS);
      expect(await list()).to.deep.equal(['gone@example.com']);
    });

    it('shows the sender with its totals, read all at once', async () => {
      await world.stop();
      let queries = 0;
      world = await startApi({
        store: (real) => ({
          ...real,
          of: (account) => {
            const own = real.of(account);
            return {
              ...own,
              counters: {
                ...own.counters,
                one: (filter) => {
                  queries++;
                  return own.counters.one(filter);
                },
                many: (filter, page) => {
                  queries++;
                  return own.counters.many(filter, page);
                },
              },
            };
          },
        }),
      });
      await put('a@example.com', { reason: 'spam', sender: 'news@example.com' });
      await put('b@example.com', { reason: 'spam', sender: 'never-counted@example.com' });
      const [a, b] = await ok('/rejects/list');
      expect(a.sender).to.include({
        address: 'news@example.com',
        created_at: '2026-01-05 09:00:00',
        sent: 40,
        opens: 12,
        unique_opens: 10,
      });
      expect(queries).to.equal(1);
      expect(b.sender).to.include({
        address: 'never-counted@example.com',
        created_at: '2026-01-05 11:00:00',
        sent: 0,
        unique_clicks: 0,
      });
    });

    it('returns 1000 entries of 1001, even if more have expired unmarked', async () => {
      const email = (i: number) => `${String(i).padStart(5, '0')}@example.com`;
      const rows = Array.from({ length: 3101 }, (_, i) =>
        rejectRow(ACCOUNT, email(i), i < 2100 ? { reason: 'soft-bounce', expiresAt: days(-1) } : {}),
      );
      for (let from = 0; from < rows.length; from += 500)
        await Promise.all(rows.slice(from, from + 500).map((row) => world.store.rejects.insert(row)));
      const found = await list();
      expect(found).to.have.length(1000);
      expect([found[0], found[999]]).to.deep.equal([email(2100), email(3099)]);
      expect(await list({ include_expired: true })).to.deep.equal(Array.from({ length: 1000 }, (_, i) => email(i)));
      expect(await list({ email: '0210' })).to.deep.equal(Array.from({ length: 10 }, (_, i) => email(2100 + i)));
      expect(await list({ email: '000' }), 'a page that holds nothing but expired ones').to.deep.equal([]);
    });

    it('keeps all entries of an address together across pages', async () => {
      const stale = Array.from({ length: 1500 }, (_, i) =>
        rejectRow(ACCOUNT, 'a@example.com', { subaccount: `s${i}`, reason: 'soft-bounce', expiresAt: days(-1) }),
      );
      await Promise.all(
        [...stale, rejectRow(ACCOUNT, 'a@example.com', { subaccount: 'z' }), rejectRow(ACCOUNT, 'b@example.com')].map(
          (row) => world.store.rejects.insert(row),
        ),
      );
      expect(await list()).to.deep.equal(['a@example.com of z', 'b@example.com', 'gone@example.com']);
    });

    it('hides a removed entry while its event still waits', async () => {
      await put('off@example.com', { removed: true });
      expect(await list({ email: 'off' })).to.deep.equal([]);
      expect(await list({ email: 'off', include_expired: true })).to.deep.equal([]);
    });

    it('distinguishes existing from unknown subaccounts', async () => {
      expect(await list({ subaccount: 'cust-123' })).to.deep.equal([]);
      expect(await refused('/rejects/list', { subaccount: 'Cust-123' })).to.deep.equal({
        status: 404,
        name: 'Unknown_Subaccount',
        message: 'No subaccount exists with the id Cust-123',
      });
    });

    it('returns ServiceUnavailable while the store is unavailable', async () => {
      await world.stop();
      world = await startApi({
        store: (real) => ({
          ...real,
          of: (account) => ({
            ...real.of(account),
            rejects: { ...real.of(account).rejects, many: () => Promise.reject(new StoreAway('away')) },
          }),
        }),
      });
      expect(await refused('/rejects/list', {})).to.deep.equal({
        status: 503,
        name: 'ServiceUnavailable',
        message: 'Service Temporarily Unavailable',
      });
    });
  });

  describe('/rejects/delete', () => {
    it('removes an entry from the named list only', async () => {
      await ok('/rejects/add', { email: 'ann@example.com', subaccount: 'cust-123' });
      expect(await refused('/rejects/delete', { email: 'ann@example.com' })).to.deep.equal({
        status: 404,
        name: 'Invalid_Reject',
        message: 'Email address is not in the rejection list and is not invalid',
      });
      expect(await ok('/rejects/delete', { email: 'ANN@example.com', subaccount: 'cust-123' })).to.deep.equal({
        email: 'ann@example.com',
        deleted: true,
        subaccount: 'cust-123',
      });
      expect(await refused('/rejects/delete', { email: 'ann@example.com', subaccount: 'cust-123' })).to.include({
        name: 'Invalid_Reject',
      });
      expect(world.published.map(({ event }) => JSON.parse(event.body).action)).to.deep.equal(['add', 'remove']);
      expect(await world.store.rejects.many({ email: 'ann@example.com' })).to.deep.equal([]);
    });

    it('removes an expired entry', async () => {
      await put('old@example.com', { reason: 'soft-bounce', expiresAt: days(-1), expired: true });
      expect(await ok('/rejects/delete', { email: 'old@example.com' })).to.include({ deleted: true });
    });

    it('costs reputation if events had made the entry, and none if it was added by hand', async () => {
      const reputation = async () => (await ok('/users/info')).reputation;
      const before = await reputation();
      for (let i = 0; i < 10; i++) {
        await put(`${i}@example.com`);
        await ok('/rejects/delete', { email: `${i}@example.com` });
      }
      expect(await reputation()).to.equal(before);
      for (let i = 0; i < 10; i++) {
        await put(`${i}@example.com`, { reason: 'hard-bounce', expiresAt: days(7) });
        await ok('/rejects/delete', { email: `${i}@example.com` });
      }
      expect(await reputation()).to.be.below(before);
    });

    for (const [way, around] of [
      [
        'an entry by hand in its place',
        async (email: string) => {
          await ok('/rejects/add', { email });
          await ok('/rejects/add', { email, comment: 'by hand' });
          await ok('/rejects/delete', { email });
        },
      ],
      [
        'the whitelist',
        async (email: string) => {
          await ok('/whitelists/add', { email });
          await ok('/whitelists/add', { email });
          await ok('/whitelists/delete', { email });
        },
      ],
    ] as const) {
      it(`costs the same reputation through ${way}`, async () => {
        const resets = async () =>
          (await world.store.counters.many({ account: ACCOUNT, kind: 'account', span: 'month' })).reduce(
            (sum, row) => sum + (row.resets ?? 0),
            0,
          );
        const before = await resets();
        await put('gone1@example.com', { reason: 'spam', expiresAt: days(300) });
        await around('gone1@example.com');
        expect(await resets()).to.equal(before + 1);
        expect(
          await world.store.rejects.many({
            account: ACCOUNT,
            email: 'gone1@example.com',
            expired: false,
            removed: false,
          }),
        ).to.deep.equal([]);
        await around('never@example.com');
        await put('byhand@example.com');
        await around('byhand@example.com');
        expect(await resets(), 'what a person alone had entered costs nothing').to.equal(before + 1);
      });
    }

    it('costs the reputation of the subaccount of the entry too', async () => {
      const reputation = async () => (await ok('/subaccounts/info', { id: 'cust-123' })).reputation;
      await putCounts(world.store, ACCOUNT, 'subaccount', 'cust-123', { sent: 100 }, new Date(world.clock.now()));
      const before = await reputation();
      for (let i = 0; i < 10; i++) {
        await put(`${i}@example.com`, { subaccount: 'cust-123', reason: 'spam', expiresAt: days(7) });
        await ok('/rejects/delete', { email: `${i}@example.com`, subaccount: 'cust-123' });
      }
      expect(await reputation()).to.be.below(before);
    });
  });

  describe('entries of another account', () => {
    it('are neither visible nor changed', async () => {
      await put('theirs@example.com', {}, OTHER_ACCOUNT);
      expect(await list({ email: 'theirs' })).to.deep.equal([]);
      expect(await refused('/rejects/delete', { email: 'theirs@example.com' })).to.include({ name: 'Invalid_Reject' });
      expect(
        await refused('/rejects/add', { key: OTHER_KEY, email: 'a@example.com', subaccount: 'cust-123' }),
      ).to.include({ name: 'Unknown_Subaccount' });
      await world.store.whitelists.insert(whitelistRow(OTHER_ACCOUNT, 'a@example.com'));
      expect(await ok('/rejects/add', { email: 'a@example.com' }), 'their whitelist is theirs').to.include({
        added: true,
      });
    });
  });
});
