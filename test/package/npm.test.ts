import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { startReceiver } from '../support/receiver.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const BUILD = new URL('../../scripts/npm.sh', import.meta.url).pathname;

/** Reads the answer to its end, so that its connection is free. */
async function statusOf(url: URL): Promise<number> {
  const response = await fetch(url);
  await response.arrayBuffer();
  return response.status;
}

describe('the npm package', function () {
  this.timeout(600_000);
  /** A project that depends on it, as npm lays it out: its packages beside it. */
  let project: string;
  let installed: string;
  before(async () => {
    project = await tempDir();
    const built = execFileSync(BUILD, ['--out', project], { encoding: 'utf8' }).trim();
    writeFileSync(join(project, 'package.json'), '{ "name": "shop", "private": true }');
    // npm's own Node would be the one that runs these tests; a host has another one, or none on its PATH.
    execFileSync('npm', ['install', '--no-audit', '--no-fund', '--prefer-offline', built], {
      cwd: project,
      stdio: 'pipe',
    });
    installed = join(project, 'node_modules/postern');
  });

  const command = () => join(project, 'node_modules/.bin/postern');
  const hostEnv = () => ({ PATH: '/usr/bin:/bin', HOME: project, TMPDIR: project });

  it('has JavaScript where Node runs it, and names no TypeScript to run', () => {
    const named = globSync('src/**/*.js', {
      cwd: installed,
      exclude: (name) => String(name).includes('console/web'),
    }).filter((name) => /(?<!moduleUrl\()'\.\.?\/[^']*\.ts'/.test(readFileSync(join(installed, name), 'utf8')));
    expect(named).to.deep.equal([]);
    const left = globSync('src/**/*.ts', { cwd: installed }).filter((name) => !name.startsWith('src/console/web/'));
    expect(left).to.deep.equal(['src/base/wasm/byte-passes.ts']);
  });

  it('shows the demo on its own Node, without any on the PATH that is new enough', () => {
    const out = execFileSync(command(), ['demo', '--once'], { env: hostEnv(), cwd: '/', encoding: 'utf8' });
    expect(out).to.contain('X-Mandrill-Signature is valid');
  });

  it('serves: mail on threads, webhooks, the reference and the console, until SIGTERM', async () => {
    const hook = await startReceiver();
    const daemon = await spawnDaemon(await tempDir(), { POSTERN_SMTP__THREADS: '2' }, [], [command()]);
    try {
      const { api } = createCaller(daemon.base, KEY);
      await api('/inbound/add-domain', { domain: 'in.shop.test' });
      await api('/inbound/add-route', { domain: 'in.shop.test', pattern: '*', url: hook.url });
      const envelope = { from: 'ada@example.org', to: 'jo@in.shop.test' };
      expect(await sendMail(daemon.smtp, envelope, message('hello'))).to.match(/^250 /);
      await until('the post', () => hook.requests.some(({ method }) => method === 'POST'));
      const page = await (await fetch(`${daemon.base}/console`)).text();
      const [, entry] = /src="([^"]+\.ts)"/.exec(page) ?? [];
      expect(await statusOf(new URL(entry ?? 'none', daemon.base))).to.equal(200);
      expect(await statusOf(new URL('/docs', daemon.base))).to.equal(200);
    } finally {
      expect(await daemon.end()).to.equal(0);
      await hook.stop();
    }
  });
});
