import { expect } from 'chai';
import { STORE_FORMAT } from '../../../src/store/rows/hosts.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import type { TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import {
  createMemberships,
  type Given,
  type Memberships,
  type Process,
  WATCHED_MS,
} from '../../support/memberships.ts';

const DAY_MS = 86_400_000;

for (const driver of drivers)
  describe(`the hosts of a store, ${driver.name}`, () => {
    let store: Store;
    let all: Memberships;
    let clock: TestClock;
    const { open, started, start, running, row } = {
      open: (given: Given) => all.open(given),
      started: (one: Process) => all.started(one),
      start: (given: Given) => all.start(given),
      running: (given: Given) => all.running(given),
      row: (id: string) => all.row(id),
    };

    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
      all = createMemberships(store);
      clock = all.clock;
    });
    afterEach(async () => {
      await all.stop();
      await store.close();
    });

    it('have a row each, with a beat that rises while they run', async () => {
      const a = open({ id: 'a' });
      expect(await started(a)).to.equal('runs');
      const before = await row('a');
      expect(before).to.deep.include({ name: 'a.test', version: '1.2.3', features: ['a'] });
      await clock.advance(2000);
      expect((await row('a'))?.beat).to.equal((before?.beat ?? Number.NaN) + 1);
      await a.stop();
      expect(await row('a')).to.deep.include({ incarnation: null, name: 'a.test' });
    });

    it('start at once after a stop, and after a watch when the last process was killed', async () => {
      await (await running({ id: 'a' })).stop();
      const second = open({ id: 'a' });
      await second.start();
      second.cut();
      let runs = false;
      const third = open({ id: 'a' })
        .start()
        .then(() => {
          runs = true;
        });
      await clock.advance(5000);
      expect(runs).to.equal(false);
      await clock.advance(5000);
      await third;
    });

    for (const wrongMs of [0, DAY_MS, -DAY_MS])
      it(`refuse a second one with the same hostname, by a wall clock that is ${wrongMs} ms off`, async () => {
        await start({ id: 'a', name: 'mx.test' });
        expect(await start({ id: 'b', name: 'mx.test', wrongMs })).to.match(
          /^another host with the hostname mx\.test runs on this store \(id a, Postern 1\.2\.3, running since 2026-01-05 12:00:00 UTC by its clock\): set another hostname here, or stop that host first$/,
        );
        expect((await row('b'))?.incarnation ?? null).to.equal(null);
        expect((await row('a'))?.incarnation).to.be.a('string');
        expect(await start({ id: 'c', name: 'other.test' })).to.equal('runs');
      });

    it('let a new machine have the hostname of one that is gone, however wrong its clock was', async () => {
      (await running({ id: 'a', name: 'mx.test', wrongMs: DAY_MS })).cut();
      expect(await start({ id: 'b', name: 'mx.test' })).to.equal('runs');
      expect(await row('a')).to.deep.include({ incarnation: null });
    });

    it('end the one that returns after another machine got its hostname', async () => {
      const a = await running({ id: 'a', name: 'mx.test' });
      a.cut();
      expect(await start({ id: 'b', name: 'mx.test' })).to.equal('runs');
      a.mend();
      await clock.advance(WATCHED_MS + 2000);
      expect((await a.refused).message).to.match(/^another host with the hostname mx\.test runs/);
      expect((await row('b'))?.incarnation).to.be.a('string');
    });

    it('refuse a copy of a disk while the original runs, and leave that alone', async () => {
      await start({ id: 'a' });
      const before = (await row('a'))?.incarnation;
      expect(await start({ id: 'a' })).to.match(
        /^another process runs as this host \(id a, .*\): \/var\/lib\/a is a copy of its queue, or both use one folder\. Stop that process first/,
      );
      expect((await row('a'))?.incarnation).to.equal(before);
    });

    it('never run twice when both copies of a disk start at the same time', async () => {
      const results = [open({ id: 'a' }), open({ id: 'a' }), open({ id: 'a' })].map(async (one) =>
        one.start().then(
          () => 'runs',
          () => 'refused',
        ),
      );
      await clock.advance(3 * WATCHED_MS);
      expect((await Promise.all(results)).filter((result) => result === 'runs')).to.have.length.at.most(1);
    });

    it('never run twice when two hosts of one hostname start at the same time', async () => {
      const results = [open({ id: 'a', name: 'mx.test' }), open({ id: 'b', name: 'mx.test' })].map(async (one) =>
        one.start().then(
          () => 'runs',
          () => 'refused',
        ),
      );
      await clock.advance(3 * WATCHED_MS);
      expect((await Promise.all(results)).filter((result) => result === 'runs')).to.have.length.at.most(1);
    });

    it('run without the store, and join when it is back', async () => {
      const a = open({ id: 'a' });
      a.cut();
      expect(await started(a)).to.equal('runs');
      expect(await row('a')).to.equal(undefined);
      a.mend();
      await clock.advance(2000);
      expect(await row('a')).to.deep.include({ name: 'a.test' });
    });

    it('keep running when the store was restored to an older state, or the row was deleted', async () => {
      const a = await running({ id: 'a' });
      await store.hosts.change({ id: 'a' }, { incarnation: 'an older process', beat: 7 });
      await clock.advance(WATCHED_MS + 2000);
      expect((await row('a'))?.incarnation).to.match(/^process/);
      await store.hosts.remove({ id: 'a' });
      await clock.advance(2000);
      expect((await row('a'))?.incarnation).to.match(/^process/);
      expect(await Promise.race([a.refused, 'runs'])).to.equal('runs');
    });

    it('start at once on a store of their own, also after a crash', async () => {
      const first = open({ id: 'a', alone: true });
      await first.start();
      first.cut();
      await open({ id: 'a', alone: true }).start();
      expect((await row('a'))?.incarnation).to.equal(`process ${all.count()}`);
    });

    it('refuse a store that a newer Postern has upgraded, at the start and while they run', async () => {
      const a = await running({ id: 'a' });
      await store.revisions.change({ id: 'format' }, { count: STORE_FORMAT + 1 });
      const text =
        /^this store was upgraded by a newer Postern \(store format 2; Postern [\d.]+ reads up to 1\): upgrade/;
      expect(await start({ id: 'b' })).to.match(text);
      await clock.advance(2000);
      expect((await a.refused).message).to.match(text);
      expect((await store.revisions.one({ id: 'format' }))?.count).to.equal(STORE_FORMAT + 1);
    });
  });
