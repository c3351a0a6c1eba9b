import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { readArchive, readCsv } from '../support/exports.ts';
import { until } from '../support/until.ts';

describe('an export, from the call to the archive', () => {
  let postern: TestDaemon;
  beforeEach(async () => {
    postern = await startDaemon({ POSTERN_PUBLIC_URL: 'https://mail.example.com' });
  });
  afterEach(() => postern.stop());

  const done = (id: string) =>
    until('the job ends', async () => {
      const job = await postern.api('/exports/info', { id });
      return ['complete', 'error'].includes(job.state) && job;
    });

  it('runs at once, and is downloaded by its link without a key', async () => {
    for (const email of ['b@example.org', 'a@example.org', '+c@example.org'])
      await postern.api('/rejects/add', { email, comment: '=SUM(1)' });
    const started = await postern.api('/exports/rejects');
    expect(started).to.include({ state: 'waiting', finished_at: null, result_url: null });
    const job = await done(started.id);
    expect(job).to.include({ id: started.id, state: 'complete', type: 'reject', error: null });
    expect(job.result_url).to.match(/^https:\/\/mail\.example\.com\/exports\/[\w-]{22}$/);
    const response = await fetch(job.result_url.replace('https://mail.example.com', postern.base));
    expect(response.status).to.equal(200);
    const [entry, ...more] = readArchive(Buffer.from(await response.arrayBuffer()));
    expect(more).to.deep.equal([]);
    expect(entry?.name).to.equal('rejects.csv');
    expect(readCsv(entry?.text ?? '').map(([email, , detail]) => [email, detail])).to.deep.equal([
      ['email', 'detail'],
      ['+c@example.org', '=SUM(1)'],
      ['a@example.org', '=SUM(1)'],
      ['b@example.org', '=SUM(1)'],
    ]);
    expect(await postern.api('/exports/list')).to.deep.equal([job]);
    expect(await readdir(join(postern.dir, 'exports'))).to.have.length(1);
  });

  it('survives a restart, as does a job that had not started', async () => {
    const first = await done((await postern.api('/exports/whitelist')).id);
    const { dir } = postern;
    await postern.stop();
    postern = await startDaemon({ POSTERN_PUBLIC_URL: 'https://mail.example.com' }, { dir });
    expect((await fetch(first.result_url.replace('https://mail.example.com', postern.base))).status).to.equal(200);
    const second = await done((await postern.api('/exports/activity', { states: ['sent'] })).id);
    expect(second.state).to.equal('complete');
  });

  it('runs however many jobs are started at once', async () => {
    const started = await Promise.all(
      Array.from({ length: 12 }, (_, n) => postern.api(n % 2 === 0 ? '/exports/rejects' : '/exports/activity')),
    );
    const jobs = await Promise.all(started.map(({ id }) => done(id)));
    expect(new Set(jobs.map(({ result_url: url }) => url)).size).to.equal(12);
    expect(jobs.every(({ state }) => state === 'complete')).to.equal(true);
  });
});
