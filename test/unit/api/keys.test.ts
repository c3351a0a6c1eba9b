import { expect } from 'chai';
import { keyHash, revokeKey } from '../../../src/store/rows/accounts.ts';

import { type ApiWorld, KEY, OTHER_KEY, startApi } from '../../support/api.ts';

describe('API keys', () => {
  let world: ApiWorld;
  afterEach(() => world.stop());

  const ping = (key: unknown, headers = {}) => world.send('/users/ping.json', JSON.stringify({ key }), headers);
  async function fail(times: number, headers = {}) {
    const statuses = [];
    for (let i = 0; i < times; i++) statuses.push((await ping('wrong', headers)).status);
    return statuses;
  }

  it('are unknown within two seconds of their revocation', async () => {
    world = await startApi();
    expect((await ping(KEY)).status).to.equal(200);
    await revokeKey(world.store, keyHash(KEY), world);
    await world.clock.advance(2000);
    const { status, body } = await ping(KEY);
    expect({ status, body }).to.deep.equal({
      status: 401,
      body: { status: 'error', code: -1, name: 'Invalid_Key', message: 'Invalid API key' },
    });
  });

  it('are not found in the store once revoked, so that they take as long as unknown ones', async () => {
    const found: unknown[] = [];
    world = await startApi({
      store: (real) => ({
        ...real,
        keys: {
          ...real.keys,
          one: async (filter) => {
            const row = await real.keys.one(filter);
            found.push(row);
            return row;
          },
        },
      }),
    });
    await world.store.keys.change({ id: keyHash(KEY) }, { revokedAt: new Date(world.clock.now()) });
    expect((await world.call('/users/ping')).status).to.equal(401);
    expect(found).to.deep.equal([undefined]);
  });

  it('revoked by an older version, or by an interrupted command, are moved by another revocation', async () => {
    world = await startApi();
    await world.store.keys.change({ id: keyHash(KEY) }, { revokedAt: new Date(5) });
    for (let n = 0; n < 2; n++) {
      await revokeKey(world.store, keyHash(KEY), world);
      expect(
        (await world.store.keys.many({}))
          .filter(({ id }) => id.startsWith(keyHash(KEY)))
          .map(({ id, revokedAt }) => [id, revokedAt]),
      ).to.deep.equal([[`${keyHash(KEY)} revoked`, new Date(5)]]);
      expect((await world.call('/users/ping')).status).to.equal(401);
    }
  });

  it('get 429 for the rest of the minute after too many wrong ones', async () => {
    world = await startApi({ settings: { maxBadKeysPerMinute: 3 } });
    expect(await fail(3)).to.deep.equal([401, 401, 401]);
    const { status, body, headers } = await ping('wrong');
    expect({ status, body }).to.deep.equal({
      status: 429,
      body: {
        status: 'error',
        code: 429,
        name: 'RequestLimitExceeded',
        message: 'Too Many Requests attempted recently',
      },
    });
    expect(headers.get('retry-after')).to.equal('60');
    await world.clock.advance(60_000);
    expect((await ping('wrong')).status).to.equal(401);
  });

  it('that are valid are not blocked by wrong ones from the same address', async () => {
    world = await startApi({ settings: { maxBadKeysPerMinute: 3 } });
    await fail(20);
    for (let n = 0; n < 3; n++) expect((await ping(KEY)).status).to.equal(200);
    expect((await ping(OTHER_KEY)).status, 'one that was never looked up before').to.equal(200);
    expect(await fail(1), 'and do not excuse wrong ones').to.deep.equal([429]);
  });

  it('are counted by the address that a trusted proxy reports: the nearest untrusted one', async () => {
    world = await startApi({
      settings: { maxBadKeysPerMinute: 1, trustedProxies: ['127.0.0.0/8', '10.0.0.1', '2001:db8::/32'] },
    });
    expect(await fail(2, { 'x-forwarded-for': '192.0.2.1' })).to.deep.equal([401, 429]);
    expect(await fail(2, { 'x-forwarded-for': '192.0.2.9, 192.0.2.2, 10.0.0.1' })).to.deep.equal([401, 429]);
    expect(
      (await ping(KEY, { 'x-forwarded-for': '192.0.2.9' })).status,
      'what the client wrote itself is not believed',
    ).to.equal(200);
    expect(await fail(2, { 'x-forwarded-for': '192.0.2.3, 2001:db8::1' })).to.deep.equal([401, 429]);
    expect(await fail(1, { 'x-forwarded-for': 'nonsense, <script>' })).to.deep.equal([401]);
  });

  it('are counted by the peer if X-Forwarded-For comes from an untrusted address', async () => {
    world = await startApi({ settings: { maxBadKeysPerMinute: 1 } });
    expect(await fail(1, { 'x-forwarded-for': '192.0.2.1' })).to.deep.equal([401]);
    expect(await fail(1, { 'x-forwarded-for': '192.0.2.2' })).to.deep.equal([429]);
  });

  it('are counted for the whole /64 of an IPv6 client, in any notation', async () => {
    world = await startApi({ settings: { maxBadKeysPerMinute: 1, trustedProxies: ['127.0.0.1'] } });
    expect(await fail(1, { 'x-forwarded-for': '2001:db8:0:1::1' })).to.deep.equal([401]);
    expect(await fail(1, { 'x-forwarded-for': '2001:0DB8:0000:0001:ffff::2' })).to.deep.equal([429]);
    expect(await fail(1, { 'x-forwarded-for': '2001:db8:0:2::1' })).to.deep.equal([401]);
  });

  it('are never logged, valid or not; the call and the rejection are', async () => {
    world = await startApi();
    await ping(KEY);
    await ping('a-wrong-key-that-was-typed');
    expect(JSON.stringify(world.log.lines)).to.not.contain(KEY).and.to.not.contain('a-wrong-key');
    const [first, second] = world.log.of('api.call');
    expect(first?.fields).to.include({
      operation: '/users/ping',
      account: 'ExampleAccountId000001',
      status: 200,
      address: '127.0.0.1',
    });
    expect(second?.fields).to.include({ status: 401, account: undefined });
    expect(world.log.of('api.refused_key')).to.have.length(1);
  });
});
