import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePort } from '../free-port.ts';
import { EICAR } from '../scanners.ts';
import { tempDir } from '../temp.ts';
import { until } from '../until.ts';

/** A scanner from Debian that runs in a folder of its own, without a network and without its database. */
export interface RealScanner {
  /** `127.0.0.1:port`. */
  readonly address: string;
  /** SIGKILL for it and all of its workers. */
  kill(): Promise<void>;
  /** Starts it again, at the same address. */
  again(): Promise<void>;
  stop(): Promise<void>;
  /** What it said, for a test that fails. */
  said(): string;
}

/** Whether a program is here, also in /usr/sbin, which is not on every PATH. */
export const isThere = (program: string): boolean =>
  spawnSync('sh', ['-c', `command -v ${program}`], { env: { PATH: SEARCHED } }).status === 0;

const SEARCHED = `${process.env['PATH']}:/usr/sbin:/sbin`;
const START_MS = 60_000;

const answers = (port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.on('connect', () => resolve(true));
    socket.on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });

/** Runs a program in a process group of its own, so that its workers end with it. */
async function run(program: string, args: readonly string[], port: number): Promise<RealScanner> {
  let child: ChildProcess;
  let said = '';
  async function launch(): Promise<void> {
    child = spawn(program, args, {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, PATH: SEARCHED },
    });
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (chunk) => {
        said = `${said}${chunk}`.slice(-20_000);
      });
    await until(
      `${program} to listen`,
      () => {
        if (child.exitCode !== null) throw new Error(`${program} ended: ${said}`);
        return answers(port);
      },
      START_MS,
    );
  }
  async function end(signal: NodeJS.Signals): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
    const ended = once(child, 'exit');
    process.kill(-child.pid, signal);
    await ended;
  }
  await launch();
  return {
    address: `127.0.0.1:${port}`,
    kill: () => end('SIGKILL'),
    again: launch,
    // Workers that outlive their parent would hold the port.
    stop: () => end('SIGKILL'),
    said: () => said,
  };
}

/** A folder that the scanners' own users may read and write too. */
async function folder(): Promise<string> {
  const dir = await tempDir();
  await chmod(dir, 0o777);
  return dir;
}

/** clamd with one signature, EICAR's, in the place of its database, which cannot be fetched here. */
export async function startRealClamd(): Promise<RealScanner> {
  const [dir, port] = [await folder(), await freePort()];
  await mkdir(join(dir, 'db'));
  await writeFile(join(dir, 'db', 'own.ndb'), `Own-Eicar-Test:0:*:${Buffer.from(EICAR).toString('hex')}\n`);
  const conf = [
    'Foreground true',
    `TCPSocket ${port}`,
    'TCPAddr 127.0.0.1',
    `DatabaseDirectory ${join(dir, 'db')}`,
    `TemporaryDirectory ${dir}`,
    'StreamMaxLength 30M',
    'MaxThreads 4',
    'SelfCheck 0',
    '',
  ];
  await writeFile(join(dir, 'clamd.conf'), conf.join('\n'));
  return run('clamd', ['--foreground', `--config-file=${join(dir, 'clamd.conf')}`], port);
}

/** clamav-milter before a clamd. With `Accept` it says only by its fields what it found. */
export async function startClamavMilter(
  clamd: RealScanner,
  onInfected: 'Reject' | 'Accept' = 'Reject',
): Promise<RealScanner> {
  const [dir, port] = [await folder(), await freePort()];
  const conf = [
    'Foreground true',
    `MilterSocket inet:${port}@127.0.0.1`,
    `ClamdSocket tcp:${clamd.address}`,
    `OnInfected ${onInfected}`,
    'OnFail Defer',
    'AddHeader Replace',
    `TemporaryDirectory ${dir}`,
    '',
  ];
  await writeFile(join(dir, 'milter.conf'), conf.join('\n'));
  return run('clamav-milter', [`--config-file=${join(dir, 'milter.conf')}`], port);
}

/** spamd with its own rules, without network tests. */
export async function startRealSpamd(): Promise<RealScanner> {
  const [dir, port] = [await folder(), await freePort()];
  const args = ['--local', '--nouser-config', '--listen', '127.0.0.1', '--port', String(port), '--max-children', '2'];
  const asRoot = process.getuid?.() === 0 ? ['--username', 'nobody'] : [];
  return run('spamd', [...args, ...asRoot, '--helper-home-dir', dir, '--syslog', 'stderr'], port);
}

/** rspamd: its normal worker, and its proxy as a milter at `milter`. */
export async function startRealRspamd(): Promise<RealScanner & { readonly milter: string }> {
  const [dir, port, milter] = [await folder(), await freePort(), await freePort()];
  const conf = `
options {
  pidfile = "${dir}/rspamd.pid";
  tempdir = "${dir}";
  filters = "chartable,dkim,regexp";
  enable_test_patterns = true;
  dns { nameserver = ["127.0.0.1:9"]; timeout = 0.1s; retransmits = 1; }
  control_socket = "${dir}/rspamd.sock";
}
logging { type = "console"; level = "error"; }
actions { reject = 15; rewrite_subject = 8; add_header = 6; greylist = 4; }
worker "normal" { bind_socket = "127.0.0.1:${port}"; count = 1; }
worker "rspamd_proxy" {
  bind_socket = "127.0.0.1:${milter}";
  milter = yes;
  timeout = 10s;
  count = 1;
  upstream "local" { default = yes; hosts = "127.0.0.1:${port}"; }
}
`;
  await writeFile(join(dir, 'rspamd.conf'), conf);
  const args = ['--no-fork', '--config', join(dir, 'rspamd.conf')];
  const asRoot = process.getuid?.() === 0 ? ['--insecure'] : [];
  const scanner = await run('rspamd', [...args, ...asRoot], port);
  await until('the proxy to listen', () => answers(milter), START_MS);
  return { ...scanner, milter: `127.0.0.1:${milter}` };
}
