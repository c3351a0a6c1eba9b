import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { bringPackages, checkOut } from '../support/package/checkout.ts';
import { stepAt, stepsOf } from '../support/package/steps.ts';
import { startReceiver } from '../support/receiver.ts';
import { diskDir, tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

/** README's line. */
const BLOCK = stepAt(stepsOf('../README.md'), 'Install it on a mail host', 'npm ci && npm install -g');

/** Reads the answer to its end, so that its connection is free. */
async function statusOf(url: URL): Promise<number> {
  const response = await fetch(url);
  await response.arrayBuffer();
  return response.status;
}

describe('the npm package', function () {
  this.timeout(600_000);
  let prefix: string;
  let installed: string;
  /** A host that has another Node than these tests, or none on its PATH. */
  const hostEnv = () => ({ PATH: '/usr/bin:/bin', HOME: prefix, TMPDIR: prefix });
  const command = () => join(prefix, 'bin/postern');

  before('installs it by the line in README, which ends in the demo', async () => {
    prefix = await tempDir();
    const checkout = await checkOut(join(await diskDir(), 'checkout'));
    await bringPackages(checkout);
    // The packages are there already, and npm's folder of commands is not on the PATH.
    const bin = await tempDir();
    const npm = execFileSync('sh', ['-c', 'command -v npm'], { encoding: 'utf8' }).trim();
    writeFileSync(join(bin, 'npm'), `#!/bin/sh\n[ "$1" = ci ] || exec '${npm}' "$@" --prefer-offline\n`, {
      mode: 0o755,
    });
    const env = {
      ...process.env,
      PATH: `${bin}:${prefix}/bin:${process.env['PATH'] ?? ''}`,
      npm_config_prefix: prefix,
    };
    const shell = spawn('bash', ['--norc', '-euo', 'pipefail', '-c', BLOCK], { cwd: checkout, env, detached: true });
    let said = '';
    for (const stream of [shell.stdout, shell.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
    const gone = once(shell, 'exit');
    try {
      await until('the demo', () => said.includes('X-Mandrill-Signature is valid') || shell.exitCode !== null, 300_000);
      expect(said).to.contain('X-Mandrill-Signature is valid');
    } finally {
      if (shell.exitCode === null) process.kill(-(shell.pid ?? Number.NaN), 'SIGTERM');
      await gone;
    }
    installed = join(prefix, 'lib/node_modules/postern');
  });

  it('has JavaScript where Node runs it, and names no TypeScript to run', () => {
    const named = globSync('src/**/*.js', {
      cwd: installed,
      exclude: (name) => String(name).includes('console/web'),
    }).filter((name) => /(?<!moduleUrl\()'\.\.?\/[^']*\.ts'/.test(readFileSync(join(installed, name), 'utf8')));
    expect(named).to.deep.equal([]);
    const left = globSync('src/**/*.ts', { cwd: installed }).filter((name) => !name.startsWith('src/console/web/'));
    expect(left).to.deep.equal(['src/base/wasm/byte-passes.ts']);
  });

  it('runs on its own Node, without any on the PATH that is new enough, also beside the packages of a project', async () => {
    const project = join(await tempDir(), 'node_modules');
    // As npm lays out what a project depends on.
    const place = 'mkdir "$1" && cp -al "$2" "$1/postern" && mv "$1"/postern/node_modules/* "$1"/';
    execFileSync('sh', ['-c', place, 'sh', project, installed]);
    for (const program of [command(), join(project, 'postern/scripts/postern')]) {
      const out = execFileSync(program, ['demo', '--once'], { env: hostEnv(), cwd: '/', encoding: 'utf8' });
      expect(out).to.contain('X-Mandrill-Signature is valid');
    }
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
