import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { expect } from 'chai';
import { KEY } from '../../support/daemon.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';

const KEY_LINE = /API key +([\w-]{22})/;

/** Starts a daemon on an empty folder, and answers all that it wrote to its outputs until it took mail. */
async function firstStart(command: readonly string[], env: Readonly<Record<string, string>> = {}): Promise<string> {
  const [program = '', ...args] = command;
  const child = spawn(program, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
    env: {
      ...process.env,
      POSTERN_DATA_DIR: await tempDir(),
      POSTERN_HOSTNAME: 'in.postern.test',
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
      POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      POSTERN_DNS__SERVERS: '127.0.0.1:9',
      POSTERN_DNS__TIMEOUT_MS: '100',
      ...env,
    },
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (text) => {
      said += String(text);
    });
  const closed = once(child, 'close');
  try {
    await until('the greeting', () => /ping2\.json/.test(said), 20_000);
    return said;
  } finally {
    if (child.pid !== undefined) process.kill(-child.pid, 'SIGTERM');
    await closed;
  }
}

describe('the first API key, at the first start', function () {
  this.timeout(60_000);
  const serve = [process.execPath, 'src/main.ts', 'serve'];
  // script(1) gives a program a terminal.
  const onTerminal = ['script', '-qec', serve.join(' '), '/dev/null'];
  const withTerminal = (context: Mocha.Context) => {
    if (spawnSync('script', ['--version']).status === 0) return;
    console.log('      (skipped: script is not installed)');
    context.skip();
  };

  it('is shown on a terminal', async function () {
    withTerminal(this);
    expect(await firstStart(onTerminal)).to.match(KEY_LINE);
  });

  it('is not written to a file, a pipe or the log of a container: the command to create one is', async () => {
    const said = await firstStart(serve);
    expect(said).to.not.match(KEY_LINE);
    expect(said).to.contain('postern key create').and.to.contain('"key":"YOUR_KEY"');
  });

  it('is never shown if the operator chose it, not even on a terminal', async function () {
    withTerminal(this);
    for (const command of [onTerminal, serve]) {
      const said = await firstStart(command, { POSTERN_BOOTSTRAP__API_KEY: KEY });
      expect(said).to.not.contain(KEY);
      expect(said).to.contain('bootstrap.api_key');
    }
  });
});
