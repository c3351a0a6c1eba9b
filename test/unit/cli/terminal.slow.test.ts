import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { expect } from 'chai';
import { spawnDaemon } from '../../support/child.ts';
import { tempDir } from '../../support/temp.ts';

// A terminal of its own for a command, as a window has one; its reader says when to close it. Node cannot open one.
const TERMINAL = `
import json, os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
seen = b''
while sys.argv[1].encode() not in seen:
    more = os.read(fd, 4096)
    if not more: break
    seen += more
os.close(fd)
_, status = os.waitpid(pid, 0)
print(json.dumps({'seen': seen.decode(), 'code': os.waitstatus_to_exitcode(status)}))
`;

const MAIN = new URL('../../../src/main.ts', import.meta.url).pathname;

describe('on a terminal', function () {
  this.timeout(60_000);
  before(function () {
    if (spawnSync('python3', ['-c', 'import pty']).status !== 0) this.skip();
  });

  /** What `serve` showed there, and with NO_COLOR. */
  const shown: string[] = [];

  /** Runs a command on a terminal until it has shown a text, closes the terminal, and waits for the end. */
  async function onTerminal(
    until: string,
    argv: readonly string[],
    env: Readonly<Record<string, string>>,
  ): Promise<{ seen: string; code: number }> {
    const child = spawn('python3', ['-c', TERMINAL, until, process.execPath, MAIN, ...argv], {
      stdio: ['ignore', 'pipe', 'inherit'],
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        TERM: 'xterm',
        POSTERN_DATA_DIR: await tempDir(),
        POSTERN_SMTP__LISTEN: '127.0.0.1:0',
        POSTERN_HTTP__LISTEN: '127.0.0.1:0',
        POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
        POSTERN_SPOOL__MIN_FREE_BYTES: '0',
        ...env,
      },
    });
    let out = '';
    child.stdout.on('data', (chunk) => {
      out += String(chunk);
    });
    const late = setTimeout(() => child.kill('SIGKILL'), 40_000);
    await once(child, 'close');
    clearTimeout(late);
    return JSON.parse(out);
  }

  it('serve exits cleanly when the terminal is closed, also with an INVOCATION_ID inherited from a desktop', async () => {
    const desktop = { INVOCATION_ID: 'a3f0e1d2c4b5968778695a4b3c2d1e0f', NO_COLOR: '1' };
    for (const env of [{}, desktop]) {
      const { seen, code } = await onTerminal('users/ping2.json', ['serve'], env);
      expect(seen).to.match(/\d\d:\d\d:\d\d\S* .*info.*daemon ready/);
      expect(code).to.equal(0);
      shown.push(seen);
    }
  });

  it('the demo exits when the terminal is closed', async () => {
    const { code } = await onTerminal('Ctrl-C ends the demo', ['demo'], {});
    expect(code).to.equal(0);
  });

  it('the log is readable and in colour, without colour if NO_COLOR is set, and JSON if the settings say so', async () => {
    const [coloured, plain] = shown;
    expect(coloured).to.contain('\x1b[32minfo');
    expect(plain)
      .to.match(/^\d\d:\d\d:\d\d info {2}daemon starting/)
      .and.not.to.contain('\x1b');
    expect((await onTerminal('"daemon.ready"', ['serve'], { POSTERN_LOG__FORMAT: 'json' })).seen).to.match(
      /^\{"event":"daemon\.starting"/,
    );
  });

  it('without a service manager a SIGHUP ends the process, for any standard output', async () => {
    const postern = await spawnDaemon(await tempDir(), { INVOCATION_ID: '' });
    expect(await postern.end('SIGHUP')).to.equal(0);
    expect(postern.lines.map(({ event }) => event))
      .to.include('daemon.stopped')
      .and.not.to.include('daemon.reloaded');
  });
});
