import { expect } from 'chai';
import { type Collection, type Row, StoreAway } from '../../../src/store/driver/port.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { subaccountRow } from '../../support/lists.ts';
import { ACCOUNT, countsOf, createRecording, MESSAGE, newEvent, newMessage } from '../../support/recording.ts';

// A process interrupted at each of its writes in turn: the write is not done, or done without an answer.

type Cut = 'before' | 'after';

/** A store that goes away for good at its `nth` write. */
function cutStore(store: Store, nth: number, cut: Cut): Store & { readonly writes: () => number } {
  let writes = 0;
  const gone = () => writes >= nth;
  async function write<T>(work: () => Promise<T>): Promise<T> {
    if (gone()) throw new StoreAway('cut off');
    writes++;
    const last = gone();
    if (last && cut === 'before') throw new StoreAway('cut off');
    const answer = await work();
    if (last) throw new StoreAway('cut off');
    return answer;
  }
  const read = async <T>(work: () => Promise<T>): Promise<T> => {
    if (gone()) throw new StoreAway('cut off');
    return work();
  };
  const wrap = <R extends Row>(rows: Collection<R>): Collection<R> => ({
    one: (filter) => read(() => rows.one(filter)),
    many: (filter, page) => read(() => rows.many(filter, page)),
    insert: (row) => write(() => rows.insert(row)),
    change: (filter, patch) => write(() => rows.change(filter, patch)),
    add: (id, amounts, fresh) => write(() => rows.add(id, amounts, fresh)),
    remove: (filter) => write(() => rows.remove(filter)),
    insertAll: (all) => write(() => rows.insertAll(all)),
    removeAll: (filter) => write(() => rows.removeAll(filter)),
  });
  const { messages, messageEvents, messageTags, counters, subaccounts, rejects, whitelists } = store;
  return {
    ...store,
    messages: wrap(messages),
    messageEvents: wrap(messageEvents),
    messageTags: wrap(messageTags),
    counters: wrap(counters),
    subaccounts: wrap(subaccounts),
    rejects: wrap(rejects),
    whitelists: wrap(whitelists),
    writes: () => writes,
  };
}

const KINDS = [
  ['send', { sent: 1 }],
  ['hard_bounce', { hardBounces: 1 }],
  ['open', { opens: 1, uniqueOpens: 1 }],
] as const;

