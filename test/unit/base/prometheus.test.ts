import { expect } from 'chai';
import { createThreadMetrics } from '../../../src/base/metrics.ts';
import { createPrometheus, SCRAPE_MS } from '../../../src/base/prometheus.ts';
import { createTestClock } from '../../support/clock.ts';
import { readScrape } from '../../support/metrics.ts';

const start = () => {
  const clock = createTestClock();
  const metrics = createPrometheus({ clock }, { ofProcess: false });
  return { clock, metrics, read: async () => readScrape(await metrics.text()) };
};

describe('Prometheus metrics', () => {
  it('are sorted into the first bucket that includes them, and cumulated', async () => {
    const { metrics, read } = start();
    const writes = metrics.histogram('postern_spool_commit_writes');
    for (const value of [1, 2, 2.5, 512, 513]) writes.observe(value);
    const { of } = await read();
    const buckets = ['1', '2', '4', '256', '512', '+Inf'].map((le) =>
      of(`postern_spool_commit_writes_bucket{le="${le}"}`),
    );
    expect(buckets).to.deep.equal([1, 2, 3, 3, 4, 5]);
    expect(of('postern_spool_commit_writes_count')).to.equal(5);
    expect(of('postern_spool_commit_writes_sum')).to.equal(1 + 2 + 2.5 + 512 + 513);
  });

  it('are the same counter for the same labels in any order', async () => {
    const { metrics, read } = start();
    metrics.counter('postern_store_errors_total', { operation: 'one', reason: 'away' }).add();
    metrics.counter('postern_store_errors_total', { reason: 'away', operation: 'one' }).add(2);
    expect((await read()).of('postern_store_errors_total{operation="one",reason="away"}')).to.equal(3);
  });

  it('grow between scrapes and are never counted twice', async () => {
    const { metrics, read } = start();
    const runs = metrics.counter('postern_task_runs_total', { task: 'purge', result: 'done' });
    for (const expected of [1, 2, 3]) {
      runs.add();
      expect((await read()).of('postern_task_runs_total{task="purge",result="done"}')).to.equal(expected);
    }
  });

  it('of threads are added to our own, and stay when a thread ends', async () => {
    const { metrics, read } = start();
    const [first, second] = [metrics.share(), metrics.share()];
    const labels = { type: 'TXT', result: 'answered' };
    metrics.counter('postern_dns_questions_total', labels).add();
    createThreadMetrics(first).counter('postern_dns_questions_total', labels).add(2);
    createThreadMetrics(first).counter('postern_dns_questions_total', labels).add(3); // the next thread in its place
    createThreadMetrics(second).counter('postern_dns_questions_total', { type: 'A', result: 'timeout' }).add();
    createThreadMetrics(second).histogram('postern_dns_seconds').observe(0.02);
    const { of } = await read();
    expect(of('postern_dns_questions_total{type="TXT",result="answered"}')).to.equal(6);
    expect(of('postern_dns_questions_total{type="A",result="timeout"}')).to.equal(1);
    expect([
      of('postern_dns_seconds_count'),
      of('postern_dns_seconds_sum'),
      of('postern_dns_seconds_bucket{le="0.01"}'),
      of('postern_dns_seconds_bucket{le="0.025"}'),
    ]).to.deep.equal([1, 0.02, 0, 1]);
  });

  it('omit and name a part that fails or does not answer in time, and show all others', async () => {
    const { clock, metrics, read } = start();
    metrics.gauge('postern_spool_accepts_mail', () => {
      throw new Error('away');
    });
    metrics.gauge('postern_spool_disk_bytes', () => Promise.reject(new Error('away')));
    metrics.gauge('postern_spool_oldest_waiting_seconds', () => new Promise(() => {}));
    metrics.gauge('postern_store_away', () => 1);
    const reading = read();
    await clock.advance(SCRAPE_MS);
    const { of, sum, series } = await reading;
    for (const metric of [
      'postern_spool_accepts_mail',
      'postern_spool_disk_bytes',
      'postern_spool_oldest_waiting_seconds',
    ]) {
      expect(
        series.some((one) => one.startsWith(`${metric}{`)),
        metric,
      ).to.equal(false);
      expect(of(`postern_scrape_missing{metric="${metric}"}`), metric).to.equal(1);
    }
    expect(sum('postern_scrape_missing')).to.equal(3);
    expect(of('postern_store_away')).to.equal(1);
  });

  it('do not show a recovered part as missing, nor one without values as 0', async () => {
    const { metrics, read } = start();
    let away = true;
    metrics.gauge('postern_spool_disk_bytes', () => {
      if (away) throw new Error('away');
      return 7;
    });
    metrics.gauge('postern_spool_disk_free_bytes', () => undefined);
    expect((await read()).sum('postern_scrape_missing')).to.equal(1);
    away = false;
    const { of, sum, series } = await read();
    expect([of('postern_spool_disk_bytes'), sum('postern_scrape_missing')]).to.deep.equal([7, 0]);
    expect(series).not.to.include('postern_spool_disk_free_bytes{}');
  });

  it('stay bounded when a label value is not from a closed list', async () => {
    const { metrics, read } = start();
    for (let i = 0; i < 10_000; i++) metrics.counter('postern_smtp_logins_total', { result: `r${i}` }).add();
    expect((await read()).series.filter((one) => one.startsWith('postern_smtp_logins_total'))).to.have.length(2000);
  });
});
