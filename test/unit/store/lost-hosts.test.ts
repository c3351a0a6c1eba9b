import { expect } from 'chai';
import { isSilent } from '../../../src/store/rows/hosts.ts';
import type { Store } from '../../../src/store/store.ts';
import { createMemberships, type Given, type Memberships, type Process } from '../../support/memberships.ts';
import { openTestStore } from '../../support/store.ts';

const ADOPT_MS = 60_000;
/** More than the last look takes. */
const SOON_MS = 16_000;
const DAY_MS = 86_400_000;

describe('a host that is lost', () => {
  let store: Store;
  let all: Memberships;
  beforeEach(async () => {
    store = await openTestStore();
    all = createMemberships(store);
  });
  afterEach(async () => {
    await all.stop();
    await store.close();
  });

  const run = (given: Given) => all.running({ adoptAfterMs: ADOPT_MS, features: ['copies=outbound'], ...given });
  const adopterOf = async (id: string) => (await all.row(id))?.adopter ?? null;
  const untilAdopted = () => all.clock.advance(ADOPT_MS + SOON_MS);
  /** Writes a copy as a host does. */
  const copy = (host: string, epoch = 0) =>
    store.copies.insert({
      id: `${host}-${epoch}`,
      kind: 'outbound',
      message: host,
      host,
      epoch,
      state: null,
      result: null,
      deliveries: [],
      content: '',
      parts: 0,
      createdAt: new Date(all.clock.now()),
    });
  /** A host that has mail and is gone. */
  async function lose(given: Given): Promise<Process> {
    const one = await run(given);
    await copy(given.id);
    one.cut();
    return one;
  }

  for (const wrongMs of [0, DAY_MS, -DAY_MS])
    it(`is adopted by one of the others after a minute, by wall clocks that are ${wrongMs} ms off`, async () => {
      const others = [
        await run({ id: 'b', wrongMs }),
        await run({ id: 'c' }),
        await run({ id: 'd', wrongMs: -wrongMs }),
      ];
      await lose({ id: 'a' });
      await all.clock.advance(ADOPT_MS - 2000);
      expect(await adopterOf('a')).to.equal(null);
      await all.clock.advance(SOON_MS);
      const lines = others.flatMap(({ log }) => log.of('host.lost'));
      expect(lines.map(({ level, fields }) => [level, fields['id'], fields['name']])).to.deep.equal([
        ['warn', 'a', 'a.test'],
      ]);
      const row = await all.row('a');
      expect([row?.epoch, row && isSilent(row)]).to.deep.equal([1, true]);
      expect(['b', 'c', 'd']).to.include(row?.adopter);
      expect(row?.adoptedAt).to.be.a('date');
    });

  it('is shown as lost until it is back, even if hosts are adopted by hand only', async () => {
    const b = await run({ id: 'b', adoptAfterMs: 0 });
    const a = await lose({ id: 'a' });
    const lost = () => b.gauges.get('postern_hosts_lost')?.();
    expect(lost()).to.equal(0);
    await untilAdopted();
    expect([lost(), await adopterOf('a')]).to.deep.equal([1, null]);
    a.mend();
    await all.clock.advance(SOON_MS);
    expect(lost()).to.equal(0);
  });

  it('is shown as lost while another has its mail, unless it was handed over', async () => {
    const b = await run({ id: 'b' });
    const a = await lose({ id: 'a' });
    await untilAdopted();
    const lost = () => b.gauges.get('postern_hosts_lost')?.();
    expect([lost(), await adopterOf('a')]).to.deep.equal([1, 'b']);
    a.mend();
    await all.clock.advance(SOON_MS);
    expect([lost(), await adopterOf('a')]).to.deep.equal([0, null]);
    expect(await all.row('a')).to.include({ epoch: 1, silentAt: null, adoptedAt: null });
  });

  it('is not adopted if it was stopped, for any length of time', async () => {
    const b = await run({ id: 'b' });
    const a = await run({ id: 'a' });
    await copy('a');
    await a.stop();
    await all.clock.advance(10 * ADOPT_MS);
    expect(await all.row('a')).to.not.include({ adopter: 'b' });
    expect(b.gauges.get('postern_hosts_lost')?.()).to.equal(0);
  });

  it('is not adopted if it came back with an older version, which does not know the mark, and was stopped', async () => {
    await run({ id: 'b' });
    const a = await lose({ id: 'a' });
    await untilAdopted();
    a.mend();
    await all.clock.advance(SOON_MS);
    const { silentAt = 0 } = (await store.hosts.change({ id: 'a' }, { silentAt: 28, beat: 31 })) ?? {};
    expect(silentAt).to.equal(28);
    await a.stop();
    await untilAdopted();
    expect(await adopterOf('a')).to.equal(null);
  });

  it('is not adopted if nothing of it is in the store, until something is', async () => {
    await run({ id: 'b' });
    (await run({ id: 'a' })).cut();
    await untilAdopted();
    expect(await all.row('a')).to.include({ adopter: null });
    // A write that was under way.
    await copy('a');
    await all.clock.advance(SOON_MS);
    expect(await adopterOf('a')).to.equal('b');
  });

  it('is not adopted while it runs, also if its beats are few', async () => {
    await run({ id: 'b' });
    const a = await run({ id: 'a' });
    await copy('a');
    for (let minute = 0; minute < 5; minute++) {
      a.cut();
      await all.clock.advance(ADOPT_MS - SOON_MS);
      a.mend();
      await all.clock.advance(SOON_MS);
    }
    expect((await all.row('a'))?.epoch ?? 0).to.equal(0);
  });

  it('is not adopted for the time in which the others could not write either', async () => {
    const [b, c] = [await run({ id: 'b' }), await run({ id: 'c' })];
    const a = await lose({ id: 'a' });
    b.cut();
    c.cut();
    await all.clock.advance(10 * ADOPT_MS);
    for (const one of [c, b, a]) {
      one.mend();
      await all.clock.advance(ADOPT_MS / 3);
    }
    await all.clock.advance(ADOPT_MS);
    expect(await all.row('a')).to.not.include({ adopter: 'b' });
    expect(await all.row('a')).to.not.include({ adopter: 'c' });
  });

  it('is adopted once it is silent for that long by the count of a host that has just started', async () => {
    await lose({ id: 'a' });
    await all.clock.advance(DAY_MS / 24);
    await run({ id: 'b' });
    await all.clock.advance(ADOPT_MS - SOON_MS);
    expect(await adopterOf('a')).to.equal(null);
    await all.clock.advance(2 * SOON_MS);
    expect(await adopterOf('a')).to.equal('b');
  });

  it('is adopted if another machine has taken its hostname, and cannot have its disk', async () => {
    await run({ id: 'b' });
    await lose({ id: 'a', name: 'mx.test' });
    await run({ id: 'new', name: 'mx.test' });
    const freed = await all.row('a');
    expect(freed && isSilent(freed)).to.equal(true);
    await untilAdopted();
    expect(['b', 'new']).to.include(await adopterOf('a'));
  });

  for (const how of ['is lost', 'is stopped'] as const)
    it(`is adopted by the next, if its adopter ${how} before it has everything`, async () => {
      const b = await run({ id: 'b' });
      await lose({ id: 'a' });
      await untilAdopted();
      expect(await adopterOf('a')).to.equal('b');
      await copy('b');
      if (how === 'is lost') b.cut();
      else await b.stop();
      const c = await run({ id: 'c' });
      await untilAdopted();
      expect(await all.row('a')).to.include({ adopter: 'c', epoch: 2 });
      expect(await adopterOf('b')).to.equal(how === 'is lost' ? 'c' : null);
      expect(c.log.of('host.lost').map(({ fields }) => [fields['id'], fields['instead']])).to.deep.include([
        'a',
        'b.test',
      ]);
    });

  it('keeps its adopter while that runs, and when everything is taken over', async () => {
    const b = await run({ id: 'b' });
    await run({ id: 'c', adoptAfterMs: 0 });
    await lose({ id: 'a' });
    await untilAdopted();
    await run({ id: 'd' });
    await untilAdopted();
    expect(await adopterOf('a')).to.equal('b');
    await store.copies.remove({ host: 'a' });
    await b.stop();
    await untilAdopted();
    expect(await adopterOf('a')).to.equal('b');
  });

  it('is not adopted by an older version that does not know its kinds of copies', async () => {
    await run({ id: 'old' });
    await lose({ id: 'a', features: ['copies=outbound', 'copies=later', 'format=later'] });
    await untilAdopted();
    expect(await adopterOf('a')).to.equal(null);
    await run({ id: 'new', features: ['copies=outbound', 'copies=later'] });
    await untilAdopted();
    expect(await adopterOf('a')).to.equal('new');
  });

  it('is not run twice if a copy of its disk starts after it was adopted, and then it returns', async () => {
    await run({ id: 'b' });
    const first = await lose({ id: 'a' });
    await untilAdopted();
    // A copy of the disk starts where it was, and then the first one returns.
    const clone = await run({ id: 'a' });
    expect(await all.row('a')).to.include({ adopter: null, epoch: 1 });
    first.mend();
    await all.clock.advance(2 * SOON_MS);
    expect((await first.refused).message).to.match(/^another process runs as this host .* is a copy of its queue/);
    expect((await all.row('a'))?.incarnation).to.equal(clone.incarnation);
  });

  it('does not send while a copy of its disk runs, started while it was cut off', async () => {
    const first = await run({ id: 'a' });
    first.cut();
    const clone = await run({ id: 'a' });
    expect([first.isLive(), clone.isLive()]).to.deep.equal([true, false]);
    for (let ms = 0; ms < 20_000; ms += 250) {
      await all.clock.advance(250);
      expect(first.isLive() && clone.isLive()).to.equal(false);
    }
    expect([first.isLive(), clone.isLive()]).to.deep.equal([false, true]);
  });
});
