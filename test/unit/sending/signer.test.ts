import { expect } from 'chai';
import { createDomainKeys } from '../../../src/sending/domains/keys.ts';
import { createSignerOf } from '../../../src/sending/sending.ts';
import { newSenderDomain } from '../../../src/store/rows/domains.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { OUTGOING } from '../../support/sending-world.ts';
import { openTestStore } from '../../support/store.ts';

describe('who signs mail going out', () => {
  let clock: TestClock;
  let store: Store;
  beforeEach(async () => {
    clock = createTestClock();
    store = await openTestStore();
  });
  afterEach(() => store.close());

  const signerOf = (ownDomain = '') => {
    const keys = createDomainKeys({
      store,
      clock,
      newKeyPair: async () => ({ publicKey: 'public', privateKey: 'private' }),
    });
    return createSignerOf({ ownDomain, dkimSelector: 'postern' }, { store, keys, clock });
  };
  const add = (account: string, domain: string, change: object = {}) =>
    store.senderDomains.insert({
      ...newSenderDomain(account, domain, new Date(clock.now())),
      verifiedAt: new Date(clock.now()),
      spfValid: true,
      dkimValid: true,
      ...change,
    });

  it('is the domain of the sender, when this account may sign for it', async () => {
    await add('acc', 'sender.example');
    expect(await signerOf()('acc', OUTGOING)).to.deep.equal({
      domain: 'sender.example',
      selector: 'postern',
      privateKey: 'private',
    });
    expect(await signerOf()('other', OUTGOING), 'another account has not proven anything').to.equal(null);
  });

  it('is nobody while a record is not valid, is not valid yet, or ownership was never proven', async () => {
    await add('a', 'sender.example', { verifiedAt: null });
    await add('b', 'sender.example', { dkimValid: false });
    await add('c', 'sender.example', { dkimValidAfter: new Date(clock.now() + 60_000) });
    for (const account of ['a', 'b', 'c']) expect(await signerOf()(account, OUTGOING)).to.equal(null);
    await clock.advance(60_000);
    expect(await signerOf()('c', OUTGOING)).to.include({ domain: 'sender.example' });
  });

  it('is the domain that the account named, in any case, else that of the sender', async () => {
    await add('acc', 'sender.example');
    await add('acc', 'named.example');
    const signer = signerOf();
    expect(await signer('acc', { ...OUTGOING, signingDomain: 'Named.example' })).to.include({
      domain: 'named.example',
    });
    expect(await signer('acc', { ...OUTGOING, signingDomain: 'unknown.example' })).to.include({
      domain: 'sender.example',
    });
    expect(await signer('acc', { ...OUTGOING, signingDomain: 'no domain at all' })).to.include({
      domain: 'sender.example',
    });
  });

  it('is our own domain when none of theirs may', async () => {
    expect(await signerOf('mx.example')('acc', OUTGOING)).to.deep.equal({
      domain: 'mx.example',
      selector: 'postern',
      privateKey: 'private',
    });
  });

  it('is remembered for some seconds', async () => {
    const signer = signerOf();
    expect(await signer('acc', OUTGOING)).to.equal(null);
    await add('acc', 'sender.example');
    expect(await signer('acc', OUTGOING)).to.equal(null);
    await clock.advance(10_000);
    expect(await signer('acc', OUTGOING)).to.include({ domain: 'sender.example' });
  });
});
