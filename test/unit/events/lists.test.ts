import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { createLists, type Lists, type NewReject } from '../../../src/events/lists.ts';
import { type Database, StoreAway } from '../../../src/store/driver/port.ts';
import type { UnsentEvent } from '../../../src/store/rows/webhooks.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createSweep } from '../../../src/webhooks/outbox.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';

const DAY_MS = 86_400_000;
const ME = 'Account1';
const NOBODY = 'Account2';

for (const driver of drivers) {
  describe(`the lists, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    let log: ReturnType<typeof createTestLog>;
    let published: { account: string; event: UnsentEvent }[];
    let broken: boolean;
    let lists: Lists;
    let database: Database;

    const build = (parts: Partial<Parameters<typeof createLists>[0]> = {}) =>
      createLists({
        store,
        clock,
        log,
        ids: createIds(clock),
        outbox: {
          async publish(account, events) {
            if (broken) throw new Error('the spool is full');
            published.push(...events.map((event) => ({ account, event })));
          },
        },
        ...parts,
      });
    beforeEach(async () => {
      // Many want the same row at once.
      database = await driver.open({ crowded: true });
      store = await openStore(database);
      clock = createTestClock();
      log = createTestLog();
      published = [];
      broken = false;
      lists = build();
    });
    afterEach(() => store.close());

    const entry = (fields: Partial<NewReject> = {}): NewReject => ({
      account: ME,
      email: 'ann@example.com',
      subaccount: '',
      reason: 'custom',
      detail: null,
      sender: null,
      at: new Date(clock.now()),
      ...fields,
    });
    const bodies = () => published.map(({ event }) => JSON.parse(event.body));
    const actions = () => bodies().map(({ type, action }) => `${type} ${action}`);
    const suppressed = (email = 'ann@example.com', subaccount: string | null = null) =>
      lists.suppression(ME, email, subaccount, new Date(clock.now()));

    it('add an address to the rejection list, with the event that consumers of Mandrill read', async () => {
      expect(
        await lists.reject(
          entry({
            email: 'Ann@Example.COM',
            reason: 'hard-bounce',
            detail: 'smtp;550 5.1.1',
            sender: 'news@example.com',
            subaccount: 'cust-1',
            eventId: 'e1',
          }),
        ),
      ).to.equal('added');
      expect(published.map(({ account, event: { event, at } }) => ({ account, event, at }))).to.deep.equal([
        { account: ME, event: 'blacklist', at: clock.now() },
      ]);
      expect(bodies()).to.deep.equal([
        {
          type: 'blacklist',
          action: 'add',
          ts: Math.floor(clock.now() / 1000),
          reject: {
            reason: 'hard-bounce',
            detail: 'smtp;550 5.1.1',
            last_event_at: '2026-01-05 12:00:00',
            email: 'ann@example.com',
            created_at: '2026-01-05 12:00:00',
            expires_at: '2026-01-12 12:00:00',
            expired: false,
            subaccount: 'cust-1',
            sender: 'news@example.com',
          },
        },
      ]);
    });

    it('write a manual entry as Mandrill does: no expiry, no sender, no subaccount', async () => {
      await lists.reject(entry());
      expect(bodies()[0]).to.deep.include({
        reject: {
          reason: 'custom',
          detail: null,
          last_event_at: '2026-01-05 12:00:00',
          email: 'ann@example.com',
          created_at: '2026-01-05 12:00:00',
          expires_at: null,
          expired: false,
          subaccount: null,
          sender: null,
        },
      });
    });

    it('report a renewed entry as a change, and an unchanged one not at all', async () => {
      await lists.reject(entry({ reason: 'soft-bounce', eventId: 'e1' }));
      expect(await lists.reject(entry({ reason: 'soft-bounce', eventId: 'e1' }))).to.equal('kept');
      expect(await lists.reject(entry({ reason: 'soft-bounce', eventId: 'e2' }))).to.equal('renewed');
      expect(await lists.reject(entry())).to.equal('renewed');
      expect(await lists.reject(entry({ reason: 'spam', eventId: 'e3' }))).to.equal('kept');
      expect(actions()).to.deep.equal(['blacklist add', 'blacklist change', 'blacklist change']);
      expect((await suppressed())?.reason).to.equal('custom');
    });

    it('remove an address, return the last entry, and leave nothing behind', async () => {
      await lists.reject(entry({ detail: 'asked' }));
      expect(await lists.unreject(ME, 'ANN@example.com', '')).to.deep.include({
        email: 'ann@example.com',
        detail: 'asked',
        removed: false,
      });
      expect(await lists.unreject(ME, 'ann@example.com', '')).to.equal(undefined);
      expect(actions()).to.deep.equal(['blacklist add', 'blacklist remove']);
      expect(bodies()[1].reject).to.deep.include({ email: 'ann@example.com', detail: 'asked' });
      expect(await store.rejects.many({})).to.deep.equal([]);
    });

    it('ignore an entry once it has expired, and list it anew', async () => {
      await lists.reject(entry({ reason: 'soft-bounce', eventId: 'e1' }));
      await clock.advance(DAY_MS - 1);
      expect(await suppressed()).to.include({ reason: 'soft-bounce' });
      await clock.advance(1);
      expect(await suppressed()).to.equal(undefined);
      expect(await lists.reject(entry({ reason: 'soft-bounce', eventId: 'e2' }))).to.equal('renewed');
      await clock.advance(2 * DAY_MS - 1);
      expect(await suppressed()).to.include({ reason: 'soft-bounce' });
    });

    it('suppress for a subaccount its own entries, and for all those of the account', async () => {
      await lists.reject(entry({ email: 'sub@example.com', subaccount: 'one' }));
      await lists.reject(entry({ email: 'all@example.com' }));
      expect(await suppressed('sub@example.com', 'one')).to.include({ subaccount: 'one' });
      expect(await suppressed('sub@example.com', 'two')).to.equal(undefined);
      expect(await suppressed('sub@example.com')).to.equal(undefined);
      expect(await suppressed('ALL@example.com', 'one')).to.include({ subaccount: '' });
      expect(await suppressed('all@example.com')).to.include({ subaccount: '' });
      expect(await lists.suppression(NOBODY, 'all@example.com', 'one', new Date(clock.now()))).to.equal(undefined);
    });

    it('whitelist an address: its entries are removed, including subaccounts, and no new ones are added', async () => {
      for (const subaccount of ['', 'one', 'two']) await lists.reject(entry({ subaccount }));
      await lists.reject(entry({ account: NOBODY }));
      expect(await lists.whitelist(ME, 'Ann@Example.com', 'a friend')).to.equal(true);
      expect(actions().toSorted()).to.deep.equal([
        ...Array(4).fill('blacklist add'),
        ...Array(3).fill('blacklist remove'),
        'whitelist add',
      ]);
      expect(bodies().find(({ type }) => type === 'whitelist')).to.deep.equal({
        type: 'whitelist',
        action: 'add',
        entry: { email: 'ann@example.com', detail: 'a friend', created_at: '2026-01-05 12:00:00' },
        ts: Math.floor(clock.now() / 1000),
      });
      expect(await store.rejects.many({ account: ME })).to.deep.equal([]);
      for (const reason of ['custom', 'spam', 'hard-bounce'] as const)
        expect(await lists.reject(entry({ reason }))).to.equal('whitelisted');
      expect(await suppressed()).to.equal(undefined);
      expect(await store.rejects.many({}), 'the other account keeps its own').to.have.length(1);
    });

    it('whitelist once: a repeat changes only the comment', async () => {
      await lists.whitelist(ME, 'ann@example.com', 'a friend');
      expect(await lists.whitelist(ME, 'ann@example.com', null)).to.equal(false);
      expect(await lists.whitelist(ME, 'ann@example.com', 'a good friend')).to.equal(false);
      expect(actions()).to.deep.equal(['whitelist add']);
      expect(await store.whitelists.many({})).to.have.length(1);
      expect((await store.whitelists.many({}))[0]).to.deep.include({
        detail: 'a good friend',
        unsent: null,
        unsentSince: null,
      });
    });

    it('remove an address from the whitelist; then events list it again', async () => {
      await lists.whitelist(ME, 'ann@example.com', 'a friend');
      expect(await lists.unwhitelist(ME, 'ann@example.com')).to.deep.include({ detail: 'a friend' });
      expect(await lists.unwhitelist(ME, 'ann@example.com')).to.equal(undefined);
      expect(await lists.unwhitelist(NOBODY, 'ann@example.com')).to.equal(undefined);
      expect(actions()).to.deep.equal(['whitelist add', 'whitelist remove']);
      expect(await store.whitelists.many({})).to.deep.equal([]);
      expect(await lists.reject(entry())).to.equal('added');
    });

    it('treat an invalid address as unknown', async () => {
      for (const email of ['', 'nobody', 'a@b\r\nc', '\u0000@example.com']) {
        expect(await lists.reject(entry({ email }))).to.equal('kept');
        expect(await lists.unreject(ME, email, '')).to.equal(undefined);
        expect(await lists.whitelist(ME, email, null)).to.equal(false);
        expect(await lists.unwhitelist(ME, email)).to.equal(undefined);
        expect(await suppressed(email)).to.equal(undefined);
      }
      expect(published).to.deep.equal([]);
    });

    it('keep apart names with spaces in unexpected positions', async () => {
      await lists.reject(entry({ email: '"a b"@example.com', subaccount: 'c' }));
      await lists.reject(entry({ email: 'a@example.com', subaccount: 'b c' }));
      await lists.reject(entry({ email: 'a@example.com', subaccount: 'b' }));
      expect(await store.rejects.many({})).to.have.length(3);
    });

    describe('when the spool rejects an event', () => {
      beforeEach(() => {
        broken = true;
      });

      it('change the list nevertheless, and keep the event in the row', async () => {
        expect(await lists.reject(entry())).to.equal('added');
        expect(await lists.whitelist(ME, 'bob@example.com', null)).to.equal(true);
        const [reject] = await store.rejects.many({ unsentSince: { range: { lte: new Date(clock.now()) } } });
        expect(reject?.unsent?.map(({ event, body }) => ({ event, action: JSON.parse(body).action }))).to.deep.equal([
          { event: 'blacklist', action: 'add' },
        ]);
        expect((await store.whitelists.many({ unsentSince: { exists: true } }))[0]?.unsent).to.have.length(1);
        expect(log.of('event.unsent')).to.have.length(2);
        expect(log.of('event.unsent')[0]?.fields).to.include({ kind: 'blacklist', account: ME });
      });

      it('hide a removed entry whose row still exists, and allow it to return', async () => {
        await lists.reject(entry({ reason: 'spam' }));
        await lists.unreject(ME, 'ann@example.com', '');
        expect(await suppressed()).to.equal(undefined);
        expect(await lists.unreject(ME, 'ann@example.com', '')).to.equal(undefined);
        expect(await lists.reject(entry({ reason: 'soft-bounce' })), 'a new entry, not a renewed one').to.equal(
          'added',
        );
        const [row] = await store.rejects.many({});
        expect(row).to.include({ termMs: DAY_MS, removed: false });
        expect(
          row?.unsent?.map(({ body }) => JSON.parse(body).action),
          'in the order they happened',
        ).to.deep.equal(['add', 'remove', 'add']);
      });

      it('send with the next change its own event, and leave the rest to the sweep', async () => {
        await lists.reject(entry());
        broken = false;
        await lists.unreject(ME, 'ann@example.com', '');
        expect(actions()).to.deep.equal(['blacklist remove']);
        const [row] = await store.rejects.many({});
        expect(row?.removed).to.equal(true);
        expect(row?.unsent?.map(({ body }) => JSON.parse(body).action)).to.deep.equal(['add']);
        expect(row?.unsentSince?.getTime()).to.equal(clock.now());
      });
    });

    it('let the sweep send unsent events, and then delete removed rows', async () => {
      broken = true;
      await lists.reject(entry());
      await lists.unreject(ME, 'ann@example.com', '');
      await lists.whitelist(ME, 'bob@example.com', null);
      broken = false;
      await clock.advance(31_000);
      const outbox = {
        publish: async (account: string, events: readonly UnsentEvent[]) => {
          published.push(...events.map((event) => ({ account, event })));
        },
      };
      expect(await createSweep({ store, outbox, clock })()).to.equal(2);
      expect(actions()).to.deep.equal(['blacklist add', 'blacklist remove', 'whitelist add']);
      expect(await store.rejects.many({})).to.deep.equal([]);
      expect((await store.whitelists.many({}))[0]).to.deep.include({ unsent: null, unsentSince: null, removed: false });
    });

    it('fail all callers that wait for a row while the store is unavailable, and work again afterwards', async () => {
      let asked = 0;
      let away = true;
      const one: typeof store.rejects.one = async (filter) => {
        asked++;
        await new Promise((resolve) => setImmediate(resolve)); // until all of them wait
        if (away) throw new StoreAway('away');
        return store.rejects.one(filter);
      };
      const mine = build({
        store: { whitelists: { ...store.whitelists, one: async () => undefined }, rejects: { ...store.rejects, one } },
      });
      const ends = await Promise.allSettled(Array.from({ length: 20 }, () => mine.reject(entry())));
      expect(ends.every((end) => end.status === 'rejected' && end.reason instanceof StoreAway)).to.equal(true);
      expect(asked, 'nobody waits for a deadline of its own').to.equal(1);
      away = false;
      expect(await mine.reject(entry())).to.equal('added');
    });

    for (const processes of [1, 4])
      describe(`with 50 concurrent callers in ${processes === 1 ? 'one process' : 'four processes'}`, function () {
        this.timeout(30_000); // FerretDB has one connection for all of them
        let mine: Lists[];
        beforeEach(() => {
          mine = Array.from({ length: processes }, () => build());
        });
        const of = (i: number) => mine[Math.floor(i / 2) % processes] ?? lists;

        /** Every event was sent once, and nothing waits in a row. */
        const settled = async () => {
          expect(new Set(published.map(({ event }) => event.id)).size).to.equal(published.length);
          expect(await store.rejects.many({ unsentSince: { exists: true } })).to.deep.equal([]);
          expect(await store.whitelists.many({ unsentSince: { exists: true } })).to.deep.equal([]);
        };
        const count = (action: string) => actions().filter((one) => one === action).length;
        const all = <T>(work: (i: number) => Promise<T>) => Promise.all(Array.from({ length: 50 }, (_, i) => work(i)));

        it('add one address once', async () => {
          const outcomes = await all((i) => of(i).reject(entry()));
          expect(outcomes.filter((outcome) => outcome === 'added')).to.have.length(1);
          expect(outcomes.filter((outcome) => outcome === 'kept')).to.have.length(49);
          expect(actions()).to.deep.equal(['blacklist add']);
          await settled();
        });

        it('remove one address once', async () => {
          await lists.reject(entry());
          const rows = await all((i) => of(i).unreject(ME, 'ann@example.com', ''));
          expect(rows.filter((row) => row !== undefined)).to.have.length(1);
          expect(count('blacklist remove')).to.equal(1);
          expect(await store.rejects.many({})).to.deep.equal([]);
          await settled();
        });

        it('count every event of one address', async () => {
          await all((i) => of(i).reject(entry({ reason: 'soft-bounce', eventId: `e${i % 10}` })));
          const [row, ...others] = await store.rejects.many({});
          expect(others).to.deep.equal([]);
          expect(row?.eventIds).to.have.length(10);
          expect(row?.termMs).to.equal(365 * DAY_MS);
          expect(actions().toSorted()).to.deep.equal(['blacklist add', ...Array(9).fill('blacklist change')]);
          await settled();
        });

        it('add and remove one address: adds and removals alternate, and the list agrees with the last one', async () => {
          await all<unknown>((i) => (i % 2 === 0 ? of(i).reject(entry()) : of(i).unreject(ME, 'ann@example.com', '')));
          const listed = (await suppressed()) !== undefined;
          expect(count('blacklist add') - count('blacklist remove')).to.equal(listed ? 1 : 0);
          expect(await store.rejects.many({})).to.have.length(listed ? 1 : 0);
          await settled();
        });

        it('list and whitelist one address: it ends whitelisted and not listed', async () => {
          await all<unknown>((i) =>
            i % 2 === 0
              ? of(i).reject(entry({ reason: 'spam', subaccount: i % 4 === 0 ? '' : 'one', eventId: `e${i}` }))
              : of(i).whitelist(ME, 'ann@example.com', null),
          );
          expect(await store.whitelists.many({ removed: false })).to.have.length(1);
          expect(await store.rejects.many({})).to.deep.equal([]);
          expect(count('whitelist add')).to.equal(1);
          expect(count('blacklist add')).to.equal(count('blacklist remove'));
          await settled();
        });

        it('whitelist and unwhitelist one address: the events match the changes', async () => {
          await all<unknown>((i) =>
            i % 2 === 0 ? of(i).whitelist(ME, 'ann@example.com', null) : of(i).unwhitelist(ME, 'ann@example.com'),
          );
          const rows = await store.whitelists.many({});
          expect(rows).to.have.length(count('whitelist add') - count('whitelist remove'));
          await settled();
        });
      });
  });
}
