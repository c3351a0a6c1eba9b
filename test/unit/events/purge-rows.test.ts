import { expect } from 'chai';
import { createRunningTime } from '../../../src/base/running-time.ts';
import { purgeRowsTask } from '../../../src/events/record.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { putCounts } from '../../support/counts.ts';
import { drivers } from '../../support/database.ts';
import { ACCOUNT, createRecording, MESSAGE, newEvent, newMessage } from '../../support/recording.ts';

const DAY_MS = 86_400_000;

for (const driver of drivers)
  describe(`the purge of rows, ${driver.name}`, () => {
    let store: Store;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
    });
    afterEach(() => store.close());

    it('deletes hours outside every window, and keeps the sums', async () => {
      const clock = createTestClock();
      const task = purgeRowsTask({ keepDays: 90 }, { store, clock, time: createRunningTime(clock) });
      for (const days of [0, 90, 92, 410])
        await putCounts(store, ACCOUNT, 'subaccount', 'cust', { sent: 1 }, new Date(clock.now() - days * DAY_MS));
      expect(await task.run()).to.deep.equal({ counters: 9, urls: 0, events: 0, tags: 0, messages: 0 });
      const rows = await store.counters.many({ account: ACCOUNT });
      const left = (span: string) => rows.filter((row) => row.span === span).map(({ sent }) => sent);
      expect([left('minute'), left('hour'), left('week'), left('total')]).to.deep.equal([[1], [1, 1], [1], [4]]);
      expect(left('month'), 'of the last year').to.have.length(2);
      expect(await task.run(), 'nothing is left to do').to.equal(undefined);
    });

    it('deletes messages with their tags and events after the set number of days', async () => {
      const clock = createTestClock();
      const { recorder } = createRecording(store, clock);
      for (const [id, days] of [
        ['a', 11],
        ['b', 9],
      ] as const) {
        const at = new Date(clock.now() - days * DAY_MS);
        await recorder.begin(newMessage({ id, createdAt: at }));
        await recorder.record(newEvent('send', { id: `event ${id}`, message: id, at }));
      }
      expect(
        await purgeRowsTask({ keepDays: 10 }, { store, clock, time: createRunningTime(clock) }).run(),
      ).to.deep.equal({
        counters: 2,
        urls: 0,
        events: 1,
        tags: 2,
        messages: 1,
      });
      expect((await store.messages.many({})).map(({ id }) => id)).to.deep.equal(['b']);
      expect(await recorder.record(newEvent('open', { message: 'a' }))).to.equal('unknown');
      expect(await recorder.record(newEvent('open', { message: 'b' }))).to.equal('recorded');
    });

    it('deletes links that were neither sent nor clicked within a window, with their hours', async () => {
      const clock = createTestClock();
      const { recorder } = createRecording(store, clock);
      for (const [id, days] of [
        ['a', 93],
        ['b', 2],
      ] as const) {
        const at = new Date(clock.now() - days * DAY_MS);
        await recorder.begin(newMessage({ id, createdAt: at }));
        await recorder.record(
          newEvent('send', {
            id: `event ${id}`,
            message: id,
            at,
            links: ['https://both.example/', `https://${id}.example/`],
          }),
        );
      }
      expect(await purgeRowsTask({ keepDays: 400 }, { store, clock, time: createRunningTime(clock) }).run()).to.include(
        { urls: 1 },
      );
      const urls = await store.urls.many({ account: ACCOUNT });
      expect(urls.map(({ url, sent }) => [url, sent]).sort()).to.deep.equal([
        ['https://b.example/', 1],
        ['https://both.example/', 2],
      ]);
      expect((await store.urlHours.many({ account: ACCOUNT })).map(({ sent }) => sent)).to.deep.equal([1, 1]);
    });

    it('deletes nothing after a jump of the clock, and ends early on request', async () => {
      const clock = createTestClock();
      const { recorder } = createRecording(store, clock);
      await recorder.begin(newMessage());
      const task = purgeRowsTask({ keepDays: 10 }, { store, clock, time: createRunningTime(clock) });
      clock.jump(1000 * DAY_MS);
      expect(await task.run()).to.equal(undefined);
      await clock.advance(700_000);
      expect(await task.run(AbortSignal.abort())).to.equal(undefined);
      expect(await store.messages.one({ id: MESSAGE })).to.not.equal(undefined);
      expect(await task.run()).to.include({ messages: 1 });
    });

    it('handles many rows in steps', async () => {
      const clock = createTestClock();
      const createdAt = new Date(clock.now() - 100 * DAY_MS);
      const many = driver.kind === 'embedded' ? 1203 : 30;
      await Promise.all(
        Array.from({ length: many }, (_, n) =>
          store.messageTags.insert({ id: `m ${n}`, account: ACCOUNT, tag: 't', message: 'm', createdAt }),
        ),
      );
      expect(await purgeRowsTask({ keepDays: 90 }, { store, clock, time: createRunningTime(clock) }).run()).to.include({
        tags: many,
      });
      expect(await store.messageTags.many({})).to.deep.equal([]);
    });
  });
