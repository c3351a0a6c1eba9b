import { expect } from 'chai';
import { type Candidate, chooseSource, createSources, warmupEnd } from '../../../src/sending/transport/sources.ts';

import { poolId } from '../../../src/store/rows/ips.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { putCounts } from '../../support/counts.ts';
import { drivers } from '../../support/database.ts';
import { putIp } from '../../support/ips.ts';

const CHANCES = 10_000;

/** How many of 10,000 chances, evenly spread, fall on each address; 'host' is the host's own. */
function sharesOf(candidates: readonly Candidate[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (let i = 0; i < CHANCES; i++) {
    const [first = 'host'] = chooseSource(candidates, i / CHANCES);
    counts[first] = (counts[first] ?? 0) + 1;
  }
  return counts;
}

describe('the share of mail per address', () => {
  it('is equal for warm ones', () => {
    expect(sharesOf([{ ip: 'a', share: 1 }])).to.deep.equal({ a: 10_000 });
    expect(sharesOf(['a', 'b', 'c', 'd'].map((ip) => ({ ip, share: 1 })))).to.deep.equal({
      a: 2500,
      b: 2500,
      c: 2500,
      d: 2500,
    });
    expect(sharesOf(['a', 'b', 'c'].map((ip) => ({ ip, share: 1 })))).to.deep.equal({ a: 3334, b: 3333, c: 3333 });
  });

  it('is set by the warmup for a new one; the warm ones take the rest', () => {
    expect(
      sharesOf([
        { ip: 'a', share: 1 },
        { ip: 'b', share: 0.5 },
      ]),
    ).to.deep.equal({ a: 7500, b: 2500 });
    expect(
      sharesOf([
        { ip: 'a', share: 1 },
        { ip: 'b', share: 0.001 },
      ]),
    ).to.deep.equal({ a: 9995, b: 5 });
    expect(
      sharesOf([
        { ip: 'a', share: 0.25 },
        { ip: 'b', share: 1 },
        { ip: 'c', share: 0.5 },
        { ip: 'd', share: 1 },
      ]),
    ).to.deep.equal({ a: 625, b: 4063, c: 1250, d: 4062 });
  });

  it('goes to the host itself if none is warm', () => {
    expect(sharesOf([])).to.deep.equal({ host: 10_000 });
    expect(sharesOf([{ ip: 'a', share: 0.1 }])).to.deep.equal({ a: 1000, host: 9000 });
    expect(
      sharesOf([
        { ip: 'a', share: 0.1 },
        { ip: 'b', share: 0.3 },
      ]),
    ).to.deep.equal({ a: 500, b: 1500, host: 8000 });
  });

  it('falls to the other warm ones if the chosen one cannot reach the destination', () => {
    const candidates = [
      { ip: 'a', share: 1 },
      { ip: 'b', share: 0.5 },
      { ip: 'c', share: 1 },
    ];
    expect(chooseSource(candidates, 0)).to.deep.equal(['b', 'a', 'c']);
    expect(chooseSource(candidates, 0.3)).to.deep.equal(['a', 'c']);
    expect(chooseSource(candidates, 0.9999)).to.deep.equal(['c', 'a']);
  });
});

for (const driver of drivers) {
  describe(`the sending addresses of an account, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    beforeEach(async () => {
      store = await openStore(await driver.open());
      clock = createTestClock();
    });
    afterEach(() => store.close());

    const now = () => new Date(clock.now());
    const choose = (sources: ReturnType<typeof createSources>, account: string, pool: string | null, chance = 0) =>
      sources.choose(account, { pool }, chance, now());
    const assignPools = async (elsewhere: readonly { ip: string; pool: string }[]) => {
      await store.placements.insert({ id: 'a', account: 'a', version: 1, elsewhere, closing: [] });
      for (const pool of new Set(elsewhere.map((one) => one.pool)))
        await store.pools.insert({ id: poolId('a', pool), account: 'a', name: pool, token: pool, createdAt: now() });
    };

    it('are those of its pool, otherwise of the default pool, and never of another account', async () => {
      for (const n of [1, 2, 3]) await putIp(store, 'a', `192.0.2.${n}`);
      await putIp(store, 'b', '192.0.2.9');
      await assignPools([{ ip: '192.0.2.3', pool: 'Bulk' }]);
      const sources = createSources({ store, clock });
      expect(await choose(sources, 'a', null)).to.have.members(['192.0.2.1', '192.0.2.2']);
      expect(await choose(sources, 'a', 'Main Pool')).to.have.members(['192.0.2.1', '192.0.2.2']);
      expect(await choose(sources, 'a', 'Bulk')).to.deep.equal(['192.0.2.3']);
      expect(await choose(sources, 'a', 'Unknown')).to.have.members(['192.0.2.1', '192.0.2.2']);
      expect(await choose(sources, 'b', 'Bulk')).to.deep.equal(['192.0.2.9']);
      expect(await choose(sources, 'c', null)).to.deep.equal([]);
    });

    it('get the daily share that their warmup allows', async () => {
      const warmupStartAt = now();
      for (const n of [1, 2])
        await putIp(store, 'a', `192.0.2.${n}`, { warmupStartAt, warmupEndAt: warmupEnd(warmupStartAt) });
      await assignPools([{ ip: '192.0.2.2', pool: 'Bulk' }]);
      const sources = createSources({ store, clock });
      expect(await choose(sources, 'a', null, 0.9999), 'it has sent nothing so far').to.deep.equal(['192.0.2.1']);
      for (let day = 0; day < 12; day++) {
        await putCounts(store, 'a', 'account', 'a', { sent: 150_000 }, new Date(clock.now() - 23 * 3_600_000));
        await putCounts(store, 'a', 'account', 'a', { sent: 100_000 }, now());
        await clock.advance(5000);
        const share = Math.min(1, (200 * 2 ** day) / 250_000);
        expect(await choose(sources, 'a', null, share - 1e-9), `day ${day}`).to.deep.equal(['192.0.2.1']);
        expect(await choose(sources, 'a', null, share + 1e-9), `day ${day}`).to.deep.equal(
          share < 1 ? [] : ['192.0.2.1'],
        );
        await clock.advance(86_400_000 - 5000);
      }
    });

    it('are cached for some seconds, and no longer used after their return', async () => {
      await putIp(store, 'a', '192.0.2.1');
      const sources = createSources({ store, clock });
      expect(await choose(sources, 'a', null)).to.deep.equal(['192.0.2.1']);
      await store.ips.change({ id: '192.0.2.1' }, { releasedAt: now() });
      expect(await choose(sources, 'a', null)).to.deep.equal(['192.0.2.1']);
      await clock.advance(5000);
      expect(await choose(sources, 'a', null)).to.deep.equal([]);
    });
  });
}

describe('the sending addresses of an account while the store is unavailable', () => {
  it('are the last known ones, or an error', async () => {
    const store = await openStore(await (drivers[0] ?? expect.fail('there is always the embedded store')).open());
    const clock = createTestClock();
    await putIp(store, 'a', '192.0.2.1');
    const sources = createSources({ store, clock });
    const ask = (account: string) =>
      sources.choose(account, { pool: null }, 0, new Date(clock.now())).catch(() => 'failed');
    expect(await ask('a')).to.deep.equal(['192.0.2.1']);
    await store.close();
    await clock.advance(5000);
    expect([await ask('a'), await ask('b'), await ask('a'), await ask('b')]).to.deep.equal([
      ['192.0.2.1'],
      'failed',
      ['192.0.2.1'],
      'failed',
    ]);
  });
});
