import { copyFileSync, existsSync, lstatSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { z } from 'zod';
import { bringPackages, build, checkOut, movePackages } from '../support/package/checkout.ts';
import { boot, inRoot, type Machine, makeRoot, whyNoRoots } from '../support/package/machine.ts';
import { earlier, repack } from '../support/package/release.ts';
import { has, must, run, timed } from '../support/package/run.ts';
import { stepAt, stepsOf } from '../support/package/steps.ts';
import { until } from '../support/until.ts';

const EARLIER = '0.0.1';
const NEXT = '99.0.0';
const DOMAIN = 'in.example.org';
const SETTINGS = `# Mine.
data_dir: /var/lib/postern
hostname: mx.postern.test
public_url: https://api.postern.test
smtp: {listen: ["[::]:25"], tls: {cert: /etc/postern/tls/cert.pem, key: /etc/postern/tls/key.pem}}
http: {listen: 127.0.0.1:8080}
webhooks: {allow_private: [127.0.0.1], timeout_ms: 5000}
dns: {servers: ["127.0.0.1:9"], timeout_ms: 100, budget_ms: 500}
spool: {min_free_percent: 0, min_free_bytes: 0}
`;

const STEPS = stepsOf('operations.md');
/** Blocks for a shell that are not run here, by how they begin, with the reason. */
const NOT_RUN: Readonly<Record<string, string>> = {
  'postern route add in.example.com':
    'it is for a laptop, which test/flow/pull.test.ts and test/unit/cli/listen.test.ts have',
  'sudo postern setup': 'test/world/first-hour.test.ts types it, among the servers of others',
  'sudo postern dns --wait': 'the same',
  'sudo postern dns --zone': 'needs a zone of its own; test/unit/cli/dns.test.ts has one with two name servers',
  'npm ci --omit=dev': 'the cases around these build and install the package',
  'curl -sS https://postern.example.com':
    'a web server with a certificate stands in front there; the cases call the API behind it',
  'sudo apt-get install prometheus': 'test/interop/prometheus.test.ts has a Prometheus read these files',
  "sudo systemctl stop 'postern-*.socket'":
    'needs a MongoDB; test/flow/store-copy.test.ts moves a host to a server of its protocol and back',
  '# on each of the hosts': 'needs three hosts and a MongoDB; test/flow/hosts/demo.test.ts starts three',
  '# on the host that stays':
    'needs a MongoDB; test/flow/store-copy.test.ts moves a host to a server of its protocol and back',
  '# on the host that you decommission': 'needs two hosts and a MongoDB; test/flow/hosts/adoption.test.ts drains one',
  '# on the old host': 'needs two hosts; the cases of its life do it with one',
};
/** What the blocks need beside the package. */
const TOOLS = ['sudo', 'jq', 'sqlite3', 'nftables', 'swaks', 'libnet-ssleay-perl', 'openssl'];

describe('the Debian package', function () {
  this.timeout(900_000);
  const dir = mkdtempSync(join(tmpdir(), 'postern-package-'));
  const root = join(dir, 'root');
  const built = { first: '', again: '', earlier: '', next: '' };
  let lintian: Promise<string> | undefined;
  let machine: Machine | undefined;
  let key = '';
  const clear = () => rmSync(dir, { recursive: true, force: true });
  // A run that is cut off leaves no half gigabyte behind.
  const cut = () => {
    process.exit(1);
  };

  before('builds it, and makes a clean Debian', async function () {
    const why = await whyNoRoots('dpkg-deb');
    if (why !== undefined) {
      console.log(`    left out: ${why}`);
      return this.skip();
    }
    process.once('exit', clear).once('SIGTERM', cut);
    const rooted = makeRoot(root);
    rooted.catch(() => {});
    const checkout = await checkOut(join(dir, 'first'));
    await bringPackages(checkout);
    built.first = await build(checkout);
    if (await has('lintian')) lintian = lint(built.first);
    const again = await checkOut(join(dir, 'again'));
    await movePackages(checkout, again);
    built.again = await build(again, { TZ: 'Pacific/Kiritimati', LC_ALL: 'C' });
    const old = await earlier(join(dir, 'earlier'), EARLIER);
    if (old === undefined) console.log('    an earlier version: this one repacked, because no earlier commit is there');
    built.earlier = old ?? (await repack(built.first, join(dir, 'earlier'), EARLIER));
    built.next = await repack(built.first, join(dir, 'next'), NEXT);
    const trouble = await rooted
      .then(() => inRoot(root, 'true'))
      .then(({ code, err }) => (code === 0 ? undefined : err), String);
    if (trouble !== undefined) {
      console.log(`    left out: no clean Debian can be made and entered here: ${trouble.trim().split('\n').at(-1)}`);
      return this.skip();
    }
  });
  after(async () => {
    await machine?.stop();
    await lintian;
    process.off('exit', clear).off('SIGTERM', cut);
    clear();
  });

  /** What lintian says. It takes a minute for the packages of npm inside; `PACKAGE=small` leaves them out before. */
  async function lint(deb: string): Promise<string> {
    let read = deb;
    if (process.env['PACKAGE'] === 'small') {
      const files = join(dir, 'linted');
      read = join(dir, 'linted.deb');
      const unpack =
        'mkdir "$2" && dpkg-deb -e "$1" "$2/DEBIAN" && dpkg-deb --fsys-tarfile "$1" | tar -C "$2" -xpf - --exclude=./usr/lib/postern/node_modules';
      await must('sh', ['-c', unpack, 'sh', deb, files]);
      await must('sed', ['-i', '/node_modules/d', join(files, 'DEBIAN/md5sums')]);
      await must('dpkg-deb', ['--root-owner-group', '-Zzstd', '-z1', '--build', files, read]);
    }
    const { out, err } = await run('lintian', ['--allow-root', read]);
    return out + err;
  }

  const here = () => {
    if (machine === undefined) throw new Error('the host does not run');
    return machine;
  };
  const at = (name: string) => join(root, name);
  const modeOf = (path: string) => (lstatSync(at(path)).mode & 0o7777).toString(8);
  const owners = async (...paths: string[]) =>
    (await inRoot(root, 'stat', '-c', '%U:%G %a %n', ...paths)).out.trim().split('\n');
  /**
   * apt, as an operator uses it: with what the package depends on, and a question about settings answered by keeping
   * them.
   */
  const apt = (...words: string[]) => [
    'apt-get',
    '-q',
    '-y',
    '--no-install-recommends',
    '-o',
    'Dpkg::Use-Pty=0',
    '-o',
    'Dpkg::Options::=--force-confold',
    '-o',
    'Dpkg::Options::=--force-unsafe-io',
    ...words,
  ];
  const bring = (file: string, name: string) => copyFileSync(file, at(`root/${name}`));

  it('is reproducible: byte for byte the same when built again in another folder and time zone', async () => {
    expect(readFileSync(built.again).equals(readFileSync(built.first))).to.equal(true);
  });

  it('holds only production packages and one runtime, and no file that others than root can write', async () => {
    const list = await must('dpkg-deb', ['-c', built.first]);
    expect(list)
      .to.contain('./usr/lib/postern/node_modules/smtp-server/')
      .and.to.match(/node-linux-(?:x64|arm64)\/bin\/node\n/);
    expect(list).not.to.match(/node_modules\/(?:mocha|chai|typescript)\//);
    expect(list.split('\n').filter((line) => /^[^l]....w|^[^l].......w/.test(line))).to.deep.equal([]);
    expect(list.split('\n').filter((line) => line !== '' && !line.includes(' root/root '))).to.deep.equal([]);
  });

  it('is installed by README as by docs/operations.md, whose block test/world types', () => {
    const readme = stepAt(stepsOf('../README.md'), 'Install it on a mail host', 'npm ci --omit=dev && scripts/deb.sh');
    const block = stepAt(STEPS, 'Install', 'npm ci --omit=dev').trim().split('\n');
    expect(readme.split('\n')[0]).to.equal(block.map((line) => line.replace(/ +#.*$/, '')).join(' && '));
  });

  it('passes lintian without errors', async function () {
    if (lintian === undefined) return this.skip();
    expect((await lintian).split('\n').filter((line) => line.startsWith('E:'))).to.deep.equal([]);
  });

  it('installs in a clean Debian with its dependencies, starts nothing, and prints the next steps', async () => {
    bring(built.first, 'postern.deb');
    const install = () => inRoot(root, ...apt('install', '/root/postern.deb'));
    const { code, out, err } = await timed('the Debian package is installed', install);
    expect(code, out + err).to.equal(0);
    expect(out).to.contain('postern setup');
    expect(existsSync(at('etc/systemd/system/multi-user.target.wants/postern.service'))).to.equal(false);
    expect(existsSync(at('etc/systemd/system/sockets.target.wants/postern-smtp.socket'))).to.equal(false);
  });

  it('gives the service a user without a shell, and files that no other user can read', async () => {
    expect((await inRoot(root, 'getent', 'passwd', 'postern')).out).to.match(
      /^postern:[^:]*:\d+:\d+:[^:]*:\/var\/lib\/postern:\/usr\/sbin\/nologin\n$/,
    );
    expect(
      await owners(
        '/etc/postern',
        '/etc/postern/postern.yaml',
        '/etc/postern/tls',
        '/etc/postern/credentials',
        '/var/lib/postern',
      ),
    ).to.deep.equal([
      'root:postern 750 /etc/postern',
      'root:postern 640 /etc/postern/postern.yaml',
      'root:postern 750 /etc/postern/tls',
      'root:root 700 /etc/postern/credentials',
      'postern:postern 750 /var/lib/postern',
    ]);
    expect(modeOf('usr/bin/postern')).to.equal('755');
  });

  it('has manual pages without groff warnings', async function () {
    if (!(await has('groff'))) return this.skip();
    for (const page of ['man1/postern.1', 'man5/postern.yaml.5', 'man8/postern.8']) {
      const { code, out, err } = await run('sh', [
        '-c',
        'zcat "$1" | groff -man -Tutf8 -ww',
        'sh',
        at(`usr/share/man/${page}.gz`),
      ]);
      expect({ code, err }, page).to.deep.equal({ code: 0, err: '' });
      expect(out).to.match(/postern/i);
    }
    if (await has('man'))
      expect(await must('man', ['-M', at('usr/share/man'), '-w', '8', 'postern'])).to.contain('postern.8.gz');
  });

  it('has jails that fail2ban accepts, both disabled', async function () {
    if (!(await has('fail2ban-client'))) return this.skip();
    const jail = readFileSync(at('etc/fail2ban/jail.d/postern.conf'), 'utf8');
    expect(jail.match(/^enabled +=.*$/gm)).to.deep.equal(['enabled  = false', 'enabled  = false']);
    const config = join(dir, 'fail2ban');
    // Without the jail that Debian switches on, whose log is not there on every machine.
    await must('sh', ['-c', 'cp -a /etc/fail2ban "$1" && rm -f "$1"/jail.d/*', 'sh', config]);
    writeFileSync(join(config, 'jail.d/postern.conf'), jail.replaceAll('= false', '= true'));
    copyFileSync(at('etc/fail2ban/filter.d/postern.conf'), join(config, 'filter.d/postern.conf'));
    const { code, out, err } = await run('fail2ban-client', ['-c', config, '-d']);
    expect(code, err).to.equal(0);
    for (const name of ['postern', 'postern-harvest']) expect(out).to.contain(`['add', '${name}', 'systemd']`);
  });

  it('has completions for three shells, as the command prints them', async () => {
    for (const [shell, file] of [
      ['bash', 'bash-completion/completions/postern'],
      ['zsh', 'zsh/vendor-completions/_postern'],
      ['fish', 'fish/vendor_completions.d/postern.fish'],
    ] as const) {
      expect(readFileSync(at(`usr/share/${file}`), 'utf8')).to.equal(
        (await inRoot(root, 'postern', 'completion', shell)).out,
      );
    }
  });

  it('has valid units, and settings in which the operator sets the host names', async () => {
    const units = [
      'postern.service',
      'postern-smtp.socket',
      'postern-submission.socket',
      'postern-submissions.socket',
      'postern-http.socket',
      'postern-https.socket',
    ].map((unit) => `/usr/lib/systemd/system/${unit}`);
    const verified = await inRoot(root, 'systemd-analyze', 'verify', '--man=no', ...units);
    expect((verified.out + verified.err).split('\n').filter((line) => line.includes('postern'))).to.deep.equal([]);
    const checked = await inRoot(root, 'postern', 'config', 'check');
    expect(checked.code, checked.err).to.equal(78);
    expect(checked.err.match(/^ {2}.*$/gm)).to.deep.equal([
      '  hostname: mx.example.com is a placeholder; set the real name of this host',
      '  public_url: postern.example.com is a placeholder; set the real name of this host',
    ]);
  });

  describe('on a running host', () => {
    before('boots it', async function () {
      const brought = await inRoot(root, ...apt('install', ...TOOLS));
      if (brought.code !== 0) throw new Error(brought.err);
      machine = await boot(root);
      if (machine === undefined) {
        console.log('    left out: systemd does not boot in a container here');
        return this.skip();
      }
    });

    const journal = () => here().must('journalctl', '-u', 'postern', '-o', 'cat', '--no-pager');
    const mainPid = async () => (await here().must('systemctl', 'show', '-P', 'MainPID', 'postern')).trim();
    const api = (path: string, body: object) =>
      here().ask({ do: 'post', url: `http://127.0.0.1:8080/api/1.0${path}.json`, body });
    const talk = async (lines: readonly string[], from = '127.0.0.1', port = 25) =>
      z.array(z.string()).parse(await here().ask({ do: 'talk', port, from, lines }));
    const session = (subject: string) =>
      talk([
        'EHLO client.example.org',
        'MAIL FROM:<a@example.net>',
        `RCPT TO:<box@${DOMAIN}>`,
        'DATA',
        `From: a@example.net\r\nSubject: ${subject}\r\n\r\nText.\r\n.`,
        'QUIT',
      ]);
    /**
     * As a mail server does: who hears that we stop comes again. A port that is shut would be another thing: 'closed'
     * at once.
     */
    async function mail(subject: string): Promise<string | undefined> {
      const replies = await session(subject);
      return replies[0] !== 'closed' && replies.some((reply) => reply.startsWith('421 4.3.2'))
        ? mail(subject)
        : replies.at(-2);
    }
    const received = async (subject: string) =>
      z
        .array(z.object({ id: z.string().optional(), text: z.string(), status: z.number() }))
        .parse(await here().ask({ do: 'received' }))
        .filter(({ text }) => text.includes(`"${subject}"`));
    const answer = (status: number, subject: string) => here().ask({ do: 'answer', status, to: `"${subject}"` });
    const arrives = (subject: string) =>
      until(`the post of ${subject}`, async () => (await received(subject)).length > 0, 20_000);
    const waiting = () => here().must('postern', 'queue', 'list', '--kind', 'inbound', '--state', 'waiting', '--json');
    async function queued(subject: string) {
      await answer(503, subject);
      expect(await mail(subject)).to.match(/^250 /);
      await arrives(subject);
      await until('the delivery to wait', async () => (await waiting()).includes('"id"'));
    }

    /**
     * Runs a block of docs/operations.md as it stands there, as root in a shell that stops at the first command that
     * fails.
     */
    const follow = (heading: string, start: string, env: Readonly<Record<string, string>> = {}) =>
      here().run(
        'env',
        ...Object.entries(env).map(([name, value]) => `${name}=${value}`),
        'bash',
        '--norc',
        '-euo',
        'pipefail',
        '-c',
        stepAt(STEPS, heading, start),
      );
    /** The same for a block that must go well. */
    async function followed(...step: Parameters<typeof follow>): Promise<string> {
      const { code, out, err } = await follow(...step);
      expect(code, `${step[1]}\n${out}\n${err}`).to.equal(0);
      return out;
    }

    it('does not start with the example names, and reports them', async () => {
      const { code } = await follow('By hand', 'sudo postern config check');
      expect(code).to.equal(78);
      expect((await here().run('systemctl', 'is-active', 'postern')).out.trim()).to.equal('inactive');
    });

    it('is not restarted by systemd while its settings are wrong', async () => {
      expect((await here().run('systemctl', 'start', 'postern')).code).not.to.equal(0);
      const shown = await here().must(
        'systemctl',
        'show',
        '-p',
        'NRestarts,ActiveState,SubState,ExecMainStatus',
        'postern',
      );
      expect(shown.trim().split('\n').sort()).to.deep.equal([
        'ActiveState=failed',
        'ExecMainStatus=78',
        'NRestarts=0',
        'SubState=failed',
      ]);
      expect(await journal()).to.contain('hostname: mx.example.com is a placeholder');
      await here().must('systemctl', 'stop', 'postern-smtp.socket');
      await here().must('systemctl', 'reset-failed', 'postern');
    });

    it('starts by the steps of the manual once it is configured', async () => {
      writeFileSync(at('etc/postern/postern.yaml'), SETTINGS);
      for (const part of ['cert', 'key'])
        copyFileSync(join(import.meta.dirname, `../fixtures/tls/first.${part}.pem`), at(`etc/postern/tls/${part}.pem`));
      await here().must('sh', '-c', 'cd /etc/postern/tls && chown root:postern *.pem && chmod 640 *.pem');
      const { out, err } = await follow('By hand', 'sudo postern config check');
      // The last step is the doctor, who finds no name servers here, and no DNS records of ours, and says what to do first.
      expect(out, err)
        .to.match(/^The settings are valid\.\n[\w-]{22}\n/)
        .and.to.match(/\n\d+ faults?, \d+ warnings?\.\nnext: .+\n$/);
      key = /^[\w-]{22}$/m.exec(out)?.[0] ?? '';
      expect((await here().must('systemctl', 'is-active', 'postern')).trim()).to.equal('active');
      await here().must('systemctl', 'reload', 'postern');
      await until('the settings to be read again', async () => (await journal()).includes('daemon.reloaded'));
    });

    it('runs in the sandbox of its unit: another user, no new privileges, a system call filter, a read-only system', async () => {
      const pid = await mainPid();
      const status = await here().must('cat', `/proc/${pid}/status`);
      const uid = (await here().must('id', '-u', 'postern')).trim();
      for (const line of [
        new RegExp(`^Uid:\\t${uid}\\t${uid}\\t`, 'm'),
        /^NoNewPrivs:\t1$/m,
        /^Seccomp:\t2$/m,
        /^Umask:\t0077$/m,
        /^CapBnd:\t0+$/m,
        /^CapEff:\t0+$/m,
      ])
        expect(status).to.match(line);
      const mounts = await here().must('cat', `/proc/${pid}/mountinfo`);
      expect(mounts)
        .to.match(/^\d+ \d+ \S+ \S+ \/ ro[, ]/m)
        .and.to.match(/^\d+ \d+ \S+ \S+ \/var\/lib\/postern rw[, ]/m);
    });

    it('accepts a mail on port 25 and posts it', async () => {
      expect(await api('/inbound/add-domain', { key, domain: DOMAIN })).to.have.property('status', 200);
      expect(await api('/inbound/add-route', { key, domain: DOMAIN, pattern: '*', url: here().hook })).to.have.property(
        'status',
        200,
      );
      expect(await mail('The first')).to.match(/^250 2\.0\.0 OK: queued as /);
      await arrives('The first');
    });

    it('keeps what Node compiles for its commands where the service does, if they run as its user', async () => {
      const cache = '/var/cache/postern';
      await here().must('find', cache, '-mindepth', '1', '-delete');
      await here().must('env', '-u', 'NODE_COMPILE_CACHE', 'postern', '--version');
      const owners = await here().must('find', cache, '-type', 'f', '-printf', '%u\n');
      expect(new Set(owners.trim().split('\n'))).to.deep.equal(new Set(['postern']));
      // Root must not run code that another user can write.
      await here().run('env', '-u', 'NODE_COMPILE_CACHE', 'postern', 'setup', '--help');
      const after = await here().must('find', cache, '-type', 'f', '-printf', '%u\n');
      expect(after).to.equal(owners);
    });

    it('does not fall back to the defaults if an ordinary user may not read the settings: prints the reason and exits', async () => {
      const ran = await here().run(
        'setpriv',
        '--reuid=65534',
        '--regid=65534',
        '--clear-groups',
        'postern',
        'queue',
        'list',
      );
      expect(ran).to.include({ code: 78, out: '' });
      expect(ran.err).to.contain('/etc/postern/postern.yaml: permission denied; run this as root (sudo postern …)');
      expect(
        (await here().run('setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', 'postern', '--version')).out,
      ).to.match(/^postern \d/);
    });

    describe('runs the code blocks of docs/operations.md as they stand', () => {
      it('each shell block is run by one of these tests, or listed with the reason why not', () => {
        const run = [
          'sudo postern config check',
          'sudo systemctl enable postern-submission',
          'swaks',
          '#!/bin/sh',
          'postern ip add',
          'nft add table',
          'postern queue list',
          'journalctl',
          'sudo apt install sqlite3',
          'systemctl stop postern-smtp',
        ];
        const unknown = STEPS.filter(
          ({ language, text }) =>
            language === 'sh' && ![...run, ...Object.keys(NOT_RUN)].some((start) => text.startsWith(start)),
        );
        expect(unknown).to.deep.equal([]);
      });

      it('enables submission on both ports while the service runs', async () => {
        await here().must('sh', '-c', 'echo "127.0.0.1 mx.example.com" >>/etc/hosts');
        await followed('SMTP submission', 'sudo systemctl enable postern-submission');
        for (const socket of ['postern-submission.socket', 'postern-submissions.socket'])
          expect((await here().must('systemctl', 'is-active', socket)).trim(), socket).to.equal('active');
        expect(await followed('SMTP submission', 'swaks', { KEY: key })).to.match(/<~ +250 .*queued/);
        expect(
          await here().must(
            'sh',
            '-c',
            'printf "QUIT\\r\\n" | openssl s_client -quiet -connect 127.0.0.1:465 2>/dev/null',
          ),
        ).to.match(/^220 mx\.postern\.test/);
        expect(await mail('With submission on')).to.match(/^250 /);
      });

      it('deploys a renewed certificate to the service by the hook', async () => {
        const [hook, live] = ['/etc/letsencrypt/renewal-hooks/deploy/postern', '/etc/letsencrypt/live/mx.example.com'];
        await here().must('mkdir', '-p', '/etc/letsencrypt/renewal-hooks/deploy', live);
        writeFileSync(at(hook), stepAt(STEPS, 'TLS', '#!/bin/sh'), { mode: 0o755 });
        for (const [part, name] of [
          ['cert', 'fullchain'],
          ['key', 'privkey'],
        ] as const)
          copyFileSync(join(import.meta.dirname, `../fixtures/tls/second.${part}.pem`), at(`${live}/${name}.pem`));
        writeFileSync(
          at('etc/postern/postern.yaml'),
          SETTINGS.replace('cert.pem', 'fullchain.pem').replace('key.pem', 'privkey.pem'),
        );
        await here().must('env', `RENEWED_LINEAGE=${live}`, hook);
        await here().must('systemctl', 'restart', 'postern');
        const shown = await here().must(
          'sh',
          '-c',
          'echo QUIT | openssl s_client -starttls smtp -connect 127.0.0.1:25 2>/dev/null | openssl x509 -noout -fingerprint -sha256',
        );
        expect(shown).to.equal(
          await here().must('openssl', 'x509', '-noout', '-fingerprint', '-sha256', '-in', `${live}/fullchain.pem`),
        );
        writeFileSync(at('etc/postern/postern.yaml'), SETTINGS);
        await here().must('rm', '-r', '/etc/letsencrypt');
        await here().must('systemctl', 'restart', 'postern');
      });

      it('keeps an inventory of addresses', async () => {
        expect(await followed('Dedicated addresses', 'postern ip add')).to.match(
          /Added 192\.0\.2\.21[\s\S]*free[\s\S]*Removed 192\.0\.2\.21/,
        );
      });

      it('rejects new sessions while a host is drained, and accepts them again', async () => {
        await followed('Signals, stopping and draining', 'nft add table');
        expect((await talk(['QUIT']))[0]).to.equal('closed');
        await here().must('nft', 'delete', 'table', 'inet', 'drain');
        expect((await talk(['QUIT']))[0]).to.match(/^220 /);
      });

      it('shows the queue, a delivery and its attempts, retries and replays', async () => {
        await queued('Looked at');
        const [{ id }] = z
          .tuple([z.looseObject({ id: z.string() })], z.unknown())
          .parse(JSON.parse(await here().must('postern', 'queue', 'list', '--url', here().hook, '--json')));
        const block = stepAt(STEPS, 'Inspecting the queue', 'postern queue list')
          .replaceAll(/(show (?:-v )?)ID/g, `$1${id}`)
          .replace('--url URL', `--url ${here().hook}`);
        const { code, out, err } = await here().run('bash', '--norc', '-euc', block);
        expect(code, err).to.equal(0);
        expect(out).to.contain(id).and.to.contain('503').and.to.contain('Retrying ').and.to.contain('can be replayed');
        await answer(200, 'Looked at');
        await here().must('postern', 'queue', 'retry', '--all');
        await until(
          'it is delivered',
          async () =>
            !(
              await here().must('postern', 'queue', 'list', '--kind', 'inbound', '--state', 'waiting', '--json')
            ).includes('"id"'),
          30_000,
        );
      });

      it('reads its log from the journal', async () => {
        expect(await followed('The log', 'journalctl')).to.match(/^ +\d+ smtp\.session$/m);
      });

      it('backs the store up while it runs, and restores it', async () => {
        await followed('Backup and restore', 'sudo apt install sqlite3');
        await api('/inbound/delete-domain', { key, domain: DOMAIN });
        await followed('Backup and restore', 'systemctl stop postern-smtp');
        expect(await mail('After a restore')).to.match(/^250 /);
        await here().must('systemctl', 'restart', 'postern');
      });
    });

    it('passes its doctor on the port of the socket unit, as a host on the internet', async () => {
      const found = z
        .array(z.object({ check: z.string(), verdict: z.string(), seen: z.string() }))
        .parse(JSON.parse((await here().run('postern', 'doctor', '--json')).out));
      expect(found.find(({ check }) => check === 'SMTP [::]:25')).to.include({ verdict: 'ok' });
      expect(found.filter(({ seen }) => seen.includes('loopback'))).to.deep.equal([]);
    });

    describe('the fail2ban filters', () => {
      const FORGED = '198.51.100.9';
      const stolen = ({ event, ...fields }: Readonly<Record<string, unknown>>) =>
        JSON.stringify({ event, level: 'info', time: '2026-01-05T12:00:00.000Z', client: FORGED, ...fields });
      /** Lines of the log that an attacker would like us to write, and texts that would break out of ours. */
      const FORGERIES = [
        `{"event":"api.refused_key","level":"info","time":"2026-01-05T12:00:00.000Z","address":"${FORGED}"}`,
        `x","client":"${FORGED}","helo":"x","command":"AUTH","reply":"535 5.7.8 Authentication failed"}`,
        `x\\","client":"${FORGED}","helo":"x","command":"AUTH","reply":"535 5.7.8 Authentication failed"}`,
        `x\\u000a${stolen({ event: 'smtp.refused', command: 'AUTH', reply: '535 5.7.8 Authentication failed' })}`,
        `x ${stolen({ event: 'smtp.session', tls: null, messages: 0, recipients: 0, refusals: 99, reason: 'disconnect', duration_ms: 1 })}`,
      ];
      const banned = async (mode: string, source: string) => [
        ...new Set(
          (
            await run('fail2ban-regex', [
              '-o',
              'ip',
              source,
              `${at('etc/fail2ban/filter.d/postern.conf')}[mode=${mode}]`,
            ])
          ).out
            .trim()
            .split('\n'),
        ),
      ];
      let log = '';

      before('guesses keys, harvests and forges', async function () {
        if (!(await has('fail2ban-regex'))) return this.skip();
        const wrong = `AUTH PLAIN ${Buffer.from('\0anybody\0wrong').toString('base64')}`;
        await talk(['EHLO guesser.test', 'STARTTLS', 'EHLO guesser.test', wrong, wrong], '127.9.8.7', 587);
        await api('/users/ping', { key: 'wrong' });
        await here().ask({
          do: 'post',
          url: 'http://127.0.0.1:8080/api/1.0/users/ping.json',
          body: { key: 'wrong' },
          headers: { 'x-forwarded-for': FORGED },
        });
        await talk(
          [
            'EHLO harvester.test',
            'MAIL FROM:<a@example.net>',
            ...Array.from({ length: 11 }, (_, i) => `RCPT TO:<guess${i}@example.net>`),
            'QUIT',
          ],
          '127.5.5.5',
        );
        for (const forged of FORGERIES) {
          await talk([`EHLO ${forged}`, 'QUIT'], '127.6.6.6');
          await talk(
            [
              'EHLO forger.test',
              `MAIL FROM:<${forged}>`,
              'MAIL FROM:<a@example.net>',
              `RCPT TO:<${forged}>`,
              `RCPT TO:<"${forged.replaceAll(/[\\"]/g, '\\$&')}"@example.net>`,
              forged,
              'QUIT',
            ],
            '127.6.6.6',
          );
        }
        log = join(dir, 'journal.log');
        writeFileSync(log, await journal());
      });

      it('match addresses that tried wrong keys over SMTP and HTTP, and no other', async () => {
        expect(readFileSync(log, 'utf8')).to.contain(FORGED);
        expect((await banned('keys', log)).sort()).to.deep.equal(['127.0.0.1', '127.9.8.7']);
      });

      it('match the address that harvested, and no other', async () => {
        expect(await banned('harvest', log)).to.deep.equal(['127.5.5.5']);
      });

      it('match the same in the journal itself', async function () {
        if ((await run('/usr/bin/python3', ['-c', 'import systemd.journal'])).code !== 0) return this.skip();
        const source = `systemd-journal[journalpath="${at(`var/log/journal/${readFileSync(at('etc/machine-id'), 'utf8').trim()}`)}"]`;
        expect((await banned('keys', source)).sort()).to.deep.equal(['127.0.0.1', '127.9.8.7']);
      });
    });

    // mocha runs the tests of a block before the blocks in it.
    describe('over its lifetime', () => {
      /** Changes the version while one mail waits for its webhook, and others come in one after the other. */
      async function changes(kind: string, version: string, command: readonly string[]) {
        await queued(`Over the ${kind}`);
        const before = await mainPid();
        const change = here().must(...command);
        const replies: (string | undefined)[] = [];
        let over = false;
        void change
          .finally(() => {
            over = true;
          })
          .catch(() => {});
        while (!over) {
          const subject = `In the ${kind} ${replies.length}`;
          replies.push(await mail(subject));
          await Promise.race([arrives(subject).catch(() => {}), change]);
        }
        await change;
        expect(replies.filter((reply) => !/^250 /.test(reply ?? ''))).to.deep.equal([]);
        expect(await mainPid()).not.to.equal(before);
        expect(await here().must('postern', '--version')).to.contain(version);
        expect(await waiting()).to.contain('"id"');
        await answer(200, `Over the ${kind}`);
        await here().must('postern', 'queue', 'retry', '--all');
        await until('all that waited', async () => !(await waiting()).includes('"id"'), 30_000);
        for (const subject of [`Over the ${kind}`, ...replies.map((_, i) => `In the ${kind} ${i}`)])
          expect((await received(subject)).filter(({ status }) => status === 200).length, subject).to.be.at.least(1);
        // It waited all the time, so nothing but the retry can have posted it.
        const posts = (await received(`Over the ${kind}`)).filter(({ status }) => status === 200);
        expect(posts).to.have.length(1);
        expect(readFileSync(at('etc/postern/postern.yaml'), 'utf8')).to.equal(SETTINGS);
      }

      it('is downgraded while mail waits: no mail lost, no client refused, settings kept, the old version runs', async () => {
        bring(built.earlier, 'earlier.deb');
        await changes('downgrade', EARLIER, apt('install', '--allow-downgrades', '/root/earlier.deb'));
      });

      it('is upgraded while mail waits: no mail lost, no client refused, settings kept, the new version runs', async () => {
        bring(built.next, 'next.deb');
        await changes('upgrade', NEXT, apt('install', '/root/next.deb'));
        expect(await journal()).to.contain(`"version":"${NEXT}"`);
        expect(existsSync(at('etc/postern/postern.yaml.dpkg-dist'))).to.equal(true);
      });

      it('is removed, with its settings and mail kept', async () => {
        await queued('Over the removal');
        await here().must(...apt('remove', 'postern'));
        expect(existsSync(at('usr/lib/postern'))).to.equal(false);
        expect((await here().run('systemctl', 'is-active', 'postern', 'postern-smtp.socket')).out).not.to.match(
          /^active/m,
        );
        expect(readFileSync(at('etc/postern/postern.yaml'), 'utf8')).to.equal(SETTINGS);
        expect(existsSync(at('var/lib/postern/spool'))).to.equal(true);
      });

      it('continues with its data when it is installed again', async () => {
        await here().must(...apt('install', '/root/next.deb'));
        await here().must('systemctl', 'start', 'postern-smtp.socket', 'postern-submission.socket', 'postern');
        await answer(200, 'Over the removal');
        await here().must('postern', 'queue', 'retry', '--all');
        await until('the mail that waited', async () => (await received('Over the removal')).length > 1, 20_000);
      });

      it('is restored from a backup on a host where its user has another UID, and delivers the waiting mail', async () => {
        await queued('Over the restore');
        await here().must('systemctl', 'stop', 'postern-smtp.socket', 'postern-submission.socket', 'postern');
        await here().must('tar', '-C', '/', '-cpf', '/root/backup.tar', 'etc/postern', 'var/lib/postern');
        const number = await here().must('id', '-u', 'postern');
        await here().must(...apt('purge', 'postern'));
        expect(existsSync(at('var/lib/postern'))).to.equal(false);
        await here().must('adduser', '--system', '--group', '--quiet', '--no-create-home', 'somebody');
        await here().must(...apt('install', '/root/next.deb'));
        expect(await here().must('id', '-u', 'postern')).not.to.equal(number);
        await here().must('tar', '-C', '/', '-xpf', '/root/backup.tar');
        await here().must('systemctl', 'enable', '--now', 'postern-smtp.socket', 'postern.service');
        await answer(200, 'Over the restore');
        await here().must('postern', 'queue', 'retry', '--all');
        await until('the mail that waited', async () => (await received('Over the restore')).length > 1, 20_000);
        expect(await mail('After the restore')).to.match(/^250 /);
      });

      it('is purged completely: settings, data, user and links of the units', async () => {
        await here().must(...apt('purge', 'postern'));
        for (const gone of [
          'etc/postern',
          'var/lib/postern',
          'usr/lib/postern',
          'usr/bin/postern',
          'etc/fail2ban/filter.d/postern.conf',
          'etc/fail2ban/jail.d/postern.conf',
        ])
          expect(existsSync(at(gone)), gone).to.equal(false);
        expect((await here().run('getent', 'passwd', 'postern')).code).to.equal(2);
        expect((await here().run('getent', 'group', 'postern')).code).to.equal(2);
        expect(await here().must('find', '/etc', '/var/lib/systemd', '/usr/lib', '-name', '*postern*')).to.equal('');
      });
    });
  });
});
