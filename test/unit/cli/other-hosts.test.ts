import { expect } from 'chai';
import { newestFirst } from '../../../src/cli/other-hosts.ts';

describe('rows of several hosts', () => {
  it('are the newest of all, in order, and those of one host stay in its order', () => {
    const rows = (...times: number[]) => times.map((at) => ({ at }));
    const inTurn = [rows(9, 4, 3), rows(), rows(8, 7, 1)];
    expect(newestFirst(inTurn, 4)).to.deep.equal(rows(9, 8, 7, 4));
    expect(newestFirst(inTurn, 100)).to.deep.equal(rows(9, 8, 7, 4, 3, 1));
    expect(newestFirst([rows(2, 5, 1)], 3)).to.deep.equal(rows(2, 5, 1));
    expect(newestFirst([], 3)).to.deep.equal([]);
  });
});
