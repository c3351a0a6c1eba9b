import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { makeRoot, openAgent } from '../support/package/machine.ts';
import { release } from '../support/package/release.ts';
import { has, must, run, timed } from '../support/package/run.ts';
import { stepAt, stepsOf } from '../support/package/steps.ts';
import { diskDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const DOMAIN = 'in.example.org';

/** README's block, with names of a real host: the example's are refused. */
const BLOCK = stepAt(stepsOf('../README.md'), 'Install it on a mail host', 'npm ci --omit=dev && sudo podman')
  .replaceAll('mx.example.com', 'mx.postern.test')
  .replaceAll('postern.example.com', 'api.postern.test');

/**
 * A folder of programs for the front of PATH. npm's packages, the Debian package and a clean Debian are there already;
 * podman gets a storage and no network of its own, and may set no limits that this machine does not grant.
 */
async function programs(dir: string, deb: string, base: string): Promise<string> {
  const bin = join(dir, 'bin');
  mkdirSync(bin);
  const script = (name: string, text: string) => {
    writeFileSync(join(bin, name), `#!/bin/sh\n${text}\n`);
    chmodSync(join(bin, name), 0o755);
  };
  const podman = (await must('sh', ['-c', 'command -v podman'])).trim();
  const storage = `--root '${dir}/images' --runroot '${dir}/run' --cgroup-manager cgroupfs --runtime runc`;
  script('npm', 'exit 0');
  script('sudo', 'exec "$@"');
  script('debootstrap', `for root; do :; done\nexec cp -a --reflink=auto '${base}' "$root"`);
  const settings = [
    'WEBHOOKS__ALLOW_PRIVATE=127.0.0.1',
    'DNS__SERVERS=127.0.0.1:9',
    'DNS__TIMEOUT_MS=100',
    'DNS__BUDGET_MS=500',
  ];
  const limits = '--ulimit nofile=1024:1024 --ulimit nproc=512:512';
  const options = `--network none --read-only-tmpfs=false ${limits} ${settings.map((setting) => `--env POSTERN_${setting}`).join(' ')}`;
  script('podman', `[ "$1" != run ] || { shift; set -- run ${options} "$@"; }\nexec ${podman} ${storage} "$@"`);
  mkdirSync(join(dir, 'scripts'));
  script('../scripts/deb.sh', `echo '${deb}'`);
  return `${bin}:${process.env['PATH'] ?? ''}`;
}

describe('the container image', function () {
  this.timeout(600_000);
  let env: NodeJS.ProcessEnv = {};
  let agent: Awaited<ReturnType<typeof openAgent>> | undefined;
  let key = '';
  const podman = (...words: string[]) => must('podman', words, { env });

  before('is built and started by the block in README', async function () {
    for (const program of ['podman', 'runc', 'debootstrap', 'dpkg-deb', 'nsenter'])
      if (process.getuid?.() !== 0 || !(await has(program))) {
        console.log(`    left out: it needs root and ${program}`);
        return this.skip();
      }
    const { checkout, deb } = await release();
    const dir = await diskDir();
    const base = join(dir, 'debian');
    await makeRoot(base);
    env = { ...process.env, PATH: await programs(dir, deb, base) };
    for (const name of ['image.sh', 'image'])
      await must('cp', ['-r', join(checkout, 'scripts', name), join(dir, 'scripts')]);
    await must('cp', [join(checkout, 'CHANGELOG.md'), dir]);
    const words = ['300', 'bash', '--norc', '-euo', 'pipefail', '-c', BLOCK];
    const { code, out, err } = await timed('the image is built and started', () =>
      run('timeout', words, { cwd: dir, env }),
    );
    if (/^Error: .*OCI (?:runtime error|permission denied)/m.test(err)) {
      console.log(`    left out: no container can be run here: ${err.trim().split('\n').at(-1)}`);
      return this.skip();
    }
    expect(code, out + err).to.equal(0);
    key = /^[\w-]{22}$/m.exec(out)?.[0] ?? '';
  });
  after(async () => {
    await agent?.stop();
    if (env['PATH'] !== undefined) await run('podman', ['rm', '--force', '--all', '--volumes'], { env });
  });

  it('runs as an ordinary user on a read-only root', async () => {
    expect((await podman('exec', 'postern', 'id', '-u')).trim()).to.equal('2525');
    expect((await podman('exec', 'postern', 'sh', '-c', 'touch /x 2>/dev/null || echo refused')).trim()).to.equal(
      'refused',
    );
  });

  it('takes a mail and posts it', async () => {
    const pid = (await podman('inspect', 'postern', '--format', '{{.State.Pid}}')).trim();
    agent = await openAgent(['nsenter', '-t', pid, '-n']);
    const { hook, ask } = agent;
    const api = (path: string, body: object) =>
      ask({ do: 'post', url: `http://127.0.0.1:8080/api/1.0${path}.json`, body });
    expect(await api('/inbound/add-domain', { key, domain: DOMAIN })).to.have.property('status', 200);
    expect(await api('/inbound/add-route', { key, domain: DOMAIN, pattern: '*', url: hook })).to.have.property(
      'status',
      200,
    );
    const lines = [
      'EHLO client.example.org',
      'MAIL FROM:<a@example.net>',
      `RCPT TO:<box@${DOMAIN}>`,
      'DATA',
      'Subject: In a container\r\n\r\nText.\r\n.',
      'QUIT',
    ];
    const replies = z.array(z.string()).parse(await ask({ do: 'talk', port: 2525, from: '127.0.0.1', lines }));
    expect(replies.at(-2)).to.match(/^250 2\.0\.0 OK: queued as /);
    await until(
      'the post',
      async () => JSON.stringify(await ask({ do: 'received' })).includes('In a container'),
      60_000,
    );
  });

  it('is healthy while it accepts mail', async () => {
    expect((await run('podman', ['healthcheck', 'run', 'postern'], { env })).code).to.equal(0);
  });

  it('ends by SIGTERM with exit code 0, and its volume keeps the account', async () => {
    await podman('stop', 'postern');
    expect((await podman('inspect', 'postern', '--format', '{{.State.ExitCode}}')).trim()).to.equal('0');
    expect(await podman('logs', 'postern')).to.contain('"event":"daemon.stopped"');
    await podman('rm', 'postern');
    const names = ['POSTERN_HOSTNAME=mx.postern.test', 'POSTERN_PUBLIC_URL=https://api.postern.test'];
    const options = ['--rm', '--read-only', '-v', 'postern:/var/lib/postern', ...names.flatMap((name) => ['-e', name])];
    expect(await podman('run', ...options, 'postern', 'domain', 'list')).to.contain(DOMAIN);
  });
});
