import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { keyHash } from '../../../src/store/rows/accounts.ts';
import { exportId } from '../../../src/store/rows/exports.ts';
import { ACCOUNT, type ApiWorld, KEY, OTHER_ACCOUNT, OTHER_KEY, startApi } from '../../support/api.ts';
import { EXPORT, exportRow, TOKEN } from '../../support/exports.ts';
import { until } from '../../support/until.ts';

describe('the export operations', () => {
  let world: ApiWorld;
  beforeEach(async () => {
    world = await startApi();
  });
  afterEach(() => world.stop());

  const rowOf = (id: string) => world.store.exportJobs.one({ id: exportId(ACCOUNT, id) });
  const faults = async (params: object) => {
    const { status, body } = await world.call('/exports/activity', params);
    return status === 422 ? JSON.parse(body.message.slice('Validation error: '.length)) : { status };
  };

  for (const [path, type] of [
    ['/exports/rejects', 'reject'],
    ['/exports/whitelist', 'whitelist'],
    ['/exports/allowlist', 'whitelist'],
    ['/exports/activity', 'activity'],
  ] as const) {
    it(`${path} creates a waiting job, and starts it on this host`, async () => {
      const { body } = await world.call(path, {});
      expect(body).to.deep.equal({
        id: '2026-01-05 12:00:00.00000',
        created_at: '2026-01-05 12:00:00',
        type,
        finished_at: null,
        state: 'waiting',
        result_url: null,
        error: null,
      });
      expect(world.poked).to.deep.equal(['run-exports']);
      expect((await world.call('/exports/info', { id: body.id })).body).to.deep.equal(body);
      expect((await rowOf(body.id))?.notifyEmail).to.equal(null);
    });
  }

  it('keep the address to notify, and reject invalid ones', async () => {
    const { body } = await world.call('/exports/whitelist', { notify_email: 'ops+exports@example.com' });
    expect((await rowOf(body.id))?.notifyEmail).to.equal('ops+exports@example.com');
    for (const wrong of [
      'ops',
      'ops@',
      'a@example.com,b@example.com',
      '"a b"@example.com',
      'a@example.com\r\nBcc: b@example.com',
      'Ops <ops@example.com>',
      'ops@[192.0.2.1]',
    ]) {
      const { status, body: refused } = await world.call('/exports/rejects', { notify_email: wrong });
      expect({ status, name: refused.name }, wrong).to.deep.equal({ status: 422, name: 'ValidationError' });
    }
  });

  it('keep the filters of an activity export for the task, and only hashes of API keys', async () => {
    const { body } = await world.call('/exports/activity', {
      date_from: '2026-01-01 00:00:00',
      date_to: '2026-01-04 23:59:59',
      tags: ['a', 'b'],
      senders: ['News@Example.com'],
      states: ['sent', 'soft-bounced'],
      api_keys: [KEY, OTHER_KEY],
    });
    const row = await rowOf(body.id);
    expect(row?.filter).to.deep.equal({
      from: new Date('2026-01-01T00:00:00Z'),
      before: new Date('2026-01-05T00:00:00Z'),
      tags: ['a', 'b'],
      senders: ['news@example.com'],
      states: ['sent', 'soft-bounced'],
      apiKeys: [keyHash(KEY), keyHash(OTHER_KEY)],
    });
    expect(JSON.stringify(row)).to.not.contain(KEY).and.to.not.contain(OTHER_KEY);
  });

  it('treat an empty list and null as no filter', async () => {
    const { body } = await world.call('/exports/activity', { tags: [], senders: [], states: null, api_keys: [] });
    expect((await rowOf(body.id))?.filter).to.deep.equal({
      from: null,
      before: null,
      tags: null,
      senders: null,
      states: null,
      apiKeys: null,
    });
  });

  it('treat a date without a time as that whole day', async () => {
    const { body } = await world.call('/exports/activity', { date_from: '2026-01-04', date_to: '2026-01-04' });
    expect((await rowOf(body.id))?.filter)
      .to.include({})
      .and.to.deep.include({ from: new Date('2026-01-04T00:00:00Z'), before: new Date('2026-01-05T00:00:00Z') });
  });

  it('report all invalid filters at once', async () => {
    expect(
      await faults({
        date_from: 'yesterday',
        date_to: '2026-02-30 00:00:00',
        senders: ['a@example.com', 'nobody'],
        states: ['sent', 'queued'],
      }),
    ).to.deep.equal({
      date_from: 'Please enter a time as YYYY-MM-DD HH:MM:SS in UTC',
      date_to: 'Please enter a time as YYYY-MM-DD HH:MM:SS in UTC',
      senders: '[1]: Not a valid email address',
      states: '[1]: Please enter one of: sent, rejected, bounced, soft-bounced, spam, unsub',
    });
    expect(await faults({ date_from: '2026-01-02 00:00:00', date_to: '2026-01-01 23:59:59' })).to.deep.equal({
      date_to: 'Please enter a time that is not before date_from',
    });
    expect(await faults({ tags: Array.from({ length: 1001 }, () => 'x') })).to.deep.equal({
      tags: 'Please enter at most 1000 items',
    });
    expect(await faults({ date_from: '2026-01-02 00:00:00', date_to: '2026-01-02 00:00:00' })).to.deep.equal({
      status: 200,
    });
    expect(
      await faults({ date_from: '9999-12-31 23:59:59', date_to: '9999-12-31 23:59:59' }),
      'where the calendar ends',
    ).to.deep.equal({ status: 200 });
  });

  it('give every job its own id, however many start in one millisecond', async () => {
    const ids = await Promise.all(
      Array.from({ length: 50 }, async () => (await world.call('/exports/rejects')).body.id),
    );
    expect(ids.toSorted()).to.deep.equal(
      Array.from({ length: 50 }, (_, n) => `2026-01-05 12:00:00.000${String(n).padStart(2, '0')}`),
    );
    expect(
      (await world.call('/exports/rejects', { key: OTHER_KEY })).body.id,
      'another account counts for itself',
    ).to.equal('2026-01-05 12:00:00.00000');
  });

  it('list all of them, newest first', async () => {
    await world.store.exportJobs.remove({ id: exportId(ACCOUNT, EXPORT) });
    const names = Array.from({ length: 1001 }, (_, n) => `2026-01-04 10:00:00.${String(n).padStart(5, '0')}`);
    await Promise.all(names.map((name) => world.store.exportJobs.insert(exportRow(ACCOUNT, name))));
    await world.store.exportJobs.insert(exportRow(OTHER_ACCOUNT, '2026-01-04 10:00:00.00000'));
    const { body } = await world.call('/exports/list');
    expect(body.map(({ id }: { id: string }) => id)).to.deep.equal(names.toReversed());
    const { body: rest } = await world.call('/exports/list', { after: names[1] });
    expect(rest.map(({ id }: { id: string }) => id)).to.deep.equal(names.slice(0, 1));
  });

  it('show why a job failed, and no link when the archive is gone', async () => {
    const finishedAt = new Date('2026-01-05T10:00:00Z');
    await world.store.exportJobs.insert(
      exportRow(ACCOUNT, 'failed', { createdAt: finishedAt, state: 'error', error: 'There is no room', finishedAt }),
    );
    expect((await world.call('/exports/info', { id: 'failed' })).body).to.include({
      state: 'error',
      error: 'There is no room',
      result_url: null,
      finished_at: '2026-01-05 10:00:00',
    });
    await world.store.exportJobs.change({ id: exportId(ACCOUNT, EXPORT) }, { state: 'expired' });
    expect((await world.call('/exports/info', { id: EXPORT })).body).to.include({ state: 'expired', result_url: null });
  });

  it('limit the jobs of an account per day', async () => {
    await world.stop();
    world = await startApi({ settings: { exports: { perDay: 3 } } });
    for (let n = 0; n < 2; n++)
      expect((await world.call('/exports/rejects')).status, `and one was there`).to.equal(200);
    const { status, body } = await world.call('/exports/rejects');
    expect({ status, name: body.name }).to.deep.equal({ status: 429, name: 'RequestLimitExceeded' });
    expect((await world.call('/exports/rejects', { key: OTHER_KEY })).status, 'another account').to.equal(200);
    await world.clock.advance(86_400_001);
    expect((await world.call('/exports/rejects')).status, 'a day later').to.equal(200);
  });
});

