import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';

describe('a daemon whose disk is nearly full', () => {
  let running: TestDaemon;
  afterEach(() => running.stop());

  it('answers 503 to calls that add something; reading and deleting still work', async () => {
    const before = await startDaemon();
    await before.api('/inbound/add-domain', { domain: 'in.test' });
    await before.api('/subaccounts/add', { id: 'sub' });
    await before.api('/templates/add', { name: 'T', code: '<p></p>' });
    await before.api('/rejects/add', { email: 'a@example.com' });
    await before.api('/whitelists/add', { email: 'w@example.com' });
    await before.stop();
    running = await startDaemon({ POSTERN_SPOOL__MIN_FREE_BYTES: '9000000000000000' }, { dir: before.dir });
    const ADDS = [
      ['/inbound/add-domain', { domain: 'new.test' }],
      ['/subaccounts/add', { id: 'new' }],
      ['/templates/add', { name: 'new', code: '<p></p>' }],
      ['/rejects/add', { email: 'b@example.com' }],
      ['/templates/update', { name: 'T', code: 'x'.repeat(10_000) }],
    ] as const;
    for (const [path, params] of ADDS) {
      const { status, body } = await running.ask(path, params);
      expect({ status, name: body.name }, path).to.deep.equal({ status: 503, name: 'ServiceUnavailable' });
    }
    expect(await running.api('/subaccounts/list')).to.have.length(1);
    const DELETES = [
      ['/rejects/delete', { email: 'a@example.com' }],
      ['/whitelists/delete', { email: 'w@example.com' }],
      ['/templates/delete', { name: 'T' }],
      ['/subaccounts/delete', { id: 'sub' }],
      ['/inbound/delete-domain', { domain: 'in.test' }],
    ] as const;
    for (const [path, params] of DELETES) expect((await running.ask(path, params)).status, path).to.equal(200);
    for (const path of [
      '/subaccounts/list',
      '/templates/list',
      '/rejects/list',
      '/whitelists/list',
      '/inbound/domains',
    ])
      expect(await running.api(path), path).to.deep.equal([]);
    expect(running.log.of('store.full')).to.have.length(1);
    expect(running.log.of('api.fault')).to.deep.equal([]);
  });
});
