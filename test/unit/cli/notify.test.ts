import { expect } from 'chai';
import { createNotifier, systemdNotify, type Tell } from '../../../src/cli/systemd.ts';
import { createTestLog } from '../../support/log.ts';
import { type Manager, missingProgram, startManager } from '../../support/service-manager.ts';
import { until } from '../../support/until.ts';

function recording() {
  const sent: string[][] = [];
  const tell: Tell = async (assignments) => {
    sent.push([...assignments]);
  };
  return { sent, tell };
}

describe('the notifier', () => {
  it('does nothing without a service manager', async () => {
    const log = createTestLog();
    const notifier = createNotifier({ tell: undefined, log });
    await notifier.ready('taking mail');
    await notifier.alive();
    expect(log.lines).to.deep.equal([]);
  });

  it('sends each state in the format of sd_notify(3), in order', async () => {
    const { sent, tell } = recording();
    const notifier = createNotifier({ tell, log: createTestLog() });
    await Promise.all([
      notifier.starting(60),
      notifier.ready('taking mail'),
      notifier.reloading(),
      notifier.ready('again'),
      notifier.alive(),
      notifier.stopping('draining'),
    ]);
    expect(sent).to.deep.equal([
      ['EXTEND_TIMEOUT_USEC=60000000', 'STATUS=Starting'],
      ['READY=1', 'STATUS=taking mail'],
      ['RELOADING=1', 'STATUS=Reloading settings'],
      ['READY=1', 'STATUS=again'],
      ['WATCHDOG=1'],
      ['STOPPING=1', 'STATUS=draining'],
    ]);
  });

  it('keeps a status on one line, so that it cannot set other fields', async () => {
    const { sent, tell } = recording();
    await createNotifier({ tell, log: createTestLog() }).stopping('mail from\nMAINPID=1\r\u2028x');
    expect(sent).to.deep.equal([['STOPPING=1', 'STATUS=mail from MAINPID=1 x']]);
  });

  it('reports an error once, and again only after it has passed', async () => {
    const log = createTestLog();
    let broken = true;
    const tell: Tell = async () => {
      if (broken) throw new Error('nobody there');
    };
    const notifier = createNotifier({ tell, log });
    await notifier.ready('');
    await notifier.alive();
    expect(log.of('daemon.note')).to.have.length(1);
    broken = false;
    await notifier.alive();
    broken = true;
    await notifier.alive();
    expect(log.of('daemon.note')).to.have.length(2);
  });

  it('reports once that systemd-notify is not installed', async () => {
    const log = createTestLog();
    const notifier = createNotifier({ tell: systemdNotify('/nowhere', 'no-such-program-anywhere'), log });
    await notifier.ready('');
    await notifier.stopping('');
    expect(log.of('daemon.note')).to.have.length(1);
  });
});

describe('the notifier with a real systemd-notify', () => {
  let manager: Manager | undefined;

  before(async function () {
    const lacking = missingProgram();
    if (lacking !== undefined) {
      console.log(`      (skipped: ${lacking} is not installed)`);
      this.skip();
    }
    manager = await startManager();
  });

  after(() => manager?.stop());

  it('delivers READY=1, and resolves only when it was read', async () => {
    const log = createTestLog();
    const { socket = '', notified = [] } = manager ?? {};
    const notifier = createNotifier({ tell: systemdNotify(socket), log });
    await notifier.ready('taking mail on 127.0.0.1:25');
    await notifier.alive();
    await notifier.stopping('draining');
    // The manager tells us after it has read, so its last line may still be on its way.
    await until('all messages', () => notified.length === 3);
    expect(notified).to.deep.equal([
      'READY=1\nSTATUS=taking mail on 127.0.0.1:25',
      'WATCHDOG=1',
      'STOPPING=1\nSTATUS=draining',
    ]);
    expect(log.lines).to.deep.equal([]);
  });
});
