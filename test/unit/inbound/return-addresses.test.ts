import { expect } from 'chai';
import { createReturnAddresses } from '../../../src/inbound/return-addresses.ts';
import { bounceAddress, unsubAddress } from '../../../src/mail/addresses/return-address.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

const SECRET = 'a secret';
const MESSAGE = '0123456789abcdef0123456789abcdef';

describe('return addresses', () => {
  let store: Store;
  const clock = createTestClock();
  const log = createTestLog();
  const stops: (() => Promise<void>)[] = [];
  beforeEach(async () => {
    store = await openTestStore(log);
    await addAccount('one', 1);
  });
  afterEach(async () => {
    for (const stop of stops.splice(0)) await stop();
    await store.close();
  });

  const addAccount = (id: string, number: number) =>
    store.accounts.insert({ id, name: id, number, createdAt: new Date(0) });
  async function start(secret: () => Promise<string> = async () => SECRET) {
    const addresses = createReturnAddresses(
      { returnDomain: 'bounces.postern.test', refreshMs: 2000 },
      { store, secret, clock, log },
    );
    stops.push(() => addresses.stop());
    await addresses.start();
    return (address: string) =>
      addresses.lookup(address.slice(0, address.lastIndexOf('@')), address.slice(address.lastIndexOf('@') + 1));
  }
  const bounceOf = (account: number) => bounceAddress(SECRET, account, MESSAGE, 'bounces.postern.test');
  const ofAccount = (account: string) => ({
    kind: 'matched',
    match: { kind: 'return', task: 'read', account, routeId: '', pattern: '', url: 'return:' },
  });

  it('belong to the account in their token; addresses for complaints to none', async () => {
    const look = await start();
    expect(look(bounceOf(1))).to.deep.equal(ofAccount('one'));
    expect(look(unsubAddress(SECRET, 1, MESSAGE, 'BOUNCES.postern.test').toUpperCase())).to.deep.equal(
      ofAccount('one'),
    );
    expect(look('fbl@bounces.postern.test')).to.deep.equal(ofAccount(''));
    expect(look('abuse@bounces.postern.test')).to.deep.equal(ofAccount(''));
    for (const mailbox of ['postmaster', 'x', '', bounceAddress('another', 1, MESSAGE, '').slice(0, -1)])
      expect(look(`${mailbox}@bounces.postern.test`), mailbox).to.deep.equal({ kind: 'no-route' });
  });

  it('are not recognised outside the return domain', async () => {
    const look = await start();
    for (const domain of ['postern.test', 'x.bounces.postern.test', '[127.0.0.1]', ''])
      expect(look(bounceOf(1).replace('bounces.postern.test', domain)), domain).to.equal(undefined);
  });

  it('may be at the return path domain of their message, and are valid only there', async () => {
    const look = await start();
    const own = 'bounces.customer.test';
    const [bounce, unsub] = [bounceAddress(SECRET, 1, MESSAGE, own, own), unsubAddress(SECRET, 1, MESSAGE, own, own)];
    for (const address of [bounce, unsub, unsub.toUpperCase()])
      expect(look(address), address).to.deep.equal(ofAccount('one'));
    for (const address of [bounce, unsub])
      expect(look(address.replace(own, 'bounces.postern.test')), address).to.deep.equal({ kind: 'no-route' });
    const forged = bounceAddress('another secret', 1, MESSAGE, own, own);
    for (const address of [
      bounce.replace(own, 'customer.test'),
      forged,
      `unsub-${bounce}`,
      `fbl@${own}`,
      `abuse@${own}`,
      `x@${own}`,
      `@${own}`,
    ])
      expect(look(address), address).to.equal(undefined);
  });

  it('are unknown before the secret and the accounts were read, not invalid', async () => {
    let away = true;
    const look = await start(async () => {
      if (away) throw new StoreAway('away');
      return SECRET;
    });
    expect(look(bounceOf(1))).to.deep.equal({ kind: 'unknown' });
    expect(look('x@bounces.postern.test')).to.deep.equal({ kind: 'unknown' });
    expect(look(bounceOf(1).replace('bounces.postern.test', 'bounces.customer.test'))).to.deep.equal({
      kind: 'unknown',
    });
    expect(look('x@bounces.customer.test')).to.equal(undefined);
    away = false;
    await clock.advance(2000);
    await until('it is read', () => look(bounceOf(1))?.kind === 'matched');
    expect(log.of('daemon.fault')).to.deep.equal([]);
  });

  it('of new accounts are found, including one whose row came late', async () => {
    const look = await start();
    await addAccount('three', 3);
    await clock.advance(2000);
    await until('the third', () => look(bounceOf(3))?.kind === 'matched');
    await addAccount('two', 2);
    expect(look(bounceOf(2))).to.deep.equal({ kind: 'unknown' });
    await until('the second', () => look(bounceOf(2))?.kind === 'matched');
    expect(look(bounceOf(2))).to.deep.equal(ofAccount('two'));
  });
});
