import { expect } from 'chai';
import {
  createBoundedCache,
  createExpiringCache,
  createReadCache,
  createSingleFlight,
} from '../../../src/base/cache.ts';
import { createTestClock } from '../../support/clock.ts';

describe('a bounded cache', () => {
  it('drops the oldest above its limit; setting a value again makes it the newest', () => {
    const memory = createBoundedCache<number>({ most: 2 });
    memory.set('a', 1);
    memory.set('b', 2);
    memory.set('a', 3);
    memory.get('b');
    memory.set('c', 4);
    expect(['a', 'b', 'c'].map(memory.get)).to.deep.equal([3, undefined, 4]);
  });

  it('can keep recently used values', () => {
    const memory = createBoundedCache<number>({ most: 2, keepUsed: true });
    memory.set('a', 1);
    memory.set('b', 2);
    memory.get('a');
    memory.set('c', 3);
    expect(['a', 'b', 'c'].map(memory.get)).to.deep.equal([1, undefined, 3]);
  });

  it('is also bounded by weight, and rejects a value above the whole limit', () => {
    const memory = createBoundedCache<string>({ most: 10, weight: { of: (_, text) => text.length, most: 10 } });
    memory.set('a', '12345');
    memory.set('b', '12345');
    memory.set('c', '1');
    memory.set('d', '12345678901');
    expect(['a', 'b', 'c', 'd'].map(memory.get)).to.deep.equal([undefined, '12345', '1', undefined]);
    expect([memory.delete('b'), memory.delete('b')]).to.deep.equal([true, false]);
    memory.set('e', '123456789');
    expect(['c', 'e'].map(memory.get)).to.deep.equal(['1', '123456789']);
  });

  it('drops a value when it expires, and stores none without a lifetime', async () => {
    const clock = createTestClock();
    const memory = createExpiringCache<number>({ most: 10 }, clock);
    memory.set('a', 1, 1000);
    memory.set('b', 2, 0);
    await clock.advance(999);
    expect(['a', 'b'].map(memory.get)).to.deep.equal([1, undefined]);
    await clock.advance(1);
    expect(memory.get('a')).to.equal(undefined);
  });
});

describe('a cached read', () => {
  it('is valid for its lifetime, and read again after a failure or a change', async () => {
    let reads = 0;
    const recent = createReadCache(async (key) => {
      reads++;
      if (key === 'bad') throw new Error('away');
      return reads;
    }, 1000);
    expect(await Promise.all([recent.get('a', 0), recent.get('a', 999)])).to.deep.equal([1, 1]);
    expect(await recent.get('a', 1000)).to.equal(2);
    expect(await recent.get('a', 500), 'the clock was set back').to.equal(3);
    recent.forget('a');
    expect(await recent.get('a', 500)).to.equal(4);
    for (const _ of [1, 2]) await recent.get('bad', 0).catch(() => undefined);
    expect(reads).to.equal(6);
  });

  it('is shared by all callers during a read', async () => {
    let runs = 0;
    const shared = createSingleFlight<number>();
    const run = async () => ++runs;
    expect(await Promise.all([shared('a', run), shared('a', run), shared('b', run)])).to.deep.equal([1, 1, 2]);
    expect(await shared('a', run)).to.equal(3);
  });
});
