import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';
import { expect } from 'chai';
import { type Manager, missingProgram, openSocket, spawnWithSocket, startManager } from '../support/service-manager.ts';
import { tempDir } from '../support/temp.ts';
import { until } from '../support/until.ts';

const MAIN = new URL('../../src/main.ts', import.meta.url).pathname;

/** Talks to an SMTP server: sends the next line after each reply, and answers all replies. */
async function dialog(port: number, ...lines: string[]): Promise<string[]> {
  const socket = connect(port, '127.0.0.1');
  const replies: string[] = [];
  for await (const line of createInterface({ input: socket })) {
    if (line[3] === '-') continue;
    replies.push(line);
    const next = lines.shift();
    if (next === undefined) socket.end();
    else socket.write(`${next}\r\n`);
  }
  return replies;
}

describe('postern serve under a service manager', function () {
  this.timeout(40_000);
  let manager: Manager;

  before(async function () {
    const lacking = missingProgram();
    if (lacking !== undefined) {
      console.log(`      (skipped: ${lacking} is not installed)`);
      this.skip();
    }
    manager = await startManager();
  });

  after(() => manager?.stop());

  for (const threads of ['0', '2'])
    it(`uses the inherited socket, notifies of readiness and liveness, reloads, drains and exits with 0 (threads: ${threads})`, async () => {
      const before = manager.notified.length;
      const socket = await openSocket();
      const daemon = spawnWithSocket(socket.fd, [MAIN, 'serve'], {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        NOTIFY_SOCKET: manager.socket,
        WATCHDOG_USEC: '1000000',
        POSTERN_DATA_DIR: await tempDir(),
        POSTERN_HOSTNAME: 'mx.postern.test',
        POSTERN_HTTP__LISTEN: '127.0.0.1:0',
        // A port that would fail, were it used beside the socket.
        POSTERN_SMTP__LISTEN: '127.0.0.1:1',
        POSTERN_SMTP__THREADS: threads,
        POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
        POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      });
      let said = '';
      daemon.stdout?.on('data', (text) => {
        said += String(text);
      });
      daemon.stderr?.on('data', (text) => {
        said += String(text);
      });
      socket.release();
      const exited = once(daemon, 'exit');
      const heard = (start: string, from = before) =>
        until(`${start} in ${said}`, () => manager.notified.slice(from).some((text) => text.startsWith(start)), 15_000);

      try {
        await heard('READY=1');
        const replies = await dialog(
          socket.port,
          'EHLO client.test',
          'MAIL FROM:<a@client.test>',
          'RCPT TO:<b@not-ours.test>',
          'QUIT',
        );
        expect(replies.map((reply) => reply.slice(0, 3))).to.deep.equal(['220', '250', '250', '550', '221']);
        await heard('WATCHDOG=1');

        const seen = manager.notified.length;
        daemon.kill('SIGHUP');
        await heard('RELOADING=1', seen);
        await heard('READY=1', seen);

        daemon.kill('SIGTERM');
        expect(await exited).to.deep.equal([0, null]);
        expect(manager.notified.findLast((text) => !text.startsWith('WATCHDOG'))).to.match(/^STOPPING=1\n/);
      } finally {
        if (daemon.exitCode === null) daemon.kill('SIGKILL');
      }
    });

  it('does not start with the example names, and exits with the status that systemd does not retry', async () => {
    const daemon = spawn(process.execPath, [MAIN, 'serve'], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        NOTIFY_SOCKET: manager.socket,
        POSTERN_DATA_DIR: await tempDir(),
        POSTERN_HOSTNAME: 'mx.example.com',
        POSTERN_SMTP__LISTEN: '127.0.0.1:0',
        POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      },
    });
    let said = '';
    daemon.stderr.on('data', (text) => {
      said += String(text);
    });
    const [status] = await once(daemon, 'close');
    expect(said).to.contain('hostname: mx.example.com is a placeholder');
    expect(status).to.equal(78);
  });

  it('does not start on invalid socket activation', async () => {
    const socket = await openSocket();
    const daemon = spawnWithSocket(
      socket.fd,
      ['-e', 'process.env.LISTEN_FDNAMES = "smtp:smtp"; process.argv.push("serve"); import(process.argv[1])', MAIN],
      {
        PATH: process.env['PATH'],
        NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE'],
        POSTERN_DATA_DIR: await tempDir(),
        POSTERN_HTTP__LISTEN: '127.0.0.1:0',
        POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      },
    );
    socket.release();
    let said = '';
    daemon.stderr?.on('data', (text) => {
      said += String(text);
    });
    const [status] = await once(daemon, 'close');
    expect(said).to.contain('LISTEN_FDNAMES has 2 names for 1 sockets');
    expect(status).to.equal(69);
  });
});
