import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { scrape } from '../support/metrics.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

describe('process metrics', () => {
  it('have their usual names, and show whether the last settings were loaded', async () => {
    const dir = await tempDir();
    const config = join(dir, 'postern.yaml');
    writeFileSync(config, 'smtp:\n  max_sessions: 100\n');
    const postern = await spawnDaemon(dir, { POSTERN_CONFIG: config });
    try {
      const { names, of, sum } = await scrape(postern.base);
      expect(names).to.include.members([
        'process_cpu_seconds_total',
        'process_resident_memory_bytes',
        'process_open_fds',
        'nodejs_eventloop_lag_p99_seconds',
        'nodejs_gc_duration_seconds',
      ]);
      expect(sum('postern_build_info', { node: process.versions.node, store: 'embedded' })).to.equal(1);
      expect(of('postern_config_last_reload_success')).to.equal(1);
      const success = async () => (await scrape(postern.base)).of('postern_config_last_reload_success');
      writeFileSync(config, 'smtp:\n  no_such_setting: 1\n');
      postern.signal('SIGHUP');
      await until('the refusal to show', async () => (await success()) === 0);
      writeFileSync(config, 'smtp:\n  max_sessions: 100\n');
      postern.signal('SIGHUP');
      await until('the next one to be taken', async () => (await success()) === 1);
      expect((await scrape(postern.base)).of('postern_config_last_reload_success_timestamp_seconds')).to.be.greaterThan(
        of('postern_config_last_reload_success_timestamp_seconds'),
      );
    } finally {
      await postern.end();
    }
  }).timeout(60_000);
});
