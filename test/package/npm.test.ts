import { once } from 'node:events';
import { globSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { message, sendMail } from '../support/mail.ts';
import { enterWith, inRoot, whyNoRoots } from '../support/package/machine.ts';
import { makeOperatorRoot, NoDebian, npmOptions, TREE } from '../support/package/operator.ts';
import { begin, timed } from '../support/package/run.ts';
import { stepAt, stepsOf } from '../support/package/steps.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

/** README's line. */
const BLOCK = stepAt(stepsOf('../README.md'), 'Install it on a mail host', 'npm ci && npm install -g');

/** Reads the answer to its end, so that its connection is free. */
async function statusOf(url: URL): Promise<number> {
  const response = await fetch(url);
  await response.arrayBuffer();
  return response.status;
}

/** systemd-nspawn with every setting of this environment. */
const WITH_SETTINGS = 'for name in ${!POSTERN_@}; do set -- "--setenv=$name" "$@"; done; exec systemd-nspawn "$@"';

describe('the npm package', function () {
  this.timeout(900_000);
  const dir = mkdtempSync(join(tmpdir(), 'postern-npm-'));
  const root = join(dir, 'root');
  // Where Debian's npm, which is 9.2, installs with -g.
  const installed = '/usr/local/lib/node_modules/postern';
  const clear = () => rmSync(dir, { recursive: true, force: true });
  // A run that is cut off leaves no gigabyte behind.
  const cut = () => {
    process.exit(1);
  };

  before('installs it by the line in README in a clean Debian, which ends in the demo', async function () {
    const why = await whyNoRoots();
    if (why !== undefined) {
      console.log(`    left out: ${why}`);
      return this.skip();
    }
    process.once('exit', clear).once('SIGTERM', cut);
    try {
      await makeOperatorRoot(root, ['npm']);
    } catch (error) {
      if (!(error instanceof NoDebian)) throw error;
      console.log(
        `    left out: no clean Debian can be made and entered here: ${error.message.trim().split('\n').at(-1)}`,
      );
      return this.skip();
    }
    const line = `cd ${TREE}; exec 2>&1; set -euo pipefail; ${BLOCK}`;
    const options = await npmOptions(root);
    await timed('the npm package is installed', async () => {
      const shell = begin('systemd-nspawn', enterWith(root, ['--as-pid2', ...options], 'bash', '--norc', '-c', line));
      let said = '';
      shell.stdout.setEncoding('utf8').on('data', (text) => (said += text));
      const gone = once(shell, 'exit');
      try {
        const isPosted = () => said.includes('X-Mandrill-Signature is valid');
        await until('the demo', () => isPosted() || shell.exitCode !== null, 600_000);
        expect(said).to.contain('X-Mandrill-Signature is valid');
      } finally {
        shell.kill('SIGTERM');
        await gone;
      }
    });
  });
  after(() => {
    process.off('exit', clear).off('SIGTERM', cut);
    clear();
  });

  it('has JavaScript where Node runs it, and names no TypeScript to run', () => {
    const files = join(root, installed);
    const named = globSync('src/**/*.js', {
      cwd: files,
      exclude: (name) => String(name).includes('console/web'),
    }).filter((name) => /(?<!moduleUrl\()'\.\.?\/[^']*\.ts'/.test(readFileSync(join(files, name), 'utf8')));
    expect(named).to.deep.equal([]);
    const left = globSync('src/**/*.ts', { cwd: files }).filter((name) => !name.startsWith('src/console/web/'));
    expect(left).to.deep.equal(['src/base/wasm/byte-passes.ts']);
  });

  it('runs on its own Node, where the Node on the PATH is too old, also beside the packages of a project', async () => {
    // As npm lays out what a project depends on.
    const project = '/root/project/node_modules';
    const layOut = `mkdir -p ${project} && cp -a ${installed} ${project}/ && mv ${project}/postern/node_modules/* ${project}/`;
    expect(await inRoot(root, 'sh', '-c', layOut)).to.include({ code: 0 });
    expect(Number((await inRoot(root, 'node', '-p', 'parseInt(process.versions.node)')).out)).to.be.lessThan(24);
    for (const program of ['postern', `${project}/postern/scripts/postern`]) {
      const { out, err } = await inRoot(root, program, 'demo', '--once');
      expect(out, err).to.contain('X-Mandrill-Signature is valid');
    }
  });

  it('serves: mail on threads, webhooks, the reference and the console, until SIGTERM', async () => {
    const hook = await startReceiver();
    const enter = ['bash', '-c', WITH_SETTINGS, 'sh', ...enterWith(root, ['--kill-signal=SIGTERM'])];
    const daemon = await spawnDaemon('/root/data', { POSTERN_SMTP__THREADS: '2' }, enter, ['postern']);
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
