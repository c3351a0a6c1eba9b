import { expect } from 'chai';
import { createKeyedMutex, createSemaphore } from '../../../src/base/concurrency.ts';

describe('turns', () => {
  it('run one after another in order, including failures; other names run in parallel', async () => {
    const inTurn = createKeyedMutex('run');
    const seen: string[] = [];
    let open = () => {};
    const first = inTurn(
      'a',
      () =>
        new Promise<string>((resolve) => {
          seen.push('first');
          open = () => resolve('done');
        }),
    );
    const second = inTurn('a', () => {
      seen.push('second');
      return Promise.reject(new Error('no'));
    }).catch((error: Error) => error.message);
    const third = inTurn('a', async () => {
      seen.push('third');
    });
    await inTurn('b', async () => {
      seen.push('other');
    });
    expect(seen).to.deep.equal(['first', 'other']);
    open();
    expect([await first, await second, await third]).to.deep.equal(['done', 'no', undefined]);
    expect(seen).to.deep.equal(['first', 'other', 'second', 'third']);
    expect(await inTurn('a', async () => 'again')).to.equal('again');
  });

  it('can stop at the first failure, and start again afterwards', async () => {
    const inTurn = createKeyedMutex('fail');
    const seen: string[] = [];
    const failing = inTurn('a', () => Promise.reject(new Error('away')));
    const waiting = inTurn('a', async () => {
      seen.push('waiting');
    });
    expect((await Promise.allSettled([failing, waiting])).map(({ status }) => status)).to.deep.equal([
      'rejected',
      'rejected',
    ]);
    expect(await inTurn('a', async () => 'again')).to.equal('again');
    expect(seen).to.deep.equal([]);
  });
});

describe('slots', () => {
  it('limit concurrency, run the rest in the order of the calls, and are released after a failure', async () => {
    const slots = createSemaphore(2);
    const began: string[] = [];
    const ends = new Map<string, (failure?: Error) => void>();
    const start = (name: string) =>
      slots.run(() => {
        began.push(name);
        return new Promise<string>((resolve, reject) =>
          ends.set(name, (failure) => (failure ? reject(failure) : resolve(name))),
        );
      });
    const all = Promise.allSettled(['a', 'b', 'c', 'd'].map(start));
    expect([began, slots.waiting()]).to.deep.equal([['a', 'b'], 2]);
    ends.get('b')?.(new Error('no'));
    // In the turn that frees the slot, a new call comes behind those that wait.
    const late = start('late');
    await new Promise(setImmediate);
    expect([began, slots.waiting()]).to.deep.equal([['a', 'b', 'c'], 2]);
    for (const name of ['a', 'c', 'd', 'late']) {
      ends.get(name)?.();
      await new Promise(setImmediate);
    }
    expect((await all).map(({ status }) => status)).to.deep.equal(['fulfilled', 'rejected', 'fulfilled', 'fulfilled']);
    expect(await late).to.equal('late');
    expect([began, slots.waiting()]).to.deep.equal([['a', 'b', 'c', 'd', 'late'], 0]);
  });
});
