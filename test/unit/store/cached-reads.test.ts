import { expect } from 'chai';
import { createCachedReads } from '../../../src/store/cached-reads.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import { createTestClock } from '../../support/clock.ts';
import { failure } from '../../support/store-notes.ts';

describe('a cached value of the store', () => {
  const FRESH_MS = 5000;
  function world() {
    const clock = createTestClock();
    const state = { value: 'one', away: false, reads: 0 };
    const beliefs = createCachedReads(
      async (key) => {
        state.reads++;
        if (state.away) throw new StoreAway('away');
        return `${key} ${state.value}`;
      },
      FRESH_MS,
      { clock },
    );
    return { clock, state, beliefs };
  }

  it('is read once per interval', async () => {
    const { clock, state, beliefs } = world();
    expect(await beliefs.of('a')).to.equal('a one');
    state.value = 'two';
    await clock.advance(FRESH_MS - 1);
    expect([await beliefs.of('a'), state.reads]).to.deep.equal(['a one', 1]);
    await clock.advance(1);
    expect(await beliefs.of('a')).to.equal('a two');
  });

  it('stays valid while the store is unavailable, which is queried once in two seconds for all callers', async () => {
    const { clock, state, beliefs } = world();
    await beliefs.of('a');
    state.away = true;
    await clock.advance(FRESH_MS);
    for (let n = 0; n < 5; n++) expect(await beliefs.of('a')).to.equal('a one');
    expect(state.reads).to.equal(2);
    await clock.advance(2000);
    await beliefs.of('a');
    await clock.advance(0);
    expect(state.reads).to.equal(3);
    Object.assign(state, { away: false, value: 'two' });
    await clock.advance(2000);
    await beliefs.of('a');
    await clock.advance(0);
    expect(await beliefs.of('a')).to.equal('a two');
  });

  it('is missing if the store is unavailable and was never read, and an error for callers that need it', async () => {
    const { state, beliefs } = world();
    state.away = true;
    expect(await beliefs.of('a')).to.equal(undefined);
    expect(await failure(beliefs.now('a'))).to.be.instanceOf(StoreAway);
  });

  it('changes at once with a change on this host', async () => {
    const { beliefs, state } = world();
    await beliefs.of('a');
    beliefs.keep('a', 'mine');
    expect(await beliefs.of('a')).to.equal('mine');
    expect(await beliefs.now('a')).to.equal('a one');
    expect(state.reads).to.equal(2);
  });
});
