import { expect } from 'chai';
import { createKeyRotation, createKeySwitch } from '../../../src/sending/domains/key-rotation.ts';
import { createDomainKeys } from '../../../src/sending/domains/keys.ts';

import { openStore, type Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { drivers } from '../../support/database.ts';
import { createTestLog } from '../../support/log.ts';
import { changingResolver } from '../../support/senders.ts';
import type { ZoneNode } from '../../support/zone.ts';

const DAY_MS = 24 * 3_600_000;
const SETTINGS = { hostname: 'mx.postern.test', dkimSelector: 'postern' };

for (const driver of drivers) {
  describe(`the rotation of a DKIM key, ${driver.name}`, () => {
    let store: Store;
    let clock: TestClock;
    let zone: Record<string, ZoneNode>;
    let made: number;
    beforeEach(async () => {
      store = await openStore(await driver.open({ crowded: true }));
      clock = createTestClock();
      zone = {};
      made = 0;
      const keys = createDomainKeys({ store, clock, newKeyPair });
      await keys.keyOf('example.com');
    });
    afterEach(() => store.close());

    const newKeyPair = async () => ({ publicKey: `public${++made}`, privateKey: `private${made}` });
    const rotation = () => createKeyRotation(SETTINGS, { store, clock, newKeyPair });
    const look = () =>
      createKeySwitch(SETTINGS, {
        store,
        resolver: changingResolver(() => zone),
        clock,
        log: createTestLog(),
      }).lookAtAll();
    const publish = (selector: string, key: string, ttl = 300) => {
      zone = { ...zone, [`${selector}._domainkey.example.com`]: { TXT: [`v=DKIM1; k=rsa; p=${key}`], ttl } };
    };
    const signing = async () => {
      const row = await store.domainKeys.one({ id: 'example.com' });
      return [row?.selector ?? 'postern', row?.privateKey];
    };

    it('leaves the old key signing until the DNS shows the new one and its TTL has passed', async () => {
      expect(await rotation().begin('example.com')).to.deep.include({ kind: 'begun' });
      expect(await look()).to.equal(0);
      publish('postern2', 'another');
      expect(await look()).to.equal(0);
      publish('postern2', 'public2');
      expect(await look()).to.equal(0);
      await clock.advance(299_000);
      expect([await look(), await signing()]).to.deep.equal([0, ['postern', 'private1']]);
      await clock.advance(1000);
      expect([await look(), await signing()]).to.deep.equal([1, ['postern2', 'private2']]);
      expect(await look()).to.equal(0);
    });

    it('restarts its wait when the record was removed meanwhile, and continues to wait while the DNS does not answer', async () => {
      await rotation().begin('example.com');
      publish('postern2', 'public2');
      await look();
      zone = {};
      await clock.advance(200_000);
      await look();
      publish('postern2', 'public2');
      await look();
      zone = { 'postern2._domainkey.example.com': { fails: 'timeout' } };
      await clock.advance(250_000);
      await look();
      publish('postern2', 'public2');
      await clock.advance(49_000);
      expect(await look()).to.equal(0);
      await clock.advance(1000);
      expect(await look()).to.equal(1);
    });

    it('creates one new key however often it is started, also concurrently, and deletes it when it is cancelled', async () => {
      const begun = await Promise.all([1, 2, 3].map(() => rotation().begin('example.com')));
      expect(new Set(begun.map((one) => 'next' in one && one.next.publicKey)).size).to.equal(1);
      expect(begun.filter(({ kind }) => kind === 'begun')).to.have.length(1);
      expect(await rotation().cancel('example.com')).to.equal(true);
      expect(await rotation().cancel('example.com')).to.equal(false);
      publish('postern2', 'public2', 0);
      expect([await look(), await signing()]).to.deep.equal([0, ['postern', 'private1']]);
      expect(await rotation().begin('nokey.example')).to.deep.equal({ kind: 'no key' });
    });

    it('reserves the selector of the old key for a week, and can use it again afterwards', async () => {
      await rotation().begin('example.com');
      publish('postern2', 'public2', 0);
      expect(await look()).to.equal(1);
      const switched = clock.now();
      expect(await rotation().begin('example.com')).to.deep.equal({
        kind: 'resting',
        until: new Date(switched + 7 * DAY_MS),
      });
      const row = await store.domainKeys.one({ id: 'example.com' });
      expect(row?.previous).to.deep.equal({
        selector: 'postern',
        publicKey: 'public1',
        keepUntil: new Date(switched + 7 * DAY_MS),
      });
      expect(JSON.stringify(row)).to.not.contain('private1');
      await clock.advance(7 * DAY_MS);
      const again = await rotation().begin('example.com');
      expect('next' in again && again.next.selector).to.equal('postern');
      publish('postern', 'public3', 0);
      expect([await look(), await signing()]).to.deep.equal([1, ['postern', 'private3']]);
    });
  });
}
