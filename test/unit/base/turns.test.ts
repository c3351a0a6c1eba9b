import { expect } from 'chai';
import { createTurns } from '../../../src/base/turns.ts';

describe('turns', () => {
  it('come one after the other in their order, failures among them, and other names beside them', async () => {
    const inTurn = createTurns('run');
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

  it('end with the one that failed, where that is asked for, and begin anew afterwards', async () => {
    const inTurn = createTurns('fail');
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
