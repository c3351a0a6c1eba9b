import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { runCommandLine } from '../../../src/cli/command-line.ts';
import { fullName, withoutLoopback, withSettings } from '../../../src/cli/setup/files.ts';
import { createMachine, type Machine } from '../../../src/cli/setup/machine.ts';
import { createSetup } from '../../../src/cli/setup.ts';
import { loadSettings } from '../../../src/config.ts';
import { postern } from '../../support/command.ts';
import { createCaller, startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { freePort } from '../../support/free-port.ts';
import { diskDir } from '../../support/temp.ts';
import { startZone, type Zone, type ZoneRecords } from '../../support/zone.ts';

const EXAMPLE = readFileSync(new URL('../../../config/production.example.yaml', import.meta.url), 'utf8');
const ADDRESSES = ['--address', '192.0.2.10', '--address', '2001:db8::10'];
const GIVEN = [
  ...['--hostname', 'mx.postern.test', '--domain', 'in.shop.test', '--email', 'me@else.test', '--no-https'],
  ...ADDRESSES,
];
const HOSTS = '127.0.0.1\tlocalhost\n127.0.1.1\tmx.postern.test mx\n\n::1 localhost ip6-localhost\n';
const SERVERS: ZoneRecords = {
  com: { NS: ['ns1.postern.test'] },
  'postern.test': { NS: ['ns1.postern.test'] },
  'shop.test': { NS: ['ns1.postern.test'], MX: [{ exchange: 'mail.elsewhere.test', priority: 10 }] },
  'ns1.postern.test': { A: ['127.0.0.1'] },
};

describe('postern setup', function () {
  this.timeout(60_000);
  let root: string;
  let zone: Zone;
  let port: number;
  let daemon: TestDaemon | undefined;
  let world: { answers: string[]; asked: string[]; taken: number[]; ran: string[]; failing: string };
  beforeEach(async () => {
    root = await diskDir();
    zone = await startZone(SERVERS);
    port = await freePort();
    for (const dir of ['etc/postern', 'run/systemd/system', 'data']) mkdirSync(join(root, dir), { recursive: true });
    writeFileSync(join(root, 'etc/hosts'), HOSTS);
    writeFileSync(file(), EXAMPLE, { mode: 0o640 });
    world = { answers: [], asked: [], taken: [], ran: [], failing: '' };
  });
  afterEach(async () => {
    await daemon?.stop();
    daemon = undefined;
    await zone.stop();
  });

  const file = () => join(root, 'etc/postern/postern.yaml');
  const written = () => parse(readFileSync(file(), 'utf8'));
  const env = () => ({
    POSTERN_CONFIG: file(),
    POSTERN_DATA_DIR: join(root, 'data'),
    POSTERN_HTTP__LISTEN: `127.0.0.1:${port}`,
    POSTERN_DNS__SERVERS: zone.server,
    POSTERN_DNS__AUTHORITY_PORT: String(zone.port),
    POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
    POSTERN_SPOOL__MIN_FREE_BYTES: '0',
  });

  /** A machine whose systemd starts the daemon in this process, by the settings file. */
  function machine(): Machine {
    const enabled = new Set<string>();
    let startedAt = 0;
    async function systemctl(verb: string, units: readonly string[]) {
      if (verb === 'is-enabled') return enabled.has(units[0] ?? '') ? 'enabled\n' : 'disabled\n';
      if (verb === 'show') return `@${Math.floor(startedAt / 1000)}\n`;
      if (verb === 'is-active') return daemon && enabled.has(units[0] ?? '') ? 'active\n' : 'inactive\n';
      if (verb === 'enable') for (const unit of units) enabled.add(unit);
      if (verb === 'disable') for (const unit of units) enabled.delete(unit);
      if (verb === 'restart') await daemon?.stop();
      if (verb === 'start' || verb === 'restart') {
        startedAt = Date.now();
        const { hostname } = loadSettings(file(), env()).settings;
        daemon = await startDaemon(
          { ...env(), POSTERN_CONFIG: '', POSTERN_HOSTNAME: hostname, POSTERN_BOOTSTRAP__API_KEY: '' },
          { dir: join(root, 'data') },
        );
      }
      return '';
    }
    return {
      root,
      name: 'mx',
      isRoot: true,
      async ask(question) {
        world.asked.push(question);
        return world.answers.shift();
      },
      async run(program, ...args) {
        if (program === 'ss')
          return { code: 0, out: 'LISTEN 0 20 127.0.0.1:25 users:(("exim4",pid=9,fd=3))\n', err: '' };
        if (program === 'journalctl')
          return { code: 0, out: '{"level":"info"}\npostern: cannot start: no room\n', err: '' };
        const [verb = '', ...units] = args;
        if (!verb.startsWith('is-') && verb !== 'show') world.ran.push(args.join(' '));
        if (verb === world.failing) return { code: 1, out: '', err: 'Job for postern.service failed.\nSee it.\n' };
        return { code: 0, out: await systemctl(verb, units), err: '' };
      },
      isTaken: async (number) => world.taken.includes(number),
      asOwner: (_, use) => use(),
    };
  }

  async function setup(argv: readonly string[], options: { on?: Machine; terminal?: boolean } = {}) {
    const { on = machine(), terminal = false } = options;
    let out = '';
    let err = '';
    const command = { name: 'setup', summary: '', load: async () => createSetup(() => on) };
    const code = await runCommandLine([command], ['setup', ...argv], {
      env: env(),
      pid: 1,
      terminals: { in: terminal, out: terminal, err: terminal },
      out: (text) => void (out += text),
      err: (text) => void (err += text),
      onSignal() {},
    });
    return { code, out, err, json: (): any[] => JSON.parse(out) };
  }

  /** Everything in the folder of the settings, and the hosts file. */
  const files = () =>
    ['etc/hosts', ...readdirSync(join(root, 'etc/postern')).map((name) => `etc/postern/${name}`)].map((path) => [
      path,
      readFileSync(join(root, path), 'utf8'),
      statSync(join(root, path)).mode,
    ]);

  it('makes a host of a fresh machine: settings, units, account, key, domain, and the records to publish', async () => {
    const ran = await setup(GIVEN);
    expect(ran.code, ran.err).to.equal(0);
    expect(written()).to.deep.include({ hostname: 'mx.postern.test', public_url: 'https://mx.postern.test' });
    expect(written().smtp).to.include({ postmaster: 'me@else.test' });
    expect(statSync(file()).mode & 0o777).to.equal(0o640);
    expect(world.ran).to.deep.equal([
      'enable postern.service postern-smtp.socket',
      'start postern.service postern-smtp.socket',
    ]);
    expect(ran.out).to.match(/^done {5}inbound domain in\.shop\.test: added$/m);
    expect(ran.out).to.match(/^done {5}sender domain in\.shop\.test: verified/m);
    expect(ran.out).to.match(/^mx\.postern\.test\. +3600 IN AAAA +2001:db8::10$/m);
    expect(ran.out).to.match(/^in\.shop\.test\. +3600 IN MX +10 mx\.postern\.test\.$/m);
    expect(ran.out).to.match(/^postern\._domainkey\.in\.shop\.test\. +3600 IN TXT/m);
    expect(ran.out.trimEnd().split('\n').at(-1)).to.equal(
      `next: publish these records, then run postern dns --wait ${ADDRESSES.join(' ')}`,
    );
    const key = /^done {5}API key: copy it now, it is shown only once: (\S+)$/m.exec(ran.out)?.[1] ?? '';
    const { api } = createCaller(`http://127.0.0.1:${port}`, key);
    expect(await api('/users/ping')).to.equal('PONG!');
    expect(await api('/inbound/domains')).to.have.lengthOf(1);
  });

  it('run again, changes nothing, asks nothing, and shows no key', async () => {
    const on = machine();
    const [, before] = [await setup(GIVEN, { on }), files()];
    world.ran.length = 0;
    const ran = await setup(['--no-https', ...ADDRESSES], { on, terminal: true });
    expect(ran.code, ran.err).to.equal(0);
    expect([files(), world.ran, world.asked]).to.deep.equal([before, [], []]);
    expect(ran.out).to.not.match(/^done/m);
    expect(ran.out)
      .to.match(/^already {2}settings/m)
      .and.to.match(/^already {2}API key: there is one/m);
    expect((await postern(['key', 'list', '--json'], env())).json()).to.have.lengthOf(2); // one is of the first start
  });

  it('asks three questions, and asks again for answers that cannot be', async () => {
    world.answers = ['localhost', 'mx.example.com', '', 'in mx', 'mx.postern.test', 'in.shop.test'];
    world.answers.push('me', 'me@in.shop.test', 'postmaster@mx.postern.test', 'me@else.test');
    const ran = await setup(['--no-https', ...ADDRESSES], { terminal: true });
    expect(ran.code, ran.err).to.equal(0);
    expect([...new Set(world.asked)]).to.deep.equal([
      'Host name of this server [mx.postern.test]: ',
      'First domain, for mail in and out [postern.test]: ',
      'Your mail address, for mail to postmaster and about certificates: ',
    ]);
    expect(ran.out.split('This machine')[0]?.trim().split('\n')).to.deep.equal([
      '"localhost" has no domain: enter the full name, such as mx.example.com',
      '  mx.example.com is an example: enter the real name',
      '  "in mx" is not a domain name',
      '  mx.postern.test is a name of this server: enter a domain for mail addresses, such as example.com',
      '  "me" is not a mail address',
      '  mail to in.shop.test comes to this server: enter the address of a mailbox that you read on another server',
      '  mail to mx.postern.test comes to this server: enter the address of a mailbox that you read on another server',
    ]);
    expect(written()).to.include({ hostname: 'mx.postern.test' }); // the suggestion, for an empty answer
  });

  it('does not move the mail of a domain that has it elsewhere', async () => {
    const ran = await setup([...GIVEN, '--domain', 'shop.test']);
    expect(ran.code, ran.err).to.equal(0);
    expect(ran.out).to.match(
      /^- {8}inbound domain shop\.test: its MX records point to mail\.elsewhere\.test\. To receive mail of/m,
    );
    expect(ran.out).to.match(/^done {5}sender domain shop\.test/m);
    expect(ran.out).to.not.match(/^shop\.test\. .* MX /m);
  });

  it('names the missing options without a terminal, and refuses invalid ones', async () => {
    for (const [argv, text] of [
      [[], /missing option: --hostname .*there is no terminal/],
      [['--hostname', 'mx'], /--hostname: "mx" has no domain/],
      [['--hostname', '192.0.2.1'], /--hostname: "192\.0\.2\.1" is not a domain name/],
      [['--hostname', 'co.uk'], /--hostname: co\.uk: This is a public suffix/],
      [['--hostname', 'mx.postern.test', '--domain', 'gmail.com'], /--domain: gmail\.com: .* free mail/],
      [[...GIVEN, '--email', 'me@[192.0.2.1]'], /--email: .* is not a mail address/],
      [[...GIVEN, '--address', 'here'], /"here" is not an IP address/],
    ] as const) {
      const ran = await setup(argv);
      expect([ran.code, text.test(ran.err)], ran.err).to.deep.equal([64, true]);
    }
    expect(readFileSync(file(), 'utf8')).to.equal(EXAMPLE);
  });

  it('stops before it changes anything if another program has port 25', async () => {
    world.taken = [25];
    const ran = await setup(GIVEN);
    expect(ran.code).to.equal(1);
    expect(ran.out).to.match(
      /^FAULT {4}port 25: another program listens: exim4\n +Stop it \(systemctl disable --now exim4\)/m,
    );
    expect([readFileSync(file(), 'utf8'), world.ran]).to.deep.equal([EXAMPLE, []]);
  });

  it('says why the service did not start, and continues when run again', async () => {
    world.failing = 'start';
    const on = machine();
    const failed = await setup(GIVEN, { on });
    expect(failed.code).to.equal(69);
    expect(failed.err)
      .to.contain('systemctl start failed: Job for postern.service failed.')
      .and.to.contain('  postern: cannot start: no room\n')
      .and.to.contain('run postern setup again');
    world.failing = '';
    const ran = await setup(GIVEN, { on });
    expect(ran.code, ran.err).to.equal(0);
    expect(ran.out)
      .to.match(/^already {2}settings/m)
      .and.to.match(/^done {5}sender domain/m);
  });

  it('with --dry-run, prints its steps and changes nothing', async () => {
    const before = files();
    const ran = await setup([...GIVEN, '--dry-run', '--json']);
    expect(ran.code, ran.err).to.equal(0);
    expect([files(), world.ran]).to.deep.equal([before, []]);
    const planned = ran.json().filter(({ state }) => state === 'planned');
    expect(planned.map(({ step }) => step)).to.deep.equal(['settings', 'hosts file', 'units', 'account', 'domain']);
  });

  it('asks before it replaces a setting of the operator', async () => {
    const own = 'hostname: mx.old.test # ours\npublic_url: https://api.old.test\nsmtp:\n  postmaster: me@old.test\n';
    writeFileSync(file(), own);
    const refused = await setup(GIVEN);
    expect(refused.code).to.equal(64);
    expect(refused.err)
      .to.contain('sets hostname (mx.old.test), smtp.postmaster (me@old.test)')
      .and.contain('add --yes');
    world.answers = ['no'];
    expect((await setup(GIVEN, { terminal: true })).code).to.equal(64);
    expect(readFileSync(file(), 'utf8')).to.equal(own);
    const ran = await setup([...GIVEN, '--yes']);
    expect(ran.code, ran.err).to.equal(0);
    expect(readFileSync(file(), 'utf8')).to.equal(
      `${own.replace('mx.old', 'mx.postern').replace('me@old', 'me@else')}\nacme:\n  enabled: false\n`,
    );
  });

  it('replaces the loopback address of the host name in the hosts file by the public ones', async () => {
    await setup(GIVEN);
    expect(readFileSync(join(root, 'etc/hosts'), 'utf8')).to.equal(
      HOSTS.replace('127.0.1.1\tmx.postern.test mx', '192.0.2.10\tmx.postern.test mx\n2001:db8::10 mx.postern.test mx'),
    );
  });

  it('shows its findings about the machine: reverse DNS, block lists, outbound connections', async () => {
    zone.set({
      ...SERVERS,
      '10.2.0.192.in-addr.arpa': { PTR: ['mx.postern.test'] },
      '2.0.0.127.zen.spamhaus.org': { A: ['127.0.0.2'] },
      '10.2.0.192.zen.spamhaus.org': { A: ['127.0.0.4'] },
      '2.0.0.127.bl.spamcop.net': { A: ['127.255.255.254'] },
      '10.2.0.192.bl.spamcop.net': { A: ['127.255.255.254'] },
    });
    const found = (await setup([...GIVEN, '--dry-run', '--json'])).json();
    const of = (check: string) =>
      found.filter((one) => one.check === check).map(({ verdict, seen }) => [verdict, seen]);
    expect(of('addresses')).to.deep.equal([['ok', '192.0.2.10, 2001:db8::10']]);
    expect(of('reverse DNS 192.0.2.10')).to.deep.equal([['ok', 'points to mx.postern.test']]);
    expect(of('reverse DNS 2001:db8::10')).to.deep.equal([['warning', 'no PTR record']]);
    expect(of('block list zen.spamhaus.org')).to.deep.equal([['warning', 'lists 192.0.2.10']]);
    expect(of('block list bl.spamcop.net')).to.deep.equal([]); // it refuses this resolver
    expect(of('outbound port 25')[0]?.[0]).to.equal('skipped');
    expect(of('port 25')).to.deep.equal([['ok', 'free']]);
  });

  it('leaves the start of the daemon to the operator without systemd, and continues when it runs', async () => {
    const on = { ...machine(), root: join(root, 'other') };
    mkdirSync(join(on.root, 'etc'), { recursive: true });
    const ran = await setup(GIVEN, { on });
    expect([ran.code, world.ran]).to.deep.equal([0, []]);
    expect(ran.out).to.match(/^- {8}units: systemd does not run here/m);
    expect(ran.out).to.match(/next: start the daemon \(postern serve\), then run postern setup again\n$/);
    await machine().run('systemctl', 'start');
    // A daemon that answers does not make a free port its own.
    expect((await setup([...GIVEN, '--dry-run'], { on })).out).to.match(/^ok {7}port 25: free$/m);
    world.taken = [25];
    expect((await setup([...GIVEN, '--dry-run'], { on })).out).to.match(/^ok {7}port 25: Postern listens$/m);
    const done = await setup(GIVEN, { on });
    expect(done.code, done.err).to.equal(0);
    expect(done.out).to.match(/^done {5}sender domain/m);
  });

  it('is for root', async () => {
    const ran = await setup(GIVEN, { on: { ...machine(), isRoot: false } });
    expect(ran.code).to.equal(77);
    expect(ran.err).to.contain('run it as root: sudo postern setup');
  });

  it('with --no-https, disables the sockets that a web server in front has instead, and says so', async () => {
    const on = machine();
    expect((await setup(GIVEN, { on })).code).to.equal(0);
    await on.run('systemctl', 'enable', 'postern-http.socket', 'postern-https.socket');
    world.ran.length = 0;
    // acme.enabled is false now; certificates of the operator's own may be served by HTTPS.
    const withoutOption = GIVEN.filter((word) => word !== '--no-https');
    expect((await setup(withoutOption, { on })).out).to.contain('already  units: enabled and running');
    const did = 'units: disable postern-http.socket, postern-https.socket; restart postern.service';
    expect((await setup([...GIVEN, '--dry-run'], { on })).out).to.contain(`planned  ${did}`);
    expect(world.ran).to.deep.equal([]);
    expect((await setup(GIVEN, { on })).out).to.contain(`done     ${did}`);
    expect(world.ran).to.deep.equal([
      'disable --now postern-http.socket postern-https.socket',
      'restart postern.service',
    ]);
    expect((await setup(GIVEN, { on })).out).to.contain('already  units: enabled and running');
  });

  it('ends with the route, and then the doctor, once the records are published', async () => {
    const on = machine();
    const records = (await setup([...GIVEN, '--json'], { on })).json().filter(({ name }) => name !== undefined);
    const published: Record<string, any> = { ...SERVERS };
    for (const { name, type, value } of records) {
      const entry = type === 'MX' ? { exchange: value.split(' ')[1].replace(/\.$/, ''), priority: 10 } : value;
      const at = (published[name] ??= {});
      at[type] = [...(at[type] ?? []), type === 'PTR' ? value.replace(/\.$/, '') : entry];
    }
    zone.set(published);
    const again = ['--no-https', ...ADDRESSES];
    expect((await setup(again, { on })).out).to.match(/next: postern route add in\.shop\.test '\*' https:\S+\n$/);
    await postern(['route', 'add', 'in.shop.test', '*', 'pull:'], env());
    expect((await setup(again, { on })).out).to.match(/next: postern doctor\n$/);
  });
});

describe('the files that postern setup changes', () => {
  const changes = [
    { path: 'hostname', value: 'mx.a.test' },
    { path: 'smtp.postmaster', value: 'me@b.test' },
    { path: 'acme.enabled', value: true },
    { path: 'acme.email', value: 'me@b.test' },
  ];

  it('keep the comments and the layout of the example', () => {
    const text = withSettings(EXAMPLE, changes);
    const lost = EXAMPLE.split('\n').filter((line) => !text.split('\n').includes(line));
    expect(lost).to.deep.equal(['hostname: mx.example.com']);
    expect(parse(text)).to.deep.include({
      hostname: 'mx.a.test',
      acme: { enabled: true, email: 'me@b.test' },
      data_dir: '/var/lib/postern',
    });
  });

  for (const [what, text] of [
    ['empty', ''],
    ['only comments', '# mine\n'],
    ['a section without settings', 'smtp:\n  # later\nacme:\n'],
    ['no newline at the end', 'hostname: mx.b.test'],
    ['a value that is not set', 'hostname: # which?\nsmtp:\n    listen: []   # wide\n'],
    ['flow maps', 'smtp: {listen: ["[::]:25"]} # all\nacme: {}\n'],
    ['JSON', '{"hostname": "mx.b.test", "smtp": {"listen": []}}\n'],
    [
      'quoted values and anchors',
      'hostname: "mx.b.test"\nsmtp: &a\n  postmaster: \'x@y.test\' # me\nacme: {enabled: false}\n',
    ],
    ['line ends of Windows', 'hostname: mx.b.test\r\nsmtp:\r\n  listen: []\r\n'],
  ] as const)
    it(`have the new values and the old others: ${what}`, () => {
      const after = withSettings(text, changes);
      const before = parse(text) ?? {};
      expect(parse(after)).to.deep.equal({
        ...before,
        hostname: 'mx.a.test',
        smtp: { ...before.smtp, postmaster: 'me@b.test' },
        acme: { ...before.acme, enabled: true, email: 'me@b.test' },
      });
      for (const comment of text.match(/#.*/g) ?? []) expect(after).to.contain(comment.trim());
      expect(withSettings(after, [])).to.equal(after);
    });

  it('have the full name of the machine, as the installer of Debian writes it', () => {
    expect(fullName(HOSTS, 'mx')).to.equal('mx.postern.test');
    expect(fullName('127.0.0.1 localhost\n127.0.1.1 mx\n', 'mx')).to.equal(undefined);
  });

  it('lose only the name on the line of localhost, and nothing without a public address', () => {
    const hosts = '127.0.0.1 localhost mx.postern.test\n::1 localhost\n192.0.2.10 mx.postern.test\n';
    expect(withoutLoopback(hosts, 'mx.postern.test', ['192.0.2.10'])).to.equal(hosts.replace(' mx.postern.test', ''));
    expect(withoutLoopback(HOSTS, 'mx.postern.test', [])).to.equal(undefined);
    expect(withoutLoopback(HOSTS, 'other.test', ['192.0.2.10'])).to.equal(undefined);
  });
});

describe('the machine of postern setup', () => {
  it('knows whether a port is taken, on any address', async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = server.address();
    const number = typeof address === 'object' && address ? address.port : 0;
    expect(await createMachine().isTaken(number)).to.equal(true);
    await new Promise((resolve) => server.close(resolve));
    expect(await createMachine().isTaken(number)).to.equal(false);
  });

  it('runs programs, also those that fail or do not exist', async () => {
    const { run } = createMachine();
    expect(await run('sh', '-c', 'echo out; echo err >&2; exit 3')).to.deep.equal({
      code: 3,
      out: 'out\n',
      err: 'err\n',
    });
    expect((await run('no-such-program')).code).to.equal(127);
  });

  it('asks one question after the other, also if all answers were there before, and lets the process end', () => {
    const module = new URL('../../../src/cli/setup/machine.ts', import.meta.url).href;
    const script = `import { createMachine } from '${module}';
      const { ask } = createMachine();
      const answers = [];
      for (const question of ['a? ', 'b? ', 'c? ']) answers.push((await ask(question)) ?? null);
      console.log(JSON.stringify(answers));`;
    const out = execFileSync(process.execPath, ['--input-type=module', '--eval', script], { input: 'one\n\n' });
    expect(out.toString()).to.equal('a? b? c? ["one","",null]\n');
  });

  it('makes files as the user of the daemon, and is root again after that', async function () {
    if (process.getuid?.() !== 0) return this.skip();
    const dir = await diskDir();
    chownSync(dir, 65534, 65534);
    chmodSync(dir, 0o700);
    const { asOwner } = createMachine();
    await asOwner(dir, async () => writeFileSync(join(dir, 'a'), ''));
    await asOwner(dir, () => Promise.reject(new Error('fails'))).catch(() => undefined);
    const { uid, gid } = statSync(join(dir, 'a'));
    expect([uid, gid, process.geteuid?.(), process.getegid?.()]).to.deep.equal([65534, 65534, 0, 0]);
    expect(existsSync(join(dir, 'a'))).to.equal(true);
  });
});
