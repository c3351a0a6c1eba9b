import { expect } from 'chai';
import { withStore } from '../../../src/cli/open.ts';
import { loadSettings } from '../../../src/config.ts';
import type { Store } from '../../../src/store/store.ts';
import { postern } from '../../support/command.ts';
import { putIp } from '../../support/ips.ts';
import { tempDir } from '../../support/temp.ts';

describe('postern ip', () => {
  let env: Record<string, string>;
  beforeEach(async () => {
    env = { POSTERN_DATA_DIR: await tempDir() };
  });

  const ip = (...argv: string[]) => postern(['ip', ...argv], env);
  const within = <T>(use: (store: Store) => Promise<T>) => withStore(loadSettings(undefined, env).settings, use);
  const listed = async (): Promise<{ ip: string; [name: string]: unknown }[]> => (await ip('list', '--json')).json();

  it('adds, lists and removes addresses', async () => {
    expect(await ip('add', '192.0.2.1')).to.include({ code: 0, out: 'Added 192.0.2.1\n' });
    expect((await ip('add', '192.0.2.2', '--domain', 'Out.Example.NET', '--json')).json()).to.deep.equal([
      { ip: '192.0.2.2', domain: 'out.example.net' },
    ]);
    const nothing = { account: null, custom_domain: null, custom_state: null, free_at: null };
    expect(await listed()).to.deep.equal([
      { ip: '192.0.2.1', state: 'free', domain: null, ...nothing },
      { ip: '192.0.2.2', state: 'free', domain: 'out.example.net', ...nothing },
    ]);
    expect((await ip('list')).out)
      .to.match(/address\s+state/)
      .and.to.match(/192\.0\.2\.2\s+free\s+-\s+out\.example\.net/);
    expect(await ip('remove', '192.0.2.1')).to.include({ code: 0, out: 'Removed 192.0.2.1\n' });
    expect((await listed()).map((one) => one.ip)).to.deep.equal(['192.0.2.2']);
  });

  it('recognises an address in every notation', async () => {
    for (const spelling of ['2001:DB8:0:0::1', '2001:0db8::0001', '2001:db8::1', '2001:db8:0:0:0:0:0.0.0.1'])
      expect((await ip('add', spelling)).out).to.equal('Added 2001:db8::1\n');
    for (const spelling of ['::ffff:192.0.2.1', '::FFFF:c000:201', '192.0.2.1'])
      expect((await ip('add', spelling)).out).to.equal('Added 192.0.2.1\n');
    expect((await listed()).map((one) => one.ip)).to.deep.equal(['192.0.2.1', '2001:db8::1']);
    expect((await ip('remove', '2001:0DB8::1')).code).to.equal(0);
  });

  it('exits with 64 for invalid addresses, addresses that cannot send, and invalid domains', async () => {
    for (const word of [
      'x',
      '192.0.2',
      '192.0.2.256',
      '010.0.0.1',
      '192.0.2.1/32',
      '192.0.2.1:25',
      'fe80::1%eth0',
      '::',
      '0.0.0.0',
      '255.255.255.255',
      '224.0.0.1',
      'ff02::1',
      '',
      '1',
    ]) {
      expect((await ip('add', word)).code, word).to.equal(64);
    }
    for (const domain of ['a b.example', 'localhost', '', '-.example', '192.0.2.1', `${'a'.repeat(64)}.example`])
      expect((await ip('add', '192.0.2.1', `--domain=${domain}`)).code, domain).to.equal(64);
    for (const argv of [['add'], ['remove'], ['add', '192.0.2.1', '192.0.2.2'], ['remove', '192.0.2.9']])
      expect((await ip(...argv)).code, argv.join(' ')).to.equal(64);
    expect(await listed()).to.deep.equal([]);
  });

  it('does not change addresses of an account', async () => {
    await within((store) =>
      putIp(store, 'shop', '192.0.2.1', {
        domain: 'out.example.net',
        customDomain: 'mail.shop.example',
        customState: 'pending',
      }),
    );
    expect((await ip('remove', '192.0.2.1')).err).to.contain('192.0.2.1 is in use by account shop');
    expect((await ip('add', '192.0.2.1', '--domain', 'new.example.net')).code).to.equal(64);
    expect(await listed()).to.deep.equal([
      {
        ip: '192.0.2.1',
        state: 'in use',
        account: 'shop',
        domain: 'out.example.net',
        custom_domain: 'mail.shop.example',
        custom_state: 'pending',
        free_at: null,
      },
    ]);
  });

  it('shows resting addresses, and releases one by adding it again, with its domain kept or changed', async () => {
    await within((store) =>
      putIp(store, '', '192.0.2.1', { homeDomain: 'out.example.net', freeAt: new Date('2999-01-01T00:00:00Z') }),
    );
    expect((await listed())[0]).to.include({ state: 'resting', free_at: '2999-01-01 00:00:00' });
    await ip('add', '192.0.2.1');
    expect((await listed())[0]).to.include({ state: 'free', domain: 'out.example.net', free_at: null });
    await ip('add', '192.0.2.1', '--domain', 'new.example.net');
    expect((await listed())[0]).to.include({ state: 'free', domain: 'new.example.net' });
  });

  it('reports how many accounts wait', async () => {
    const request = { token: 't', pool: 'Main Pool', warmup: false, requestedAt: new Date(0), ip: null, claim: null };
    await within(async (store) => {
      await store.ipRequests.insert({ ...request, id: 'a', account: 'a' });
    });
    expect((await ip('list')).out).to.contain('1 account is waiting for an address.');
    await within(async (store) => {
      await store.ipRequests.insert({ ...request, id: 'b', account: 'b' });
    });
    expect((await ip('list')).out).to.contain('2 accounts are waiting for an address.');
  });
});
