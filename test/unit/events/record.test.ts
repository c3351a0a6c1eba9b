import { expect } from 'chai';
import type { MessageEvent } from '../../../src/events/record.ts';
import { type CounterSubject, SPANS_OF } from '../../../src/store/rows/counters.ts';
import { subaccountId } from '../../../src/store/rows/subaccounts.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { drivers } from '../../support/database.ts';
import { subaccountRow } from '../../support/lists.ts';
import { ACCOUNT, countsOf, createRecording, MESSAGE, newEvent, newMessage } from '../../support/recording.ts';

const THINGS: readonly (readonly [CounterSubject, string])[] = [
  ['account', ACCOUNT],
  ['sender', 'news@example.com'],
  ['tag', 'one'],
  ['tag', 'two'],
  ['template', 'welcome'],
  ['subaccount', 'cust-1'],
];

for (const driver of drivers)
  describe(`a recorded event, ${driver.name}`, () => {
    let store: Store;
    let world: ReturnType<typeof createRecording>;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
      world = createRecording(store);
      await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust-1'));
    });
    afterEach(() => store.close());

    const begin = () => world.recorder.begin(newMessage());
    const record = (kind: MessageEvent['kind'], fields: Partial<MessageEvent> = {}) =>
      world.recorder.record(newEvent(kind, fields));
    /** A slow server is away now and then with so many in flight; what it cut off is finished as the task would. */
    const finish = () => world.recorder.finish(new Date(world.clock.now() + 1));
    const message = async () => {
      const row = await store.messages.one({ id: MESSAGE });
      if (!row) throw new Error('no message');
      return row;
    };

    it('belongs to a queued message, with a row for each of its tags', async () => {
      expect(await begin()).to.equal('recorded');
      expect(await begin()).to.equal('duplicate');
      expect(await message()).to.include({
        account: ACCOUNT,
        sender: 'news@example.com',
        state: 'queued',
        opens: 0,
        clicks: 0,
      });
      expect(
        (await store.messageTags.many({ account: ACCOUNT }, { sort: 'id' })).map(({ tag, message }) => [tag, message]),
      ).to.deep.equal([
        ['one', MESSAGE],
        ['two', MESSAGE],
      ]);
      expect(await countsOf(store, 'account', ACCOUNT), 'nothing has happened to it yet').to.equal(undefined);
    });

    it('adds the domain of its sender to the account', async () => {
      await begin();
      await world.recorder.begin(newMessage({ id: 'e'.repeat(32), sender: 'no domain' }));
      expect((await store.senderDomains.many({ account: ACCOUNT })).map(({ domain }) => domain)).to.deep.equal([
        'example.com',
      ]);
    });

    it('is counted for the account, the sender, each tag, the template and the subaccount, in the spans of each', async () => {
      await begin();
      expect(await record('send')).to.equal('recorded');
      for (const [kind, key] of THINGS)
        for (const span of ['hour', 'week', 'month', 'total'] as const) {
          expect(await countsOf(store, kind, key, span), `${kind} ${span}`).to.deep.equal(
            SPANS_OF[kind].includes(span) ? { sent: 1 } : undefined,
          );
        }
      const hours = await store.counters.many({
        account: ACCOUNT,
        kind: 'sender',
        span: 'hour',
        key: 'news@example.com',
      });
      expect(hours[0]).to.deep.include({
        start: new Date('2026-01-05T11:00:00Z'),
        firstAt: new Date('2026-01-05T11:30:00Z'),
      });
      expect((await store.subaccounts.one({ id: subaccountId(ACCOUNT, 'cust-1') }))?.firstSentAt).to.deep.equal(
        new Date('2026-01-05T11:30:00Z'),
      );
      await record('send', { id: 'another', at: new Date('2026-01-05T11:45:00Z') });
      expect(
        (await store.subaccounts.one({ id: subaccountId(ACCOUNT, 'cust-1') }))?.firstSentAt,
        'the first stays',
      ).to.deep.equal(new Date('2026-01-05T11:30:00Z'));
    });

    const OUTCOMES = [
      ['send', 'sent', { sent: 1 }],
      ['deferral', 'deferred', undefined],
      ['hard_bounce', 'bounced', { hardBounces: 1 }],
      ['soft_bounce', 'soft-bounced', { softBounces: 1 }],
      ['reject', 'rejected', { rejects: 1 }],
      ['spam', 'spam', { complaints: 1 }],
      ['unsub', 'unsub', { unsubs: 1 }],
      ['open', 'queued', { opens: 1, uniqueOpens: 1 }],
      ['click', 'queued', { clicks: 1, uniqueClicks: 1 }],
    ] as const;
    for (const [kind, state, counts] of OUTCOMES) {
      it(`${kind}: makes a message ${state}, is counted and goes to the webhooks`, async () => {
        await begin();
        expect(await record(kind)).to.equal('recorded');
        expect((await message()).state).to.equal(state);
        for (const [thing, key] of THINGS)
          expect(await countsOf(store, thing, key, 'hour'), thing).to.deep.equal(counts);
        expect(world.published.map(({ id, event, at }) => ({ id, event, at }))).to.deep.equal([
          { id: `event-${kind}`, event: kind, at: Date.parse('2026-01-05T11:30:00Z') },
          ...(kind === 'send'
            ? [{ id: 'event-send-delivered', event: 'delivered', at: Date.parse('2026-01-05T11:30:00Z') }]
            : []),
        ]);
        const row = await store.messageEvents.one({ id: `event-${kind}` });
        expect(row).to.deep.include({ kind, unsent: null, unsentSince: null, appliedAt: new Date(world.clock.now()) });
      });
    }

    it('adds the recipient to the rejection list, for the subaccount, after a bounce, complaint or unsubscription', async () => {
      for (const [kind, reason] of [
        ['hard_bounce', 'hard-bounce'],
        ['soft_bounce', 'soft-bounce'],
        ['spam', 'spam'],
        ['unsub', 'unsub'],
      ] as const) {
        const id = MESSAGE.replace('0', kind);
        await world.recorder.begin(newMessage({ id, email: `${kind}@example.net` }));
        await record(kind, { message: id, detail: { diag: 'smtp;550 5.1.1 unknown user' } });
        const [entry] = await store.rejects.many({ account: ACCOUNT, email: `${kind}@example.net` });
        expect(entry).to.include({
          reason,
          subaccount: 'cust-1',
          sender: 'news@example.com',
          detail: 'smtp;550 5.1.1 unknown user',
        });
      }
      await begin();
      for (const kind of ['send', 'deferral', 'reject', 'open', 'click'] as const) await record(kind);
      expect(await store.rejects.many({ account: ACCOUNT, email: 'person@example.net' })).to.deep.equal([]);
    });

    it('keeps the data of the list and the export: diagnosis, opens and clicks, the latest hundred', async () => {
      await begin();
      await record('soft_bounce', { detail: { diag: 'smtp;452 4.2.2 full', description: 'mailbox_full', code: 22 } });
      expect(await message()).to.include({ diag: 'smtp;452 4.2.2 full', bounceDescription: 'mailbox_full' });
      const start = Date.UTC(2026, 0, 5, 11);
      await Promise.all(
        Array.from({ length: 130 }, (_, n) =>
          record('click', {
            id: `click ${n}`,
            at: new Date(start + n * 1000),
            detail: { url: `http://a.example/${n}` },
          }),
        ),
      );
      await finish();
      const row = await message();
      expect(row).to.include({ clicks: 130 });
      expect(row.clickDetail).to.have.length(100);
      expect(await countsOf(store, 'tag', 'one')).to.deep.equal({ softBounces: 1, clicks: 130, uniqueClicks: 1 });
    });

    it('counts as unique only the first open and the first click of each message', async () => {
      await begin();
      await world.recorder.begin(newMessage({ id: 'f'.repeat(32) }));
      for (const id of ['a', 'b', 'c']) await record('open', { id });
      await record('open', { id: 'd', message: 'f'.repeat(32) });
      expect(await countsOf(store, 'sender', 'news@example.com')).to.deep.equal({ opens: 4, uniqueOpens: 2 });
    });

    it('gives a deleted subaccount neither counters nor rejects: another may have its id', async () => {
      await begin();
      await store.subaccounts.remove({ id: subaccountId(ACCOUNT, 'cust-1') });
      await record('hard_bounce');
      expect(await countsOf(store, 'subaccount', 'cust-1')).to.equal(undefined);
      expect(await countsOf(store, 'account', ACCOUNT)).to.deep.equal({ hardBounces: 1 });
      expect(await store.rejects.many({ account: ACCOUNT })).to.deep.equal([]);
    });

    it('is recorded once, however often it is reported', async () => {
      await begin();
      expect(await record('open')).to.equal('recorded');
      expect(await record('open')).to.equal('duplicate');
      expect(
        (await Promise.all(Array.from({ length: 10 }, () => record('hard_bounce')))).filter(
          (answer) => answer === 'recorded',
        ),
      ).to.have.length(1);
      for (const [kind, key] of THINGS)
        expect(await countsOf(store, kind, key, 'hour')).to.deep.equal({ opens: 1, uniqueOpens: 1, hardBounces: 1 });
      const [entry] = await store.rejects.many({ account: ACCOUNT });
      expect(entry?.expiresAt, 'one term').to.deep.equal(new Date('2026-01-12T11:30:00Z'));
      expect(world.published.filter(({ event }) => event === 'open')).to.have.length(1);
    });

    it('is unknown when the account has no such message, and leaves no trace', async () => {
      await begin();
      expect(await record('send', { message: 'e'.repeat(32) })).to.equal('unknown');
      expect(await record('send', { account: 'SomebodyElse0000000001' })).to.equal('unknown');
      expect(await store.messageEvents.many({})).to.deep.equal([]);
      expect(await store.counters.many({})).to.deep.equal([]);
      expect(world.published).to.deep.equal([]);
    });

    it('leaves the same state in any order: a bounced message is not sent by a late event', async () => {
      await begin();
      for (const kind of ['hard_bounce', 'send', 'deferral', 'open'] as const) await record(kind);
      expect((await message()).state).to.equal('bounced');
      await record('spam');
      await record('unsub');
      expect((await message()).state).to.equal('spam');
    });

    it('is never in the future: the sweep looks for old ones', async () => {
      await begin();
      await record('open', { at: new Date('2036-01-01T00:00:00Z') });
      expect((await store.messageEvents.one({ id: 'event-open' }))?.at).to.deep.equal(new Date(world.clock.now()));
    });

    it('is bounded, and so is its message', async () => {
      const long = '😀'.repeat(5000);
      await world.recorder.begin(
        newMessage({
          subject: `a${long}`,
          tags: [long, long, '', 'x', ...Array.from({ length: 500 }, (_, n) => `t${n}`)],
          metadata: { [long]: long },
        }),
      );
      const row = await message();
      expect([row.subject.length, row.subject.isWellFormed()]).to.deep.equal([997, true]);
      expect(row.tags).to.have.length(100);
      expect(row.tags.slice(0, 2)).to.deep.equal(['😀'.repeat(25), 'x']);
      expect(JSON.stringify(row.metadata).length).to.be.below(1000);
      await record('click', { detail: { url: 'u'.repeat(100_000), user_agent: long, secret: 'not kept' } });
      const { detail } = (await store.messageEvents.one({ id: 'event-click' })) ?? { detail: {} };
      expect(Object.keys(detail)).to.deep.equal(['url', 'user_agent']);
      expect(JSON.stringify(detail).length).to.be.below(6000);
    });

    it('is counted exactly, with 50 concurrent on one message and one tag', async () => {
      await begin();
      await Promise.all(
        Array.from({ length: 50 }, (_, n) => record(n % 2 === 0 ? 'open' : 'click', { id: `event ${n}` })),
      );
      await finish();
      for (const [kind, key] of THINGS)
        expect(await countsOf(store, kind, key, 'hour'), kind).to.deep.equal({
          opens: 25,
          uniqueOpens: 1,
          clicks: 25,
          uniqueClicks: 1,
        });
      expect(await message()).to.include({ opens: 25, clicks: 25 });
      expect(new Set(world.published.map(({ id }) => id)).size).to.equal(50);
    });

    it('is counted exactly when two processes report the same 50 at once', async () => {
      const other = createRecording(store, world.clock);
      await begin();
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, n) =>
          [world, other].map(({ recorder }) => recorder.record(newEvent('open', { id: `event ${n}` }))),
        ).flat(),
      );
      await finish();
      expect(answers.filter((answer) => answer === 'recorded')).to.have.length(50);
      for (const [kind, key] of THINGS)
        expect(await countsOf(store, kind, key, 'hour'), kind).to.deep.equal({ opens: 50, uniqueOpens: 1 });
    });

    it('stays with its row while the spool rejects it, for the sweep of the outbox', async () => {
      await begin();
      world.spool.broken = true;
      expect(await record('send')).to.equal('recorded');
      const row = await store.messageEvents.one({ id: 'event-send' });
      expect(row?.unsent?.map(({ id, event }) => ({ id, event }))).to.deep.equal([
        { id: 'event-send', event: 'send' },
        { id: 'event-send-delivered', event: 'delivered' },
      ]);
      expect(row?.unsentSince).to.deep.equal(new Date(world.clock.now()));
      expect(row?.appliedAt, 'the numbers have it').to.deep.equal(new Date(world.clock.now()));
      expect(world.log.of('event.unsent')).to.have.length(1);
    });
  });