describe('GET /exports/<token>', () => {
  let world: ApiWorld;
  const bytes = Buffer.from('PK and so on');
  beforeEach(async () => {
    world = await startApi();
    await mkdir(world.exportsDir);
    await writeFile(join(world.exportsDir, 'ExampleExportFile00001.zip'), bytes);
    await writeFile(join(world.exportsDir, '..', 'secret'), 'not for you');
  });
  afterEach(() => world.stop());

  const get = (token: string, method = 'GET') => fetch(`${world.base}/exports/${token}`, { method });
  const change = (patch: object) => world.store.exportJobs.change({ id: exportId(ACCOUNT, EXPORT) }, patch);

  it('streams the archive under a descriptive name', async () => {
    const response = await get(TOKEN);
    expect(response.status).to.equal(200);
    expect(Buffer.from(await response.arrayBuffer())).to.deep.equal(bytes);
    expect(Object.fromEntries(response.headers)).to.include({
      'content-type': 'application/zip',
      'content-length': String(bytes.length),
      'content-disposition': 'attachment; filename="activity-2026-01-05_09:20:28.zip"',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'content-security-policy': "default-src 'none'; sandbox",
    });
    expect(JSON.stringify(world.log.lines), 'the link is a secret').to.not.contain(TOKEN);
    expect(world.log.of('export.fetched')).to.have.length(1);
  });

  it('answers HEAD without the archive, and leaves no file open', async () => {
    const open = async () => (await readdir('/proc/self/fd')).length;
    const before = await open();
    for (let n = 0; n < 5; n++) {
      const response = await get(TOKEN, 'HEAD');
      expect(response.status).to.equal(200);
      expect(response.headers.get('content-length')).to.equal(String(bytes.length));
      expect(await response.text()).to.equal('');
    }
    await until('the files are closed', async () => (await open()) <= before + 1);
  });

  it('answers 404 for anything but a token, and never looks for such a file', async () => {
    for (const token of [
      'AnotherExportToken0002',
      'x',
      '..%2Fsecret',
      '%2e%2e%2fsecret',
      'ExampleExportFile00001.zip',
      `${TOKEN}%00`,
      encodeURIComponent('{"$gt":""}'),
      '%E0%A4%A',
      'x'.repeat(5000),
    ]) {
      const response = await get(token);
      expect(response.status, token).to.equal(404);
      expect(response.headers.get('content-type')).to.equal('text/plain; charset=utf-8');
      expect(await response.text()).to.equal('There is no export at this address.\n');
    }
  });

  it('answers 410 if the export has expired, or its archive is gone', async () => {
    await change({ file: 'gone.zip' });
    expect((await get(TOKEN)).status).to.equal(410);
    await change({ state: 'expired' });
    const response = await get(TOKEN);
    expect(response.status).to.equal(410);
    expect(await response.text()).to.contain('expired');
  });

  it('answers 404 on a host without the archive, and names the host that has it', async () => {
    await change({ host: 'mx2.postern.test' });
    const response = await get(TOKEN);
    expect(response.status).to.equal(404);
    expect(await response.text())
      .to.contain('mx2.postern.test')
      .and.to.contain('result_url');
  });

  it('accepts no other method', async () => {
    for (const method of ['POST', 'PUT', 'DELETE'])
      expect((await get(TOKEN, method)).status, method).to.be.within(404, 405);
  });
});
