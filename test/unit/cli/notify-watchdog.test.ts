import { expect } from 'chai';
import { readSupervision, startWatchdog } from '../../../src/cli/systemd.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

describe('supervision', () => {
  const PID = 4711;
  const read = (env: Record<string, string>) => readSupervision({ NOTIFY_SOCKET: '/run/systemd/notify', ...env }, PID);

  it('is off without a socket', () => {
    expect(readSupervision({ WATCHDOG_USEC: '60000000' }, PID)).to.deep.equal({
      socket: undefined,
      pingEveryMs: undefined,
    });
  });

  it('pings at half of the period', () => {
    expect(read({ WATCHDOG_USEC: '60000000', WATCHDOG_PID: '4711' })).to.deep.equal({
      socket: '/run/systemd/notify',
      pingEveryMs: 30_000,
    });
  });

  it('does not ping when the watchdog watches another process, or none', () => {
    expect(read({ WATCHDOG_USEC: '60000000', WATCHDOG_PID: '1' }).pingEveryMs).to.equal(undefined);
    expect(read({}).pingEveryMs).to.equal(undefined);
  });

  for (const usec of ['', '0', '-1', '1e9', '60s', '1', '199999', '9'.repeat(400)]) {
    it(`does not ping for a period of ${JSON.stringify(usec.slice(0, 10))}`, () => {
      expect(read({ WATCHDOG_USEC: usec }).pingEveryMs).to.equal(undefined);
    });
  }

  for (const socket of ['', 'relative', '/', '/a\nb', '/' + 'x'.repeat(200), 'unix:/run/x']) {
    it(`does not notify a socket called ${JSON.stringify(socket.slice(0, 12))}`, () => {
      expect(readSupervision({ NOTIFY_SOCKET: socket }, PID).socket).to.equal(undefined);
    });
  }

  it('accepts an abstract socket, as used by containers', () => {
    expect(readSupervision({ NOTIFY_SOCKET: '@/org/notify' }, PID).socket).to.equal('@/org/notify');
  });
});

describe('the watchdog', () => {
  function watching(check: () => Promise<void>) {
    const clock = createTestClock();
    const log = createTestLog();
    let pings = 0;
    const stop = startWatchdog(
      {
        check,
        alive: async () => {
          pings++;
        },
        clock,
        log,
      },
      30_000,
    );
    return { clock, log, stop, pings: () => pings };
  }

  it('pings at once and then at every interval', async () => {
    const dog = watching(async () => {});
    await dog.clock.advance(0);
    expect(dog.pings()).to.equal(1);
    await dog.clock.advance(90_000);
    expect(dog.pings()).to.equal(4);
    dog.stop();
  });

  it('does not ping while a check hangs, and does not pile up checks', async () => {
    let checks = 0;
    const dog = watching(() => {
      checks++;
      return checks < 3 ? Promise.resolve() : new Promise(() => {});
    });
    await dog.clock.advance(600_000);
    expect(checks).to.equal(3);
    expect(dog.pings()).to.equal(2);
    dog.stop();
  });

  it('does not ping when a check fails, logs why, and continues when it passes again', async () => {
    let broken = true;
    const dog = watching(async () => {
      if (broken) throw new Error('the spool does not sync');
    });
    await dog.clock.advance(30_000);
    expect(dog.pings()).to.equal(0);
    expect(dog.log.of('daemon.fault')).to.have.length(2);
    broken = false;
    await dog.clock.advance(30_000);
    expect(dog.pings()).to.equal(1);
    dog.stop();
  });

  it('is silent once stopped, even when a check was under way', async () => {
    let release: () => void = () => {};
    const dog = watching(
      () =>
        new Promise((resolve) => {
          release = resolve;
        }),
    );
    dog.stop();
    release();
    await dog.clock.advance(120_000);
    expect(dog.pings()).to.equal(0);
  });
});
