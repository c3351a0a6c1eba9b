import { execFileSync, spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  statSync,
  symlinkSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { diskDir } from '../support/temp.ts';

const SCRIPTS = new URL('../../scripts/', import.meta.url).pathname;

function run(script: string, ...args: string[]) {
  const { status, stdout, stderr } = spawnSync(join(SCRIPTS, script), args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  return { status, stdout, stderr };
}

const modeOf = (path: string) => (statSync(path).mode & 0o7777).toString(8);

/** Every file below `dir` with what would show that it was written again. */
function inventory(dir: string): string[] {
  return readdirSync(dir, { recursive: true, encoding: 'utf8' })
    .sort()
    .map((name) => {
      const { ino, mode, mtimeMs } = lstatSync(join(dir, name));
      return lstatSync(join(dir, name)).isDirectory() ? `${name} ${mode}` : `${name} ${mode} ${ino} ${mtimeMs}`;
    });
}

describe('the Node that the scripts use', () => {
  const ARCH = process.arch === 'arm64' ? 'arm64' : 'x64';

  /** A tree as npm 9 and 10 leave it: the runtime without its link in .bin; or, without `runtime`, no Node at all. */
  async function tree(runtime: boolean) {
    const dir = await diskDir();
    mkdirSync(join(dir, 'scripts'));
    for (const name of ['node', 'link-runtime.sh']) copyFileSync(join(SCRIPTS, name), join(dir, 'scripts', name));
    if (runtime) {
      mkdirSync(join(dir, `node_modules/node-linux-${ARCH}/bin`), { recursive: true });
      symlinkSync(process.execPath, join(dir, `node_modules/node-linux-${ARCH}/bin/node`));
    }
    return dir;
  }
  /** A PATH whose Node says that it is of another version. */
  async function hostWith(major: number): Promise<string> {
    const dir = await diskDir();
    writeFileSync(join(dir, 'node'), `#!/bin/sh\necho ${major}\n`, { mode: 0o755 });
    return `${dir}:/usr/bin:/bin`;
  }
  const ask = (dir: string, script: string, PATH: string) =>
    spawnSync(join(dir, 'scripts', script), ['--version'], { encoding: 'utf8', env: { PATH } });

  it('is the one that npm installed, though npm 9 and 10 do not link it', async () => {
    const dir = await tree(true);
    expect(ask(dir, 'node', await hostWith(18)).stdout).to.equal(`${process.version}\n`);
  });

  it('is linked after the installation, for commands of packages', async () => {
    const dir = await tree(true);
    expect(ask(dir, 'link-runtime.sh', await hostWith(18)).status).to.equal(0);
    expect(readlinkSync(join(dir, 'node_modules/.bin/node'))).to.equal(`../node-linux-${ARCH}/bin/node`);
  });

  it('is that of the host where npm installed none, if it is new enough', async () => {
    expect(ask(await tree(false), 'node', await hostWith(24))).to.include({ status: 0, stdout: '24\n' });
  });

  for (const script of ['node', 'link-runtime.sh'])
    it(`stops ${script} with one sentence if it is missing or too old`, async () => {
      const { status, stdout, stderr } = ask(await tree(false), script, await hostWith(18));
      expect({ status, stdout }).to.deep.equal({ status: 69, stdout: '' });
      expect(stderr).to.match(/^postern: needs Node 24 or later\. .*\n$/);
    });
});

describe('scripts/install.sh', function () {
  // Two copies of the tree with its runtime, some 185 MB each.
  this.timeout(120_000);
  let root = '';
  const at = (...names: string[]) => join(root, ...names);

  before(async () => {
    root = await diskDir();
    const { status, stderr } = run('install.sh', '--root', root);
    expect(stderr).to.equal('');
    expect(status).to.equal(0);
  });

  it('lays out program, units, settings and data', () => {
    for (const file of [
      'usr/bin/postern',
      'usr/lib/postern/src/main.ts',
      'usr/lib/postern/config/default.yaml',
      'usr/lib/systemd/system/postern.service',
      'usr/lib/systemd/system/postern-smtp.socket',
      'etc/postern/postern.yaml',
      'var/lib/postern',
    ]) {
      expect(existsSync(at(file)), file).to.equal(true);
    }
  });

  it('keeps settings, credentials, certificates and mail from other users', () => {
    expect(modeOf(at('etc/postern'))).to.equal('750');
    expect(modeOf(at('etc/postern/postern.yaml'))).to.equal('640');
    expect(modeOf(at('etc/postern/credentials'))).to.equal('700');
    expect(modeOf(at('etc/postern/tls'))).to.equal('750');
    expect(modeOf(at('var/lib/postern'))).to.equal('750');
  });

  it('leaves nothing writable by others than root', () => {
    const loose = readdirSync(at('usr'), { recursive: true, encoding: 'utf8' }).filter(
      (name) => !lstatSync(at('usr', name)).isSymbolicLink() && (statSync(at('usr', name)).mode & 0o022) !== 0,
    );
    expect(loose).to.deep.equal([]);
  });

  it('installs the pinned runtime without development packages', () => {
    const modules = at('usr/lib/postern/node_modules');
    expect(execFileSync(at('usr/lib/postern/scripts/node'), ['--version'], { encoding: 'utf8' })).to.match(/^v24\./);
    expect(existsSync(join(modules, 'smtp-server'))).to.equal(true);
    for (const name of ['mocha', 'typescript', 'chai', '.bin/mocha', '.bin/tsc'])
      expect(existsSync(join(modules, name)), name).to.equal(false);
    expect(existsSync(at('usr/lib/postern/test'))).to.equal(false);
  });

  it('installs a command that runs from any folder and through a link', () => {
    symlinkSync(at('usr/bin/postern'), at('link'));
    for (const command of [at('usr/bin/postern'), at('link')]) {
      const { status, stdout, stderr } = spawnSync(command, ['--help'], {
        cwd: '/',
        encoding: 'utf8',
        env: { PATH: '/usr/bin:/bin' },
      });
      expect(stderr).to.equal('');
      expect(stdout).to.contain('serve');
      expect(status).to.equal(0);
    }
    unlinkSync(at('link'));
  });

  it('installs settings that the command accepts once the host names are set', () => {
    const names = { POSTERN_HOSTNAME: 'mx.postern.test', POSTERN_PUBLIC_URL: 'https://api.postern.test' };
    const env = { PATH: '/usr/bin:/bin', POSTERN_CONFIG: at('etc/postern/postern.yaml'), ...names };
    const { status, stderr } = spawnSync(at('usr/bin/postern'), ['config', 'check'], { encoding: 'utf8', env });
    expect(stderr).to.equal('');
    expect(status).to.equal(0);
  });

  it('changes nothing when it runs again', () => {
    const before = inventory(root);
    const { status, stdout } = run('install.sh', '--root', root);
    expect(stdout).to.equal('install: everything is up to date\n');
    expect(status).to.equal(0);
    expect(inventory(root)).to.deep.equal(before);
  });

  it("keeps the operator's changes, and repairs damaged files", () => {
    writeFileSync(at('etc/postern/postern.yaml'), 'hostname: mx.example.org\n');
    writeFileSync(at('usr/bin/postern'), 'damaged\n');
    const { status, stdout } = run('install.sh', '--root', root);
    expect(status).to.equal(0);
    expect(stdout).to.contain('usr/bin/postern').and.not.to.contain('install: tree');
    expect(readFileSync(at('etc/postern/postern.yaml'), 'utf8')).to.equal('hostname: mx.example.org\n');
    expect(readFileSync(at('usr/bin/postern'), 'utf8')).to.match(/^#!\/bin\/sh\n/);
  });

  it('writes the prefix into the units', async () => {
    const other = await diskDir();
    // The packages are not looked at: some that are none save a copy of 185 MB.
    const packages = join(await diskDir(), 'node_modules');
    mkdirSync(packages);
    writeFileSync(join(packages, '.package-lock.json'), '{ "packages": {} }');
    const done = run('install.sh', '--root', other, '--prefix', '/usr/local', '--packages', packages);
    expect(done.status, done.stderr).to.equal(0);
    const unit = readFileSync(join(other, 'usr/local/lib/systemd/system/postern.service'), 'utf8');
    expect(unit).to.contain('ExecStart=/usr/local/bin/postern serve').and.not.to.contain('/usr/bin/postern');
  });

  it('only prints its steps with --dry-run', async () => {
    const other = await diskDir();
    const { status, stdout } = run('install.sh', '--root', other, '--dry-run');
    expect(status).to.equal(0);
    expect(stdout).to.contain(`${other}/usr/bin/postern`);
    expect(readdirSync(other)).to.deep.equal([]);
  });

  for (const args of [
    ['--prefix'],
    ['--packages', '/missing'],
    ['--root', 'relative'],
    ['--root', '/'],
    ['--root', ''],
    ['--prefix', 'usr'],
    ['--frobnicate'],
    ['stray'],
  ]) {
    it(`rejects ${JSON.stringify(args)} with the usage and exit code 64`, () => {
      for (const script of ['install.sh', 'uninstall.sh']) {
        const { status, stderr } = run(script, ...args, '--dry-run');
        expect(status).to.equal(64);
        expect(stderr).to.contain('Usage:');
      }
    });
  }

  it('is undone by uninstall.sh, except for settings and data', () => {
    const said = run('uninstall.sh', '--root', root);
    expect(said.stderr).to.equal('');
    expect(said.status).to.equal(0);
    for (const gone of [
      'usr/bin/postern',
      'usr/lib/postern',
      'usr/lib/systemd/system/postern.service',
      'usr/lib/systemd/system/postern-smtp.socket',
    ]) {
      expect(existsSync(at(gone)), gone).to.equal(false);
    }
    expect(existsSync(at('etc/postern/postern.yaml'))).to.equal(true);
    expect(existsSync(at('var/lib/postern'))).to.equal(true);
    expect(run('uninstall.sh', '--root', root).stdout).to.contain('nothing was installed');
  });

  it('is undone completely by uninstall.sh --purge', () => {
    expect(run('uninstall.sh', '--root', root, '--purge', '--dry-run').status).to.equal(0);
    expect(existsSync(at('var/lib/postern'))).to.equal(true);
    expect(run('uninstall.sh', '--root', root, '--purge').status).to.equal(0);
    expect(existsSync(at('etc/postern'))).to.equal(false);
    expect(existsSync(at('var/lib/postern'))).to.equal(false);
  });
});

describe('scripts/uninstall.sh', () => {
  it('removes nothing if the folder is not an installation of Postern', async () => {
    const root = await diskDir();
    mkdirSync(join(root, 'usr/lib/postern'), { recursive: true });
    mkdirSync(join(root, 'var/lib/postern'), { recursive: true });
    writeFileSync(join(root, 'usr/lib/postern/thesis.txt'), 'mine');
    expect(run('uninstall.sh', '--root', root, '--purge').status).to.equal(69);
    expect(existsSync(join(root, 'usr/lib/postern/thesis.txt'))).to.equal(true);
    expect(existsSync(join(root, 'var/lib/postern'))).to.equal(true);
  });
});
