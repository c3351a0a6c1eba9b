import { expect } from 'chai';
import { createIds, tokenHash } from '../../../src/base/ids.ts';
import {
  addPerson,
  consumeSignInLink,
  createSignInLink,
  LINK_MS,
  openConsoleSession,
  personName,
  removePerson,
  TOKEN,
} from '../../../src/store/rows/people.ts';
import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';

for (const driver of drivers) {
  describe(`people, their links and sessions, over ${driver.name}`, () => {
    let store: Store;
    const clock = createTestClock();
    const parts = { clock, ids: createIds(clock) };
    before(async () => {
      store = await openStore(await driver.open());
    });
    after(() => store.close());

    it('are distinguished by name', async () => {
      const ann = await addPerson(store, { name: 'ann', role: 'owner', account: 'a' }, parts);
      expect(ann).to.include({ name: 'ann', role: 'owner', account: 'a', password: null });
      expect(await addPerson(store, { name: 'ann', role: 'operator', account: null }, parts)).to.equal('taken');
    });

    it('are signed in once for concurrent uses of a link', async () => {
      const token = await createSignInLink(store, 'ann', parts);
      const all = await Promise.all(Array.from({ length: 8 }, () => consumeSignInLink(store, token, parts)));
      expect(all.filter((spent) => spent !== undefined)).to.deep.equal([{ person: 'ann' }]);
    });

    it('store no token, and lose expired rows', async () => {
      const token = await createSignInLink(store, null, parts);
      expect(token).to.match(TOKEN);
      expect(JSON.stringify(await store.enterLinks.many({}))).to.not.contain(token);
      const session = { person: null, by: 'link', address: '192.0.2.1' } as const;
      const { token: cookie, row } = await openConsoleSession(store, session, LINK_MS, parts);
      expect(row.id).to.equal(tokenHash(cookie));
      await clock.advance(LINK_MS + 1);
      expect(await consumeSignInLink(store, token, parts)).to.equal(undefined);
      await createSignInLink(store, null, parts);
      await createSignInLink(store, null, parts);
      await openConsoleSession(store, session, LINK_MS, parts);
      expect(await store.enterLinks.many({})).to.have.length(2);
      expect(await store.consoleSessions.many({})).to.have.length(1);
    });

    it('are deleted with their links and sessions', async () => {
      const bob = await addPerson(store, { name: 'bob', role: 'reader', account: 'a' }, parts);
      if (bob === 'taken') throw new Error('bob is there');
      const token = await createSignInLink(store, bob.id, parts);
      await openConsoleSession(store, { person: bob.id, by: 'link', address: '192.0.2.1' }, LINK_MS, parts);
      await removePerson(store, bob.id);
      expect(await store.people.one({ name: 'bob' })).to.equal(undefined);
      expect(await consumeSignInLink(store, token, parts)).to.equal(undefined);
      expect(await store.consoleSessions.many({ person: bob.id })).to.deep.equal([]);
    });
  });
}

describe('the name of a person', () => {
  it('is compared in one form', () => {
    expect(['Ann', ' ann ', 'ＡＮＮ', 'Ö.b@x+1'].map(personName)).to.deep.equal(['ann', 'ann', 'ann', 'ö.b@x+1']);
    expect(['', 'a b', 'a\nb', '<b>', 'x'.repeat(65)].map(personName)).to.deep.equal(Array(5).fill(undefined));
  });
});
