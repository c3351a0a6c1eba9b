import { expect } from 'chai';
import { NO_COUNTS } from '../../../src/mail/stats.ts';
import { counterId } from '../../../src/store/rows/counters.ts';
import { ACCOUNT, type ApiWorld, HOUR_MS, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { putCounts } from '../../support/counts.ts';
import { drivers } from '../../support/database.ts';
import { createRecording, newMessage } from '../../support/recording.ts';

const NOW = Date.UTC(2026, 0, 5, 12);
const hoursAgo = (hours: number) => new Date(NOW - hours * HOUR_MS);

for (const driver of drivers)
  describe(`tags, ${driver.name}`, () => {
    let world: ApiWorld;
    beforeEach(async () => {
      world = await startApi({ database: (log) => driver.open({ log, crowded: true }) });
    });
    afterEach(() => world.stop());

    const call = async (path: string, params: object = {}) => (await world.call(path, params)).body;
    const put = (key: string, counts: object, at: Date) => putCounts(world.store, ACCOUNT, 'tag', key, counts, at);
    const allOf = (tag: string) => world.store.counters.many({ account: ACCOUNT, kind: 'tag', key: tag });

    it('are listed by name with totals of all time and the reputation of the last two months', async () => {
      await put('b', { sent: 1000 }, new Date('2025-12-01T00:00:00Z'));
      await put('a', { sent: 1000, complaints: 5 }, new Date('2025-11-30T23:59:59Z'));
      await put('Z', { sent: 100, hardBounces: 10, unsubs: 1 }, hoursAgo(1));
      const list = await call('/tags/list');
      expect(list.map((one: any) => [one.tag, one.sent, one.reputation])).to.deep.equal([
        ['Z', 100, 33],
        ['a', 1000, 50],
        ['b', 1000, 92],
        ['example-tag', 40, 58],
      ]);
      expect(list[0]).to.include({ hard_bounces: 10, unsubs: 1, unique_opens: 0 });
    });

    /** Totals alone, which is what a list shows. */
    async function putTotals(names: readonly string[], firstAt: Date): Promise<void> {
      const start = new Date(0);
      for (let from = 0; from < names.length; from += 100) {
        await Promise.all(
          names.slice(from, from + 100).map((key) =>
            world.store.counters.insert({
              ...NO_COUNTS,
              id: counterId(ACCOUNT, 'tag', 'total', start, key),
              account: ACCOUNT,
              kind: 'tag',
              span: 'total',
              key,
              start,
              firstAt,
            }),
          ),
        );
      }
    }

    it('are listed a thousand at a time', async function () {
      this.timeout(30_000);
      const names = Array.from({ length: 1100 }, (_, n) => `tag ${String(n).padStart(4, '0')}`);
      const now = new Date(NOW);
      await putTotals(names, now);
      for (const key of ['tag 0001', 'tag 1001'])
        await putCounts(world.store, OTHER_ACCOUNT, 'tag', key, { sent: 1 }, now);
      await putCounts(world.store, ACCOUNT, 'tag', 'tag 0998', { sent: 998 }, now);
      const first = await call('/tags/list');
      expect(first.map((one: any) => one.tag)).to.deep.equal(['example-tag', ...names]);
      expect(first[999]).to.include({ sent: 998, reputation: 92 });
      const second = await call('/tags/list', { after: names[998] });
      expect(second.map((one: any) => one.tag)).to.deep.equal(names.slice(999));
      expect(await call('/tags/list', { after: 'tag 9' })).to.deep.equal([]);
    });

    it('show windows that end now', async () => {
      for (const [hours, sent] of [
        [11, 1],
        [13, 2],
        [24 * 7, 4],
        [24 * 7 + 1, 8],
        [24 * 30, 16],
        [24 * 60, 32],
        [24 * 90, 64],
        [24 * 91, 128],
      ] as const)
        await put('t', { sent, opens: 1 }, hoursAgo(hours));
      const { stats, ...totals } = await call('/tags/info', { tag: 't' });
      expect(totals).to.deep.equal({
        tag: 't',
        sent: 255,
        hard_bounces: 0,
        soft_bounces: 0,
        rejects: 0,
        complaints: 0,
        unsubs: 0,
        opens: 8,
        clicks: 0,
      });
      expect(Object.entries(stats).map(([name, block]: any) => [name, block.sent])).to.deep.equal([
        ['today', 1],
        ['last_7_days', 7],
        ['last_30_days', 31],
        ['last_60_days', 63],
        ['last_90_days', 127],
      ]);
    });

    it('have a time series of the hours with activity in the last 30 days', async () => {
      for (const hours of [24 * 31, 24 * 30, 3, 50]) await put('t', { sent: hours, unsubs: 1 }, hoursAgo(hours));
      const series = await call('/tags/time-series', { tag: 't' });
      expect(series.map((one: any) => [one.time, one.sent, one.unsubs])).to.deep.equal([
        ['2025-12-06 12:00:00', 720, 1],
        ['2026-01-03 10:00:00', 50, 1],
        ['2026-01-05 09:00:00', 3, 1],
      ]);
    });

    // The same code for every store, and thousands of rows.
    if (driver.kind === 'embedded')
      it('have a complete combined time series, even if an hour has more tags than a page', async function () {
        this.timeout(60_000);
        const names = Array.from({ length: 1203 }, (_, n) => `t${String(n).padStart(4, '0')}`);
        for (const hours of [3, 4]) for (const name of names) await put(name, { sent: 1 }, hoursAgo(hours));
        await put('alone', { sent: 1 }, hoursAgo(7));
        const list = (await call('/tags/all-time-series')).filter(({ tag }: any) => tag !== 'example-tag');
        expect(list.map(({ tag }: any) => tag)).to.deep.equal(['alone', ...names, ...names]);
        expect(new Set(list.map(({ time }: any) => time)).size).to.equal(3);
        const { time, tag } = list[700];
        expect(await call('/tags/all-time-series', { after_time: time, after_tag: tag })).to.have.length(
          list.length - 701 + 1,
        );
      });

    it('have a combined time series by hour and tag that is read in pages', async () => {
      await put('b', { sent: 1 }, hoursAgo(5));
      await put('a', { sent: 2 }, hoursAgo(5));
      await put('c', { sent: 3 }, hoursAgo(24 * 31));
      await put('a', { sent: 4 }, hoursAgo(3));
      const list = await call('/tags/all-time-series');
      const short = (rows: any) => rows.map((one: any) => [one.time, one.tag, one.sent]);
      expect(short(list)).to.deep.equal([
        ['2026-01-05 07:00:00', 'a', 2],
        ['2026-01-05 07:00:00', 'b', 1],
        ['2026-01-05 09:00:00', 'a', 4],
        ['2026-01-05 09:00:00', 'example-tag', 40],
      ]);
      for (const [n, { time, tag }] of list.entries())
        expect(await call('/tags/all-time-series', { after_time: time, after_tag: tag })).to.deep.equal(
          list.slice(n + 1),
        );
      expect(
        await call('/tags/all-time-series', { after_time: '2020-01-01', after_tag: 'z' }),
        'from the beginning',
      ).to.deep.equal(list);
      expect(
        await call('/tags/all-time-series', { after_time: '2026-01-05 07:00:00' }),
        'before every tag of the hour',
      ).to.deep.equal(list);
    });

    it('without any counts are not listed', async () => {
      for (const path of ['/tags/info', '/tags/time-series', '/tags/delete']) {
        expect(await call(path, { tag: 'mytag' })).to.deep.equal({
          status: 'error',
          code: 1,
          name: 'Invalid_Tag_Name',
          message: 'no such tag "mytag"',
        });
        expect(await call(path, { tag: 'Example-Tag' }), 'letters count').to.include({ name: 'Invalid_Tag_Name' });
        for (const tag of ['__proto__', 'example-tag\0', 'example\ud800'])
          expect(await call(path, { tag }), JSON.stringify(tag)).to.include({ name: 'Invalid_Tag_Name' });
      }
    });

    describe('that are deleted', () => {
      it('return the last record, and are gone with all their numbers', async () => {
        for (let day = 0; day < 30; day++) await put('example-tag', { sent: 1 }, hoursAgo(day * 24 + 5));
        const [before] = await call('/tags/list');
        expect(await call('/tags/delete', { tag: 'example-tag' })).to.deep.equal(before);
        expect(await allOf('example-tag')).to.deep.equal([]);
        expect(await call('/tags/list')).to.deep.equal([]);
        expect(await call('/tags/all-time-series')).to.deep.equal([]);
        expect(await call('/tags/delete', { tag: 'example-tag' })).to.include({ name: 'Invalid_Tag_Name' });
        expect((await call('/users/info')).stats.all_time.sent, 'the account keeps its own').to.equal(40);
      });

      it('leave sent messages, and tags of other accounts', async () => {
        const { recorder } = createRecording(world.store, world.clock);
        const ids = Array.from({ length: 5 }, (_, n) => String(n).repeat(32));
        const begin = (id: string, fields: object) =>
          recorder.begin(newMessage({ id, account: ACCOUNT, tags: ['kept', 'gone'], ...fields }));
        for (const id of ids) await begin(id, {});
        await begin('f'.repeat(32), { account: OTHER_ACCOUNT });
        for (const id of ids)
          await recorder.record({ id: `event ${id}`, account: ACCOUNT, message: id, kind: 'send', at: hoursAgo(1) });
        await recorder.record({
          id: 'other',
          account: OTHER_ACCOUNT,
          message: 'f'.repeat(32),
          kind: 'send',
          at: hoursAgo(1),
        });
        await call('/tags/delete', { tag: 'gone' });
        for (const id of ids) expect((await world.store.messages.one({ id }))?.tags).to.deep.equal(['kept']);
        expect((await world.store.messageTags.many({ account: ACCOUNT })).map(({ tag }) => tag)).to.deep.equal(
          Array.from(ids, () => 'kept'),
        );
        expect((await world.store.messages.one({ id: 'f'.repeat(32) }))?.tags).to.deep.equal(['kept', 'gone']);
        expect(await call('/tags/info', { key: OTHER_KEY, tag: 'gone' })).to.include({ sent: 1 });
        expect(await world.store.tagRemovals.many({})).to.deep.equal([]);
        await recorder.record({ id: 'later', account: ACCOUNT, message: ids[0] ?? '', kind: 'open', at: hoursAgo(0) });
        expect(await allOf('gone'), 'what happens to them later is not counted of it').to.deep.equal([]);
        await begin('e'.repeat(32), { createdAt: new Date(NOW + 1) });
        await recorder.record({
          id: 'new',
          account: ACCOUNT,
          message: 'e'.repeat(32),
          kind: 'send',
          at: new Date(NOW),
        });
        expect(await call('/tags/info', { tag: 'gone' }), 'new mail makes it anew').to.include({ sent: 1 });
      });

      it('twice at once do no harm', async () => {
        await world.store.counters.add(
          'not of this account',
          {},
          {
            ...NO_COUNTS,
            account: OTHER_ACCOUNT,
            kind: 'tag',
            key: 'example-tag',
            span: 'total',
            start: new Date(0),
            firstAt: new Date(0),
          },
        );
        const answers = await Promise.all(
          Array.from({ length: 10 }, () => call('/tags/delete', { tag: 'example-tag' })),
        );
        expect(answers.filter(({ tag }) => tag === 'example-tag').length).to.be.greaterThan(0);
        for (const answer of answers)
          expect([answer.tag, answer.name]).to.include(answer.tag === undefined ? 'Invalid_Tag_Name' : 'example-tag');
        expect(await allOf('example-tag')).to.deep.equal([]);
        expect(await world.store.counters.many({ account: OTHER_ACCOUNT })).to.have.length(1);
      });
    });
  });
