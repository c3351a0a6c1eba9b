import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { commandPage } from '../../../scripts/man.ts';
import { EXIT } from '../../../src/cli/command.ts';
import { commands } from '../../../src/cli/commands.ts';
import { postern } from '../../support/command.ts';
import { tempDir } from '../../support/temp.ts';

describe('the command line', () => {
  it('lists its commands for help, and without arguments', async () => {
    for (const argv of [[], ['help'], ['--help']]) {
      const { code, out } = await postern(argv);
      expect(code).to.equal(0);
      for (const { name, summary } of commands)
        expect(out).to.contain(`\n  ${name} `).and.to.contain(summary.split('. ')[0]?.replace(/\.$/, ''));
      expect(out.split('\n').filter((line) => line.length > 80)).to.deep.equal([]);
    }
  });

  it('has a help text for every command', async () => {
    for (const { name, summary } of commands) {
      const { code, out } = await postern([...name.split(' '), '--help']);
      expect(code, name).to.equal(0);
      expect(out.replaceAll('\n', ' ')).to.contain(summary).and.to.contain(`Usage: postern ${name}`);
      expect(out).to.contain('--json');
      const isWide = (line: string) => line.length > 80 && !line.startsWith('  ') && !line.startsWith('Usage:');
      expect(out.split('\n').filter(isWide), name).to.deep.equal([]);
    }
  });

  it('shows the help of a command, or of a group, with `help` before or after its name', async () => {
    const list = await postern(['queue', 'list', '--help']);
    expect(await postern(['help', 'queue', 'list'])).to.include({ code: 0, out: list.out });
    for (const argv of [
      ['help', 'queue'],
      ['queue', '--help'],
      ['queue', '-h'],
      ['queue', 'help'],
    ]) {
      const { code, out, err } = await postern(argv);
      expect({ code, err }, argv.join(' ')).to.deep.equal({ code: 0, err: '' });
      expect(out).to.contain('  queue list ').and.not.to.contain('  serve ');
    }
  });

  it('exits with 64 and a hint for an unknown command, option or value', async () => {
    for (const argv of [['serv'], ['serv', 'x'], ['--verson'], ['help', 'serv']]) {
      const name = argv.find((word) => word !== 'help');
      expect(await postern(argv), argv.join(' ')).to.include({
        code: 64,
        out: '',
        err: `postern: unknown command "${name}"\nTry: postern help\n`,
      });
    }
    const lst = await postern(['queue', 'lst']);
    expect(lst).to.include({ code: 64, out: '' });
    expect(lst.err)
      .to.match(/^postern: unknown command "queue lst"\n/)
      .and.to.contain('  queue list ');
    const queue = await postern(['queue']);
    expect(queue).to.include({ code: 64, out: '' });
    expect(queue.err)
      .to.match(/^postern: "queue" needs a command\n/)
      .and.to.contain('  queue list ');
    const option = await postern(['queue', 'list', '--sate', 'dead']);
    expect(option).to.include({ code: 64 });
    expect(option.err).to.contain('--sate').and.to.contain('Try: postern queue list --help');
    for (const argv of [
      ['queue', 'list', '--state', 'x'],
      ['queue', 'list', '--limit', '0'],
      ['queue', 'drop'],
      ['queue', 'list', '--from', 'never'],
      ['queue', 'show'],
      ['route', 'test'],
      ['key', 'revoke'],
      ['account', 'create'],
    ]) {
      expect((await postern(argv)).code, argv.join(' ')).to.equal(64);
    }
  });

  it('exits with 64 for arguments that it would ignore: a file without --config is not checked', async () => {
    for (const argv of [
      ['config', 'check', 'mine.yaml'],
      ['serve', 'mine.yaml'],
      ['queue', 'flush', 'ID'],
      ['route', 'test', 'a@b.example', 'c@d.example'],
      ['doctor', 'x'],
    ]) {
      const ran = await postern(argv);
      expect(ran, argv.join(' ')).to.include({ code: 64, out: '' });
      expect(ran.err)
        .to.contain(`unexpected argument "${argv.at(-1)}"`)
        .and.to.contain('--help');
    }
  });

  it('exits with 78 for unusable settings files, naming the setting and the file, before it creates anything', async () => {
    const dir = await tempDir();
    const fixture = (name: string) => new URL(`../../fixtures/tls/${name}.pem`, import.meta.url).pathname;
    const empty = join(dir, 'empty');
    writeFileSync(empty, '\n');
    const [cert, key, other] = [fixture('first.cert'), fixture('first.key'), fixture('second.key')];
    const wrong: readonly (readonly [Record<string, string>, string, string])[] = [
      [
        { POSTERN_SMTP__TLS__CERT: join(dir, 'none'), POSTERN_SMTP__TLS__KEY: key },
        'smtp.tls.cert: ENOENT',
        join(dir, 'none'),
      ],
      [
        { POSTERN_SMTP__TLS__CERT: empty, POSTERN_SMTP__TLS__KEY: key },
        'smtp.tls.cert:',
        `${empty} is not a PEM certificate`,
      ],
      [
        { POSTERN_SMTP__TLS__CERT: cert, POSTERN_SMTP__TLS__KEY: empty },
        'smtp.tls.key:',
        `${empty} is not a PEM private key`,
      ],
      [
        { POSTERN_SMTP__TLS__CERT: cert, POSTERN_SMTP__TLS__KEY: other },
        'smtp.tls:',
        `${other} is not the key of ${cert}`,
      ],
      [{ POSTERN_STORE__URL_FILE: join(dir, 'none') }, 'store.url_file: ENOENT', join(dir, 'none')],
      // Taken as no URL at all, it led to an embedded store without domains, and all mail was refused for good.
      [{ POSTERN_STORE__URL_FILE: empty }, 'store.url_file:', 'must contain a URL'],
    ];
    for (const [env, path, text] of wrong) {
      for (const argv of [['config', 'check'], ['serve']]) {
        const ran = await postern(argv, { ...env, POSTERN_DATA_DIR: join(dir, 'data') });
        expect(ran, `${argv.join(' ')} ${path}`).to.include({ code: 78, out: '' });
        expect(ran.err).to.contain(path).and.to.contain(text);
      }
    }
    expect(existsSync(join(dir, 'data'))).to.equal(false);
    expect(
      (await postern(['config', 'check'], { POSTERN_SMTP__TLS__CERT: cert, POSTERN_SMTP__TLS__KEY: key })).code,
    ).to.equal(0);
    // Credentials of systemd are there while the service runs only.
    expect(
      (await postern(['config', 'check'], { POSTERN_STORE__URL_FILE: '/run/credentials/postern.service/none' })).code,
    ).to.equal(0);
    const listed = await postern(['host', 'list'], {
      POSTERN_STORE__URL_FILE: '/run/credentials/postern.service/none',
    });
    expect(listed).to.include({ code: 78, out: '' });
    expect(listed.err).to.contain('exists only while the service runs: start it, or name a copy of the file');
  });

  it('says how to fix a failed start', async () => {
    const dir = await tempDir();
    const file = join(dir, 'file');
    writeFileSync(file, '');
    const env = {
      POSTERN_LOG__LEVEL: 'silent',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_DATA_DIR: join(file, 'data'),
    };
    const ran = await postern(['serve'], env);
    expect(ran.code).to.equal(69);
    expect(ran.err)
      .to.contain('ENOTDIR')
      .and.to.contain(`The folder ${join(file, 'data')} (data_dir) must be writable for this user`);
  });

  it('exits with 78 for unusable settings, with every error and its path', async () => {
    const file = join(await tempDir(), 'bad.yaml');
    writeFileSync(file, 'smtp: { max_recipients: 1 }\nnot_there: 1\n');
    const ran = await postern(['config', 'check', '--config', file]);
    expect(ran).to.include({ code: 78, out: '' });
    expect(ran.err)
      .to.contain('smtp.max_recipients: must be at least 100')
      .and.to.contain('not_there: unknown setting');
    expect((await postern(['serve'], { POSTERN_CONFIG: file })).code).to.equal(78);
  });

  it('shows the settings with their origin, for a person and for a script', async () => {
    const env = { POSTERN_HOSTNAME: 'mx.postern.test' };
    expect((await postern(['config', 'show'], env)).out).to.match(/hostname\s+"mx\.postern\.test"\s+POSTERN_HOSTNAME/);
    expect((await postern(['config', 'show', '--json'], env)).json()).to.deep.include({
      path: 'hostname',
      value: 'mx.postern.test',
      origin: 'POSTERN_HOSTNAME',
    });
    expect(await postern(['config', 'check'], env)).to.include({ code: 0, out: 'The settings are valid.\n' });
  });

  it('creates, lists and revokes accounts and keys, and shows a key once', async () => {
    const env = { POSTERN_DATA_DIR: await tempDir() };
    expect((await postern(['key', 'create'], env)).err).to.contain('no account exists yet');
    const [{ id, key }] = (await postern(['account', 'create', 'shop', '--json'], env)).json();
    expect((await postern(['account', 'list'], env)).out)
      .to.contain('shop')
      .and.to.contain(id);
    const [second] = (await postern(['key', 'create', 'robot', '--json'], env)).json();
    const listed = await postern(['key', 'list'], env);
    expect(listed.out).to.contain('robot').and.not.to.contain(key).and.not.to.contain(second.key);
    expect((await postern(['key', 'revoke', second.key], env)).code).to.equal(0);
    const rows = (await postern(['key', 'list', '--json'], env)).json();
    expect(
      rows.map((row: { label: string; revoked_at: string | null }) => [row.label, row.revoked_at !== null]),
    ).to.deep.equal([
      ['first key', false],
      ['robot', true],
    ]);
    expect((await postern(['key', 'revoke', second.key], env)).code, 'once more').to.equal(0);
    expect((await postern(['key', 'list', '--json'], env)).json()).to.deep.equal(rows);
    expect((await postern(['key', 'revoke', 'zzzzzzz'], env)).code).to.equal(64);
    for (const tooLittle of ['', rows[0].id.slice(0, 1), rows[0].id.slice(0, 15)])
      expect((await postern(['key', 'revoke', tooLittle], env)).code, tooLittle).to.equal(64);
    expect(rows[0]).to.include({ last_used_at: null });
    expect((await postern(['key', 'revoke', rows[0].id], env)).out).to.equal(`Revoked ${key.slice(0, 4)}… first key\n`);
    await postern(['account', 'create', 'other'], env);
    const twice = await postern(['account', 'create', 'other'], env);
    expect([twice.code, twice.out]).to.deep.equal([64, '']);
    expect(twice.err).to.contain('account other exists already');
    expect((await postern(['key', 'create'], env)).err).to.contain('--account');
    expect((await postern(['key', 'create', '--account', 'other'], env)).code).to.equal(0);
  });

  it('reports that there is no queue yet', async () => {
    const { code, err } = await postern(['queue', 'list'], { POSTERN_DATA_DIR: await tempDir() });
    expect(code).to.equal(EXIT.unavailable);
    expect(err).to.contain('no queue in').and.to.contain('Start the daemon first');
  });

  it('prints its version', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'));
    for (const option of ['--version', '-V'])
      expect(await postern([option])).to.include({ code: 0, out: `postern ${version}\n` });
  });

  it('prints results as one JSON array with --json, and one object per line with --jsonl, for every command', async () => {
    const env = {
      POSTERN_DATA_DIR: await tempDir(),
      POSTERN_HOSTNAME: 'mx.postern.test',
      POSTERN_DNS__SERVERS: '127.0.0.1:9',
      POSTERN_DNS__TIMEOUT_MS: '100',
    };
    const lines: readonly (readonly string[])[] = [
      ['key', 'create', 'robot'],
      ['key', 'list'],
      ['config', 'check'],
      ['config', 'show'],
      ['ip', 'add', '192.0.2.2'],
      ['ip', 'list'],
      ['domain', 'list'],
      ['route', 'list'],
      ['route', 'test', 'a@b.test'],
      ['doctor'],
      ['account', 'create', 'other'],
      ['account', 'list'],
    ];
    await postern(['account', 'create', 'shop'], env);
    for (const argv of lines) {
      const array = (await postern([...argv, '--json'], env)).json();
      expect(array, argv.join(' ')).to.be.an('array');
      const { out } = await postern([...argv, '--jsonl'], env);
      const objects = out
        .split('\n')
        .filter((line) => line !== '')
        .map((line) => JSON.parse(line));
      expect(
        objects.every((each) => typeof each === 'object' && !Array.isArray(each)),
        argv.join(' '),
      ).to.equal(true);
      if (argv[1] === 'list') expect(objects, argv.join(' ')).to.deep.equal(array);
    }
    expect(await postern(['key', 'list', '--json', '--jsonl'], env)).to.include({ code: 64, out: '' });
  });

  it('prints only a new key on standard output, for scripts, and the notes about it elsewhere', async () => {
    const env = { POSTERN_DATA_DIR: await tempDir() };
    for (const argv of [
      ['account', 'create', 'shop'],
      ['key', 'create', 'robot'],
    ]) {
      const { out, err } = await postern(argv, env);
      expect(out).to.match(/^[\w-]{22}\n$/);
      expect(err).to.contain('shown only once').and.not.to.contain(out.trim());
    }
  });

  it('rejects the names of the example file in config check, because they do not resolve to this host', async () => {
    const example = new URL('../../../config/production.example.yaml', import.meta.url).pathname;
    const ran = await postern(['config', 'check', '--config', example]);
    expect(ran).to.include({ code: 78, out: '' });
    expect(ran.err)
      .to.contain('hostname: mx.example.com is a placeholder')
      .and.to.contain('public_url: postern.example.com is a placeholder');
    for (const name of ['Mail.Example.ORG', 'example.net', 'mx.example', 'mx.invalid']) {
      expect(
        (await postern(['config', 'check'], { POSTERN_HOSTNAME: name, POSTERN_PUBLIC_URL: 'https://mx.postern.test' }))
          .code,
        name,
      ).to.equal(78);
    }
    for (const name of ['mx.postern.test', 'myexample.com', 'example.com.postern.test']) {
      expect(
        (await postern(['config', 'check'], { POSTERN_HOSTNAME: name, POSTERN_PUBLIC_URL: `https://${name}` })).code,
        name,
      ).to.equal(0);
    }
  });

  it('documents every exit code in the manual', async () => {
    const page = (await commandPage()).replaceAll('\\-', '-');
    for (const [name, code] of Object.entries(EXIT)) expect(page, name).to.contain(`.TP\n${code}\n`);
  });

  describe('run by a user who may not read its files', function () {
    this.timeout(60_000);
    /** What Node compiled for that user, who may not read what it compiled for the tests. */
    let compiled = '';
    before(async function () {
      if (process.getuid?.() !== 0 || spawnSync('setpriv', ['--version']).status !== 0) this.skip();
      compiled = await tempDir();
      chmodSync(compiled, 0o777);
    });

    /** The command as the user nobody. */
    async function asNobody(argv: readonly string[], env: Readonly<Record<string, string>>) {
      const main = new URL('../../../src/main.ts', import.meta.url).pathname;
      return spawnSync(
        'setpriv',
        ['--reuid=65534', '--regid=65534', '--clear-groups', '--', process.execPath, main, ...argv],
        { encoding: 'utf8', env: { NODE_COMPILE_CACHE: compiled, ...env }, cwd: '/' },
      );
    }

    it('reports that permission is denied for a queue and a store of another user, and exits with 77', async () => {
      const data = join(await tempDir(), 'data');
      mkdirSync(join(data, 'spool'), { recursive: true, mode: 0o750 });
      chmodSync(dirname(data), 0o755);
      for (const argv of [
        ['queue', 'list'],
        ['key', 'list'],
        ['domain', 'add', 'in.postern.test'],
        ['replay', '--all'],
      ]) {
        const ran = await asNobody(argv, { POSTERN_DATA_DIR: data });
        expect(ran.status, `${argv.join(' ')} ${ran.stderr}`).to.equal(77);
        expect(ran.stderr).to.contain('permission denied').and.to.contain('sudo postern …');
      }
    });

    it('reports that permission is denied for settings of another user, and exits with 78 instead of using the defaults', async () => {
      const dir = await tempDir();
      chmodSync(dir, 0o755);
      const file = join(dir, 'postern.yaml');
      writeFileSync(file, 'hostname: mx.postern.test\n', { mode: 0o640 });
      const ran = await asNobody(['config', 'show'], { POSTERN_CONFIG: file });
      expect(ran).to.include({ status: 78, stdout: '' });
      expect(ran.stderr).to.contain(`${file}: permission denied; run this as root`);
    });
  });
});
