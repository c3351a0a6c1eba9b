import { expect } from 'chai';
import { createGuard } from '../../../src/webhooks/post/guard.ts';
import { namesResolver } from '../../support/delivery.ts';

const check = async (allowPrivate: readonly string[] | null, loopbackOnly: boolean, url: string, names = {}) => {
  const verdict = await createGuard({ allowPrivate, loopbackOnly }, { resolver: namesResolver(names) }).check(url);
  return verdict.ok ? verdict.addresses[0] : verdict.error;
};

describe('the egress guard', () => {
  it('allows loopback, and nothing else, on a machine where every listener is on loopback', async () => {
    expect(await check(null, true, 'http://127.0.0.1:3000/')).to.equal('127.0.0.1');
    expect(await check(null, true, 'http://[::1]:3000/')).to.equal('::1');
    expect(await check(null, true, 'http://localhost:3000/', { localhost: ['127.0.0.1', '::1'] })).to.equal(
      '127.0.0.1',
    );
    expect(await check(null, true, 'http://10.0.0.1/')).to.equal('forbidden address');
    expect(await check(null, true, 'http://[::ffff:127.0.0.1]/')).to.equal('forbidden address');
  });

  it('allows nothing when a listener is public', async () => {
    expect(await check(null, false, 'http://127.0.0.1:3000/')).to.equal('forbidden address');
  });

  it('follows allow_private alone once it is set, even if empty', async () => {
    expect(await check([], true, 'http://127.0.0.1:3000/')).to.equal('forbidden address');
    expect(await check(['10.0.0.0/8'], true, 'http://127.0.0.1:3000/')).to.equal('forbidden address');
    expect(await check(['10.0.0.0/8'], false, 'http://10.1.2.3/')).to.equal('10.1.2.3');
    expect(await check(['10.1.2.3'], false, 'http://10.1.2.4/')).to.equal('forbidden address');
    expect(await check(['fd00::/8', '[::1]'], false, 'http://[fd00::5]/')).to.equal('fd00::5');
    expect(await check(['fd00::/8', '[::1]'], false, 'http://[::1]/')).to.equal('::1');
    expect(await check([' 192.168.1.1 '], false, 'http://192.168.1.1/')).to.equal('192.168.1.1');
  });

  it('restricts the ports also where addresses are allowed', async () => {
    expect(await check(['127.0.0.1'], false, 'http://127.0.0.1:25/')).to.equal('forbidden address');
  });

  it('returns all checked addresses and the port', async () => {
    const guard = createGuard(
      { allowPrivate: null, loopbackOnly: false },
      { resolver: namesResolver({ 'a.example': ['2606:4700::1111', '1.1.1.1'] }) },
    );
    expect(await guard.check('https://A.example./x')).to.deep.equal({
      ok: true,
      addresses: ['2606:4700::1111', '1.1.1.1'],
      port: 443,
    });
  });

  it('distinguishes a missing name from a failed lookup', async () => {
    expect(await check(null, false, 'https://nowhere.example/')).to.equal('host not found');
    expect(await check(null, false, 'https://empty.example/', { 'empty.example': [] })).to.equal('host not found');
    expect(await check(null, false, 'https://broken.example/', { 'broken.example': 'failure' })).to.equal(
      'DNS failure',
    );
    expect(await check(null, false, 'not a url')).to.equal('host not found');
    expect(await check(null, false, 'http://')).to.equal('host not found');
  });

  it('does not start with an invalid setting', () => {
    for (const entry of ['localhost', '10.0.0.0/33', '10.0.0', 'private', '', '1.2.3.4/x', '::/129']) {
      expect(
        () => createGuard({ allowPrivate: [entry], loopbackOnly: false }, { resolver: namesResolver({}) }),
        entry,
      ).to.throw(/allow_private/);
    }
  });
});
