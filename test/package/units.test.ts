import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { tempDir } from '../support/temp.ts';

const UNITS = new URL('../../systemd/', import.meta.url).pathname;
const CHECK = new URL('../../scripts/check-units.sh', import.meta.url).pathname;
const SOCKETS = ['smtp', 'submission', 'submissions', 'http', 'https'].map((name) => `postern-${name}.socket`);
const NAMES = ['postern.service', ...SOCKETS];

/** Copies the units into a folder of their own, with one of them changed, and checks them there. */
async function checkWith(change: (text: string, name: string) => string) {
  const dir = await tempDir();
  for (const name of NAMES) writeFileSync(join(dir, name), change(readFileSync(join(UNITS, name), 'utf8'), name));
  // Without a terminal systemd writes a smiley of plain characters: the form that is harder to read.
  return spawnSync(CHECK, ['--units', dir], { encoding: 'utf8', env: { PATH: process.env.PATH } });
}

function offlineAnalysis(): boolean {
  const { stdout } = spawnSync('systemd-analyze', ['--version'], { encoding: 'utf8' });
  return Number(/^systemd (\d+)/.exec(stdout ?? '')?.[1] ?? 0) >= 251;
}

describe('the systemd units', () => {
  before(function () {
    if (offlineAnalysis()) return;
    console.log('      (skipped: systemd-analyze 251 or later is not installed)');
    this.skip();
  });

  it('are valid, and sandbox the service', async () => {
    const { status, stdout, stderr } = await checkWith((text) => text);
    expect(stderr).to.equal('');
    expect(stdout).to.match(/exposure is 1\.\d /);
    expect(status).to.equal(0);
  });

  it('fail the check with a directive unknown to systemd', async () => {
    const { status, stderr } = await checkWith((text) => text.replace('UMask=', 'UMaks='));
    expect(stderr).to.contain('UMaks');
    expect(status).to.equal(1);
  });

  it('fail the check with a socket that cannot be opened', async () => {
    const { status } = await checkWith((text) => text.replace('ListenStream=25', 'ListenStream=twenty-five'));
    expect(status).to.equal(1);
  });

  it('fail the check when the sandbox is weakened', async () => {
    const { status, stderr } = await checkWith((text) =>
      text.replace('ProtectSystem=strict\n', '').replace('PrivateUsers=yes\n', ''),
    );
    expect(stderr).to.contain('must be at most 1.6');
    expect(status).to.equal(1);
  });
});

describe('the service unit', () => {
  const settings = new Map(
    readFileSync(join(UNITS, 'postern.service'), 'utf8')
      .split('\n')
      .filter((line) => /^[A-Z]\w+=/.test(line))
      .map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );

  it('has a longer stop timeout than the drain', () => {
    // src/cli/serve.ts ends a drain after 60 s.
    expect(Number(settings.get('TimeoutStopSec'))).to.be.greaterThan(60);
  });

  it('lets V8 write executable memory, and does not restart on wrong settings', () => {
    expect(settings.has('MemoryDenyWriteExecute')).to.equal(false);
    expect(settings.get('RestartPreventExitStatus')).to.equal('78');
  });

  it('accepts notifications of a child process, which sends them', () => {
    expect(settings.get('Type')).to.equal('notify');
    expect(settings.get('NotifyAccess')).to.equal('all');
  });

  it('names the socket as the daemon expects it', () => {
    expect(readFileSync(join(UNITS, 'postern-smtp.socket'), 'utf8')).to.match(/^FileDescriptorName=smtp$/m);
    expect(settings.get('Sockets')).to.equal('postern-smtp.socket');
    // Off by default: named in Sockets= they would be opened with the service.
    for (const [unit, name] of [
      ['submission', 'submission'],
      ['submissions', 'submissions'],
      ['http', 'redirect'],
      ['https', 'https'],
    ]) {
      expect(readFileSync(join(UNITS, `postern-${unit}.socket`), 'utf8'))
        .to.match(new RegExp(`^FileDescriptorName=${name}$`, 'm'))
        .and.match(/^Service=postern\.service$/m);
    }
  });
});