for (const driver of drivers)
  describe(`an event whose recording is interrupted, ${driver.name}`, function () {
    this.timeout(120_000);
    let store: Store;
    before(async () => {
      store = await openStore(await driver.open({ crowded: true }));
    });
    after(() => store.close());

    /** An account of its own in which everything is as new. */
    async function clear(): Promise<void> {
      for (const rows of [
        store.counters,
        store.messages,
        store.messageEvents,
        store.messageTags,
        store.rejects,
        store.subaccounts,
      ]) {
        for (const { id } of await rows.many({})) await rows.remove({ id });
      }
      await store.subaccounts.insert(subaccountRow(ACCOUNT, 'cust-1'));
    }

    // What holds is a matter of the port, so the slower driver need not show it for every kind.
    for (const [kind, counts] of driver.kind === 'embedded' ? KINDS : KINDS.slice(1, 2))
      for (const cut of ['before', 'after'] as const) {
        it(`${kind}: is counted once, listed once and at the webhooks, interrupted ${cut} any write`, async () => {
          let cuts = 0;
          for (let nth = 1; ; nth++) {
            await clear();
            const clock = createTestClock();
            const sound = createRecording(store, clock);
            await sound.recorder.begin(newMessage());
            const failing = cutStore(store, nth, cut);
            const dying = createRecording(failing, clock);
            const answer = await dying.recorder.record(newEvent(kind)).catch((error: unknown) => error);
            if (failing.writes() < nth) break;
            cuts++;
            // Who was not answered says it again; what was answered is left to the sweep.
            if (answer !== 'recorded')
              expect(await sound.recorder.record(newEvent(kind))).to.equal(cut === 'before' ? 'recorded' : 'duplicate');
            await clock.advance(31_000);
            await sound.recorder.finish(new Date(clock.now() - 30_000));
            for (const [thing, key] of [
              ['account', ACCOUNT],
              ['sender', 'news@example.com'],
              ['tag', 'one'],
              ['tag', 'two'],
              ['template', 'welcome'],
              ['subaccount', 'cust-1'],
            ] as const) {
              expect(await countsOf(store, thing, key, 'hour'), `${thing} after write ${nth}`).to.deep.equal(counts);
              if (thing !== 'template')
                expect(await countsOf(store, thing, key, 'total'), `${thing} after write ${nth}`).to.deep.equal(counts);
            }
            expect((await store.messages.one({ id: MESSAGE }))?.opens).to.equal(kind === 'open' ? 1 : 0);
            const row = await store.messageEvents.one({ id: `event-${kind}` });
            expect(row?.appliedAt, 'applied').to.not.equal(null);
            expect(row?.unsent).to.equal(null);
            expect([...dying.published, ...sound.published].map(({ id }) => id)).to.include(`event-${kind}`);
            const entries = await store.rejects.many({ account: ACCOUNT });
            expect(
              entries.map(({ expiresAt }) => expiresAt?.toISOString()),
              'one term',
            ).to.deep.equal(kind === 'hard_bounce' ? ['2026-01-12T11:30:00.000Z'] : []);
          }
          expect(cuts, 'there were writes to be cut off at').to.be.greaterThan(15);
        });
      }

    for (const [name, moment] of [
      ['before it reads the counters', 'before'],
      ['after it has read them', 'after'],
    ] as const) {
      it(`is not counted again by a recorder that was delayed ${name} while another finished it and its marks were deleted`, async () => {
        await clear();
        const clock = createTestClock();
        const sound = createRecording(store, clock);
        await sound.recorder.begin(newMessage());
        let resume = () => {};
        let reached = () => {};
        const free = new Promise<void>((resolve) => {
          resume = resolve;
        });
        const waiting = new Promise<void>((resolve) => {
          reached = resolve;
        });
        const pause = () => {
          reached();
          return free;
        };
        const many: Store['counters']['many'] = async (filter, page) => {
          if (moment === 'before') await pause();
          const rows = await store.counters.many(filter, page);
          if (moment === 'after') await pause();
          return rows;
        };
        const slow = createRecording({ ...store, counters: { ...store.counters, many } }, clock);
        const answer = slow.recorder.record(newEvent('send'));
        await waiting;
        await clock.advance(31_000);
        expect(await sound.recorder.finish(new Date(clock.now() - 30_000))).to.equal(1);
        await sound.recorder.record(newEvent('open'));
        expect(
          (await store.counters.many({ account: ACCOUNT, kind: 'tag', span: 'total', key: 'one' }))[0]?.marks,
          'forgotten',
        ).to.deep.equal(['event-open']);
        resume();
        expect(await answer).to.equal('recorded');
        for (const span of ['hour', 'month', 'total'] as const)
          expect(await countsOf(store, 'tag', 'one', span)).to.deep.equal({ sent: 1, opens: 1, uniqueOpens: 1 });
      });
    }

    it('is finished only by its recorder while it is recent', async () => {
      await clear();
      const clock = createTestClock(Date.UTC(2026, 0, 5, 11, 30));
      const { recorder } = createRecording(store, clock);
      await recorder.begin(newMessage());
      const dying = createRecording(cutStore(store, 2, 'before'), clock);
      expect(await dying.recorder.record(newEvent('send'))).to.equal('recorded');
      expect(await recorder.finish(new Date(clock.now() - 30_000))).to.equal(0);
      await clock.advance(30_001);
      expect(await recorder.finish(new Date(clock.now() - 30_000))).to.equal(1);
      expect(await recorder.finish(new Date(clock.now() - 30_000))).to.equal(0);
    });

    it('that can never be applied does not block others', async () => {
      await clear();
      const world = createRecording(store);
      await world.recorder.begin(newMessage());
      for (let n = 0; n < 120; n++) {
        await store.messageEvents.insert({
          id: `stuck ${n}`,
          account: ACCOUNT,
          message: MESSAGE,
          kind: 'open',
          at: new Date(Date.UTC(2026, 0, 5) + n),
          appliedAt: null,
          detail: {},
          unsent: null,
          unsentSince: null,
        });
      }
      const breaking: Store = {
        ...store,
        messageEvents: {
          ...store.messageEvents,
          change: (filter, patch) =>
            filter.id === 'stuck 119' ? store.messageEvents.change(filter, patch) : Promise.reject(new Error('never')),
        },
      };
      const broken = createRecording(breaking, world.clock);
      expect(await broken.recorder.finish(new Date(world.clock.now()))).to.equal(1);
      expect(broken.log.of('event.fault')).to.have.length(119);
      expect(await world.recorder.finish(new Date(world.clock.now()))).to.equal(119);
      expect(await countsOf(store, 'tag', 'one')).to.deep.equal({ opens: 120, uniqueOpens: 1 });
    });
  });
