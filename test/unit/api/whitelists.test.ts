import { expect } from 'chai';
import { ACCOUNT, type ApiWorld, startApi } from '../../support/api.ts';
import { rejectRow, whitelistRow } from '../../support/lists.ts';

describe('the whitelist', () => {
  let world: ApiWorld;
  let group = '/whitelists';
  beforeEach(async () => {
    world = await startApi();
    group = '/whitelists';
  });
  afterEach(() => world.stop());

  const ok = async (operation: string, params: object = {}) => {
    const { status, body } = await world.call(`${group}/${operation}`, params);
    expect(status, JSON.stringify(body)).to.equal(200);
    return body;
  };
  const emails = async (params: object = {}) => (await ok('list', params)).map(({ email }: { email: string }) => email);
  const refused = async (operation: string, params: object) => {
    const { status, body } = await world.call(`${group}/${operation}`, params);
    return { status, message: body.message };
  };

  for (const name of ['/whitelists', '/allowlists'])
    it(`adds an address with its comment, shows it, and removes it, by ${name}`, async () => {
      group = name;
      expect(await ok('add', { email: 'Ann@Example.COM', comment: 'Whitelisted internal address' })).to.deep.equal({
        email: 'ann@example.com',
        added: true,
      });
      expect(await ok('list', { email: 'ANN' })).to.deep.equal([
        { email: 'ann@example.com', detail: 'Whitelisted internal address', created_at: '2026-01-05 12:00:00' },
      ]);
      expect(await ok('delete', { email: 'aNN@example.com' })).to.deep.equal({
        email: 'ann@example.com',
        deleted: true,
      });
      expect(await ok('delete', { email: 'ann@example.com' })).to.deep.equal({
        email: 'ann@example.com',
        deleted: false,
      });
      expect(await emails()).to.deep.equal(['friend@example.com']);
    });

  it('removes the address from the rejection list, including subaccounts, and reports each change', async () => {
    for (const subaccount of ['', 'cust-123'])
      await world.store.rejects.insert(
        rejectRow(ACCOUNT, 'ann@example.com', { subaccount, reason: 'spam', expiresAt: new Date('2027-01-01') }),
      );
    await ok('add', { email: 'ann@example.com' });
    expect((await world.call('/rejects/list', { email: 'ann', include_expired: true })).body).to.deep.equal([]);
    const events = world.published.map(({ event }) => JSON.parse(event.body));
    expect(events.map(({ type, action }) => `${type} ${action}`).toSorted()).to.deep.equal([
      'blacklist remove',
      'blacklist remove',
      'whitelist add',
    ]);
    expect(events.find(({ type }) => type === 'whitelist')).to.deep.include({
      entry: { email: 'ann@example.com', detail: null, created_at: '2026-01-05 12:00:00' },
    });
  });

  it('costs no reputation, even if an event had made the entry', async () => {
    const reputation = async () => (await world.call('/users/info')).body.reputation;
    const before = await reputation();
    for (let i = 0; i < 10; i++) {
      await world.store.rejects.insert(
        rejectRow(ACCOUNT, `${i}@example.com`, { reason: 'spam', expiresAt: new Date('2027-01-01') }),
      );
      await ok('add', { email: `${i}@example.com` });
    }
    expect(await reputation()).to.equal(before);
  });

  it('succeeds again for an existing address, and updates a given comment', async () => {
    for (const comment of ['one', 'two', null, ''])
      expect(await ok('add', { email: 'ann@example.com', comment })).to.include({ added: true });
    expect((await ok('list', { email: 'ann' })).map(({ detail }: { detail: string }) => detail)).to.deep.equal(['two']);
  });

  it('accepts a comment of up to 255 characters', async () => {
    expect(await ok('add', { email: 'ann@example.com', comment: 'c'.repeat(255) })).to.include({ added: true });
    expect(await refused('add', { email: 'ann@example.com', comment: 'c'.repeat(256) })).to.deep.equal({
      status: 422,
      message: 'Validation error: {"comment":"Please enter at most 255 characters"}',
    });
  });

  it('rejects invalid addresses', async () => {
    for (const operation of ['add', 'delete']) {
      for (const email of ['nobody', 'a b@example.com', 'a@example.com\r\nb', '@example.com', 'a@']) {
        expect(await refused(operation, { email })).to.deep.equal({
          status: 422,
          message: 'Validation error: {"email":"Not a valid email address"}',
        });
      }
    }
  });

  it('keeps a comment as given, and matches a U-label domain by its A-label', async () => {
    await ok('add', { email: '📮@Bücher.example', comment: 'a\r\nb 📮 =1+1' });
    expect(await ok('list', { email: '📮@bücher.example' })).to.deep.equal([
      { email: '📮@xn--bcher-kva.example', detail: 'a\r\nb 📮 =1+1', created_at: '2026-01-05 12:00:00' },
    ]);
    expect(await ok('delete', { email: '📮@xn--bcher-kva.example' })).to.include({ deleted: true });
  });

  it('lists by address and finds by its prefix, taking characters literally', async () => {
    for (const email of ['b@example.com', 'a_c@example.com', '100%@example.com', 'abc@example.com'])
      await ok('add', { email });
    expect(await emails()).to.deep.equal([
      '100%@example.com',
      'a_c@example.com',
      'abc@example.com',
      'b@example.com',
      'friend@example.com',
    ]);
    expect(await emails({ email: 'a_' })).to.deep.equal(['a_c@example.com']);
    for (const email of ['%', '_', '*', '.*', "' OR 1=1", '$ne'])
      expect(await emails({ email }), email).to.deep.equal([]);
    expect(await emails({ email: '' })).to.have.length(5);
  });

  it('lists 1000 entries of 1001, without removed rows whose event still waits', async () => {
    const email = (i: number) => `a${String(i).padStart(4, '0')}@example.com`;
    await Promise.all(
      Array.from({ length: 1000 }, (_, i) => world.store.whitelists.insert(whitelistRow(ACCOUNT, email(i)))),
    );
    await world.store.whitelists.insert(whitelistRow(ACCOUNT, 'a@example.com', { removed: true }));
    const found = await emails();
    expect(found).to.have.length(1000);
    expect([found[0], found[999]]).to.deep.equal([email(0), email(999)]);
    expect(await emails({ email: 'a09' })).to.have.length(100);
  });
});
