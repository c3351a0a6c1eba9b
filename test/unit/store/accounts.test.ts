import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { bootstrap, createAccount } from '../../../src/store/rows/accounts.ts';
import { createTestClock } from '../../support/clock.ts';
import { openTestStore } from '../../support/store.ts';

describe('an account that is created', () => {
  it('is there, with the next number, although a host died between the first account and its count', async () => {
    const clock = createTestClock();
    const parts = { clock, ids: createIds(clock) };
    const store = await openTestStore();
    const add = () => Promise.reject(new Error('the host is dead'));
    const died = await bootstrap({ ...store, revisions: { ...store.revisions, add } }, '', parts).catch(() => 'died');
    expect(died).to.equal('died');
    const second = await createAccount(store, 'second', parts);
    const third = await createAccount(store, 'third', parts);
    const all = await store.accounts.many({}, { sort: 'number' });
    expect(all.map(({ id, number }) => [id, number]).slice(1)).to.deep.equal([
      [second.id, 2],
      [third.id, 3],
    ]);
    await store.close();
  });
});
