import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createSigningKeys } from '../../../src/webhooks/signing.ts';
import { createTestClock } from '../../support/clock.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const URL = 'https://hook.test/mail';

describe('signing keys', () => {
  let store: Store;
  const clock = createTestClock();
  const ids = createIds(clock);
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  it('belong to an account and a URL: created at first use, and the same ever after, also in another process', async () => {
    const keys = createSigningKeys({ store, clock, ids });
    const [key] = (await keys.keysFor('a', URL)) ?? [];
    expect(key).to.match(/^[\w-]{32}$/);
    expect(await createSigningKeys({ store, clock, ids }).keysFor('a', URL)).to.deep.equal([key]);
    expect(await keys.keysFor('b', URL)).not.to.deep.equal([key]);
    expect(await keys.keysFor('a', `${URL}2`)).not.to.deep.equal([key]);
  });

  it('are created once for concurrent requests', async () => {
    const all = await Promise.all(
      Array.from({ length: 30 }, () => createSigningKeys({ store, clock, ids }).keysFor('a', URL)),
    );
    expect(new Set(all.flat()).size).to.equal(1);
  });

  it('are two for a day after a rotation, the new one first', async () => {
    const keys = createSigningKeys({ store, clock, ids });
    const [old] = (await keys.keysFor('a', URL)) ?? [];
    const fresh = await keys.rotate('a', URL);
    expect(await keys.keysFor('a', URL)).to.deep.equal([fresh, old]);
    await clock.advance(24 * 3600_000 - 1);
    expect(await keys.keysFor('a', URL)).to.deep.equal([fresh, old]);
    await clock.advance(1);
    expect(await keys.keysFor('a', URL)).to.deep.equal([fresh]);
  });

  it('follow a URL that changes, even during a rotation, to one without its own', async () => {
    const keys = createSigningKeys({ store, clock, ids });
    const [old] = (await keys.keysFor('a', URL)) ?? [];
    const fresh = await keys.rotate('a', URL);
    await keys.carryOver('a', URL, `${URL}2`);
    expect(await keys.keysFor('a', `${URL}2`)).to.deep.equal([fresh, old]);
    expect(await createSigningKeys({ store, clock, ids }).keysFor('a', `${URL}2`)).to.deep.equal([fresh, old]);
    const own = await keys.keysFor('a', `${URL}3`);
    await keys.carryOver('a', URL, `${URL}3`);
    expect(await keys.keysFor('a', `${URL}3`)).to.deep.equal(own);
  });

  it('keep the key of consumers when two rotations overlap', async () => {
    const [old] = (await createSigningKeys({ store, clock, ids }).keysFor('a', URL)) ?? [];
    const [one, other] = await Promise.all([
      createSigningKeys({ store, clock, ids }).rotate('a', URL),
      createSigningKeys({ store, clock, ids }).rotate('a', URL),
    ]);
    const now = (await createSigningKeys({ store, clock, ids }).keysFor('a', URL)) ?? [];
    expect(new Set([one, other]).has(now[0] ?? '')).to.equal(true);
    expect([old, one, other]).to.include(now[1]);
  });

  it('still sign while the store is unavailable; an unknown key is not invented', async () => {
    let away = false;
    const one: Store['signingKeys']['one'] = (filter) =>
      away ? Promise.reject(new StoreAway('away')) : store.signingKeys.one(filter);
    const keys = createSigningKeys({ store: { ...store, signingKeys: { ...store.signingKeys, one } }, clock, ids });
    const known = await keys.keysFor('a', URL);
    away = true;
    await clock.advance(60_000);
    expect(await keys.keysFor('a', URL)).to.deep.equal(known);
    expect(await keys.keysFor('a', `${URL}2`)).to.equal(undefined);
  });

  it('do not delay posts for a store that does not answer; its return is noticed within seconds', async () => {
    let asked = 0;
    let answers: 'at once' | 'never' = 'at once';
    const hanging: ((error: StoreAway) => void)[] = [];
    const one: Store['signingKeys']['one'] = (filter) => {
      asked++;
      if (answers === 'at once') return store.signingKeys.one(filter);
      return new Promise((_, reject) => {
        hanging.push(reject);
      });
    };
    const keys = createSigningKeys({ store: { ...store, signingKeys: { ...store.signingKeys, one } }, clock, ids });
    const [key] = (await keys.keysFor('a', URL)) ?? [];
    answers = 'never';
    await clock.advance(10_000);
    const first = keys.keysFor('a', URL);
    await until('the question', () => hanging.length === 1);
    hanging.pop()?.(new StoreAway('no answer'));
    expect(await first).to.deep.equal([key]);
    const before = asked;
    for (let second = 0; second < 60; second++) {
      // None of these is answered: a post that waited would wait for ever.
      for (let n = 0; n < 50; n++) expect(await keys.keysFor('a', URL)).to.deep.equal([key]);
      await clock.advance(1000);
      if (second === 30) for (const refuse of hanging.splice(0)) refuse(new StoreAway('no answer'));
    }
    expect(asked - before).to.equal(2);
    for (const refuse of hanging.splice(0)) refuse(new StoreAway('no answer'));
    answers = 'at once';
    const fresh = await createSigningKeys({ store, clock, ids }).rotate('a', URL);
    await clock.advance(2000);
    await keys.keysFor('a', URL);
    await until('the new key', async () => (await keys.keysFor('a', URL))?.[0] === fresh);
  });

  it('are read once for each of 20,000 endpoints', async () => {
    let reads = 0;
    const insert: Store['signingKeys']['insert'] = async () => 'inserted';
    const one: Store['signingKeys']['one'] = async () => {
      reads++;
      return undefined;
    };
    const keys = createSigningKeys({
      store: { ...store, signingKeys: { ...store.signingKeys, one, insert } },
      clock,
      ids,
    });
    const ENDPOINTS = 20_000;
    for (let round = 0; round < 2; round++) {
      for (let i = 0; i < ENDPOINTS; i++) await keys.keysFor('a', `${URL}/${i}`);
    }
    expect(reads).to.equal(ENDPOINTS);
  });
});
