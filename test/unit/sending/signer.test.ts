import { expect } from 'chai';
import { createDomainKeys } from '../../../src/sending/domains/keys.ts';
import { createSigning } from '../../../src/sending/signing.ts';
import { newSenderDomain, type SenderDomainRow } from '../../../src/store/rows/domains.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { OUTGOING } from '../../support/sending-world.ts';
import { openTestStore } from '../../support/store.ts';
import { until } from '../../support/until.ts';

describe('the signing domain of outgoing mail', () => {
  let clock: TestClock;
  let store: Store;
  beforeEach(async () => {
    clock = createTestClock();
    store = await openTestStore();
  });
  afterEach(() => store.close());

  /** What the DNS says when the records of a domain are looked up again. */
  let published: (row: SenderDomainRow) => Partial<SenderDomainRow> | Promise<Partial<SenderDomainRow>>;
  let log: ReturnType<typeof createTestLog>;
  let tested: string[];
  beforeEach(() => {
    published = () => ({});
    log = createTestLog();
    tested = [];
  });
  const signing = (ownDomain = '') => {
    const keys = createDomainKeys({
      store,
      clock,
      newKeyPair: async () => ({ publicKey: 'public', privateKey: 'private' }),
    });
    const freshTests = {
      test: async (row: SenderDomainRow) => {
        tested.push(row.domain);
        return { ...row, ...(await published(row)) };
      },
    };
    return createSigning({ ownDomain, dkimSelector: 'postern' }, { store, keys, freshTests, clock, log });
  };
  const signerOf = (ownDomain = '') => signing(ownDomain).signerOf;
  const add = (account: string, domain: string, change: object = {}) =>
    store.senderDomains.insert({
      ...newSenderDomain(account, domain, new Date(clock.now())),
      verifiedAt: new Date(clock.now()),
      spfValid: true,
      dkimValid: true,
      ...change,
    });

  it('is the domain of the sender, if this account may sign for it', async () => {
    await add('acc', 'sender.example');
    expect(await signerOf()('acc', OUTGOING)).to.deep.equal({
      domain: 'sender.example',
      selector: 'postern',
      privateKey: 'private',
    });
    expect(await signerOf()('other', OUTGOING), 'another account has not proven anything').to.equal(null);
  });

  it('is none while a record is not valid, is not valid yet, or ownership was never proven', async () => {
    await add('a', 'sender.example', { verifiedAt: null });
    await add('b', 'sender.example', { dkimValid: false });
    await add('c', 'sender.example', { spfValid: null });
    await add('d', 'sender.example', { dkimValidAfter: new Date(clock.now() + 60_000) });
    for (const account of ['a', 'b', 'c', 'd']) expect(await signerOf()(account, OUTGOING)).to.equal(null);
    await clock.advance(60_000);
    expect(await signerOf()('d', OUTGOING)).to.include({ domain: 'sender.example' });
  });

  it('is the domain of the sender once its records are valid: they are checked, and the start time is stored', async () => {
    await add('acc', 'sender.example', { dkimValid: false, dkimError: 'There is no DKIM record at x.' });
    const { signerOf, outlookOf } = signing();
    expect(await signerOf('acc', OUTGOING)).to.equal(null);
    expect(await outlookOf('acc', OUTGOING)).to.deep.equal({
      signedBy: null,
      warning: 'Not signed by sender.example: There is no DKIM record at x. (/senders/check-domain)',
    });
    published = () => ({ dkimValid: true, dkimValidAfter: new Date(clock.now() + 300_000) });
    await clock.advance(10_000);
    expect((await outlookOf('acc', OUTGOING)).warning).to.match(
      /^Not signed by sender\.example: its DNS records are right, and count from 2026-01-05 12:05:10 UTC, /,
    );
    published = () => ({ dkimValid: true });
    await clock.advance(10_000);
    expect(await signerOf('acc', OUTGOING)).to.include({ domain: 'sender.example' });
    expect(await outlookOf('acc', OUTGOING)).to.deep.equal({ signedBy: 'sender.example', warning: null });
    expect(tested).to.deep.equal(['sender.example', 'sender.example', 'sender.example']);
  });

  it('is not waited for while the DNS does not answer, and not queried without a proof of ownership', async () => {
    await add('acc', 'sender.example', { dkimValid: false });
    await add('other', 'sender.example', { dkimValid: false, verifiedAt: null });
    published = () => new Promise(() => {});
    const signer = signerOf()('acc', OUTGOING);
    await until('the test', () => tested.length === 1);
    await clock.advance(3_000);
    expect(await signer).to.equal(null);
    expect(await signerOf()('other', OUTGOING)).to.equal(null);
    expect(tested).to.deep.equal(['sender.example']);
  });

  it('has a reason if it is not the domain of the sender: at once, and once an hour in the log', async () => {
    await add('acc', 'sender.example', { verifiedAt: null });
    const { outlookOf } = signing('mx.example');
    const reason =
      'the account has not verified the domain (/senders/verify-domain, or postern sender add sender.example on the host)';
    const warning = `Not signed by sender.example: ${reason}`;
    for (let times = 0; times < 3; times++) {
      expect(await outlookOf('acc', OUTGOING)).to.deep.equal({ signedBy: 'mx.example', warning });
      await clock.advance(60_000);
    }
    expect(log.of('message.unsigned').map(({ fields }) => fields)).to.deep.equal([
      { account: 'acc', domain: 'sender.example', signed_by: 'mx.example', reason },
    ]);
    await clock.advance(3_600_000);
    await outlookOf('acc', OUTGOING);
    expect(log.of('message.unsigned')).to.have.length(2);
    expect(await outlookOf('acc', { ...OUTGOING, sender: 'a@mx.example' })).to.deep.equal({
      signedBy: 'mx.example',
      warning: null,
    });
  });

  it('is the domain named by the account, in any case, otherwise that of the sender', async () => {
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

  it('is our own if no other is allowed', async () => {
    expect(await signerOf('mx.example')('acc', OUTGOING)).to.deep.equal({
      domain: 'mx.example',
      selector: 'postern',
      privateKey: 'private',
    });
  });

  it('is cached for some seconds', async () => {
    const signer = signerOf();
    expect(await signer('acc', OUTGOING)).to.equal(null);
    await add('acc', 'sender.example');
    expect(await signer('acc', OUTGOING)).to.equal(null);
    await clock.advance(10_000);
    expect(await signer('acc', OUTGOING)).to.include({ domain: 'sender.example' });
  });
});
