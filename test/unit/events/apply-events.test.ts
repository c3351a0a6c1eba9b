import { expect } from 'chai';
import { createCounterRemoval } from '../../../src/events/counter-removal.ts';
import { applyEventsTask } from '../../../src/events/record.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { drivers } from '../../support/database.ts';
import { ACCOUNT, countsOf, createRecording, MESSAGE, newEvent, newMessage } from '../../support/recording.ts';

for (const driver of drivers)
  describe(`the task that finishes events, ${driver.name}`, () => {
    let store: Store;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
    });
    afterEach(() => store.close());

    it('applies recorded events once they are half a minute old, once', async () => {
      const world = createRecording(store);
      const { recorder, clock } = world;
      await recorder.begin(newMessage({ subaccount: null }));
      const dead = createRecording(
        { ...store, messages: { ...store.messages, change: () => Promise.reject(new Error('cut off')) } },
        clock,
      );
      await dead.recorder.record(newEvent('send', { at: new Date(clock.now()) }));
      const task = applyEventsTask({ recorder, counterRemoval: createCounterRemoval({ store, clock }), clock });
      await clock.advance(30_000);
      expect(await task.run(), 'too young').to.equal(undefined);
      await clock.advance(1);
      expect(await task.run()).to.deep.equal({ events: 1, tags: 0 });
      expect(await task.run()).to.equal(undefined);
      expect(await countsOf(store, 'tag', 'one')).to.deep.equal({ sent: 1 });
      expect(world.bodies().map(({ event }) => event)).to.deep.equal(['send', 'delivered']);
    });

    it('does not wait for the length of a jump when the clock is set back', async () => {
      const world = createRecording(store);
      const { recorder, clock } = world;
      await recorder.begin(newMessage({ subaccount: null }));
      const dead = createRecording(
        { ...store, messages: { ...store.messages, change: () => Promise.reject(new Error('cut off')) } },
        clock,
      );
      clock.jump(3 * 86_400_000);
      await dead.recorder.record(newEvent('send', { at: new Date(clock.now()) }));
      clock.jump(-3 * 86_400_000);
      const task = applyEventsTask({ recorder, counterRemoval: createCounterRemoval({ store, clock }), clock });
      expect(await task.run()).to.deep.equal({ events: 1, tags: 0 });
      expect(await task.run()).to.equal(undefined);
    });

    it('removes deleted tags from messages that an interrupted call missed', async () => {
      const { recorder, clock } = createRecording(store);
      await recorder.begin(newMessage());
      await recorder.begin(newMessage({ id: 'later', createdAt: new Date(clock.now() + 5) }));
      await store.tagRemovals.insert({
        id: `${ACCOUNT} one`,
        account: ACCOUNT,
        tag: 'one',
        before: new Date(clock.now()),
      });
      const task = applyEventsTask({ recorder, counterRemoval: createCounterRemoval({ store, clock }), clock });
      expect(await task.run(AbortSignal.abort()), 'told to end').to.equal(undefined);
      expect(await task.run()).to.deep.equal({ events: 0, tags: 1 });
      expect((await store.messages.one({ id: MESSAGE }))?.tags).to.deep.equal(['two']);
      expect((await store.messages.one({ id: 'later' }))?.tags, 'sent with it since').to.deep.equal(['one', 'two']);
      expect(await task.run()).to.equal(undefined);
    });

    it('leaves a tag that was deleted again meanwhile to the next run', async () => {
      const { recorder, clock } = createRecording(store);
      await recorder.begin(newMessage());
      const row = { id: `${ACCOUNT} one`, account: ACCOUNT, tag: 'one', before: new Date(clock.now()) };
      await store.tagRemovals.insert(row);
      const again = new Date(clock.now() + 5);
      const messageTags: Store['messageTags'] = {
        ...store.messageTags,
        async many(...asked) {
          await store.tagRemovals.change({ id: row.id }, { before: again });
          return store.messageTags.many(...asked);
        },
      };
      const counterRemoval = createCounterRemoval({ store: { ...store, messageTags }, clock });
      expect(await applyEventsTask({ recorder, counterRemoval, clock }).run()).to.equal(undefined);
      expect(await store.tagRemovals.one({ id: row.id })).to.deep.equal({ ...row, before: again });
    });

    // The same code for every store, and thousands of rows.
    if (driver.kind === 'embedded')
      it('finishes the deletion of a tag for very many messages', async function () {
        this.timeout(60_000);
        const { recorder, clock } = createRecording(store);
        const counterRemoval = createCounterRemoval({ store, clock });
        for (let from = 0; from < 2500; from += 500) {
          await Promise.all(
            Array.from({ length: 500 }, (_, n) =>
              recorder.begin(newMessage({ id: `m ${from + n}`, tags: ['one'], createdAt: new Date(clock.now()) })),
            ),
          );
        }
        await counterRemoval.removeTag(ACCOUNT, 'one');
        expect(await store.messageTags.many({ account: ACCOUNT })).to.have.length(500);
        expect(await applyEventsTask({ recorder, counterRemoval, clock }).run()).to.deep.equal({ events: 0, tags: 1 });
        expect(await store.messageTags.many({ account: ACCOUNT })).to.deep.equal([]);
        expect((await store.messages.many({ account: ACCOUNT })).filter(({ tags }) => tags.length > 0)).to.deep.equal(
          [],
        );
      });
  });
