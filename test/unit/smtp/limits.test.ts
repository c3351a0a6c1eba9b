import { expect } from 'chai';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import {
  type Client,
  openData,
  type Started,
  sendMessage,
  startListener,
  whereverSessionsAre,
} from '../../support/smtp.ts';
import { until } from '../../support/until.ts';

/** Waits until the listener has everything that was sent: it has answered what came last. */
async function settled(client: Client): Promise<void> {
  expect(await client.say('NOOP')).to.match(/^250/);
}

describe('a session', () => {
  let started: Started;
  afterEach(() => started.stop());

  it('ends with 421 4.4.2 when it is idle for too long', async () => {
    started = await startListener({ idleTimeoutMs: 300_000 });
    const client = await started.client();
    await started.clock.advance(299_000);
    await settled(client);
    await started.clock.advance(299_000);
    expect(client.pending()).to.deep.equal([]);
    await started.clock.advance(5_000);
    expect(await client.reply()).to.match(/^421 4\.4\.2/);
    expect(await client.reply()).to.equal('closed');
    client.destroy();
    await until('the log', () => started.log.of('smtp.session').length === 1);
    expect(started.log.of('smtp.session')[0]?.fields['reason']).to.match(/^421 4\.4\.2/);
  });

  it('ends after its total time, however busy the client is', async () => {
    started = await startListener({ sessionTimeoutMs: 60_000 });
    const client = await started.client();
    for (let i = 0; i < 5; i++) {
      await started.clock.advance(10_000);
      await settled(client);
    }
    await started.clock.advance(12_000);
    expect(await client.reply()).to.match(/^421 4\.4\.2/);
  });

  it('ends when a command arrives too slowly, a byte at a time', async () => {
    started = await startListener({ commandTimeoutMs: 60_000 });
    const client = await started.client();
    for (let i = 0; i < 63 && client.pending().length === 0; i++) {
      client.send('x');
      await started.clock.advance(1000);
    }
    expect(await client.reply()).to.match(/^421 4\.4\.2/);
    expect(await client.reply()).to.equal('closed');
  });

  it('times a command from its first byte', async () => {
    started = await startListener({ commandTimeoutMs: 60_000 });
    const client = await started.client();
    for (let i = 0; i < 5; i++) {
      client.send('NO');
      await started.clock.advance(40_000);
      client.send('OP\r\nNO');
      expect(await client.reply()).to.match(/^250/);
      await started.clock.advance(40_000);
      expect(await client.say('OP')).to.match(/^250/);
    }
  });

  it('ends when a message arrives too slowly, and stores nothing', async () => {
    started = await startListener({ minDataRate: 500, idleTimeoutMs: 1_000_000 });
    const client = await started.client();
    await openData(client);
    for (let i = 0; i < 40 && client.pending().length === 0; i++) {
      client.send('x'.repeat(400));
      await until('the bytes', () => started.below.held >= Math.min(i + 1, 30) * 400 || started.below.open === 0);
      await started.clock.advance(1000);
    }
    expect(await client.reply()).to.match(/^421 4\.4\.2/);
    client.destroy();
    await until('the end', () => started.below.open === 0);
  });

  it('continues when a message arrives slowly but above the minimum rate', async () => {
    started = await startListener({ minDataRate: 500 });
    const client = await started.client();
    await openData(client);
    for (let i = 0; i < 90; i++) {
      client.send('x'.repeat(600));
      await until('the bytes', () => started.below.held >= (i + 1) * 600);
      await started.clock.advance(1000);
    }
    expect(await client.say('\r\n.')).to.match(/^250/);
  });

  it('detects a client that stops after a fast start', async () => {
    started = await startListener({ minDataRate: 500 });
    const client = await started.client();
    await openData(client);
    client.send('x'.repeat(500_000));
    await until('the bytes', () => started.below.held >= 500_000);
    await started.clock.advance(29_000);
    expect(client.pending()).to.deep.equal([]);
    await started.clock.advance(4_000);
    expect(await client.reply()).to.match(/^421 4\.4\.2/);
  });

  it('does not end because of our own delays', async () => {
    started = await startListener({ sessionTimeoutMs: 60_000 });
    let synced = () => {};
    started.below.accept = () =>
      new Promise((resolve) => {
        synced = () => resolve('accepted');
      });
    const client = await started.client();
    await openData(client);
    client.send('text\r\n.\r\n');
    await until('accept', () => started.below.open === 0);
    await started.clock.advance(1_000_000);
    expect(client.pending()).to.deep.equal([]);
    synced();
    expect(await client.reply()).to.match(/^250 2\.0\.0/);
  });

  it('ends after enough messages', async () => {
    started = await startListener({ maxMessagesPerSession: 2 });
    const client = await started.client();
    await sendMessage(client, 'one');
    await sendMessage(client, 'two');
    expect(await client.say('MAIL FROM:<a@sender.test>')).to.match(/^421 4\.7\.0/);
    expect(await client.reply()).to.equal('closed');
  });

  for (const [what, line] of [
    ['NOOP', 'NOOP'],
    ['RSET', 'RSET'],
    ['EHLO', 'EHLO x'],
    ['MAIL and RSET', 'MAIL FROM:<a@sender.test>\r\nRSET'],
    ['VRFY', 'VRFY b'],
  ] as const) {
    it(`ends when it only repeats ${what}`, async () => {
      started = await startListener();
      const client = await started.client();
      client.send(`${line}\r\n`.repeat(200));
      let last = '';
      for (let i = 0; i < 201; i++) {
        const reply = await client.reply();
        if (reply === 'closed') break;
        last = reply;
      }
      expect(last).to.match(/^421 4\.7\.0/);
    });
  }

  it('may run any number of commands with messages between them', async () => {
    started = await startListener();
    const client = await started.client();
    for (let i = 0; i < 4; i++) {
      client.send('NOOP\r\n'.repeat(60));
      for (let k = 0; k < 60; k++) expect(await client.reply()).to.match(/^250/);
      expect(await sendMessage(client, 'text')).to.match(/^250/);
    }
  });

  it('answers slowly after some refused recipients, even known ones, and ends after many', async () => {
    started = await startListener({ slowAfterRefusals: 5, endAfterRefusals: 20 });
    const client = await started.client();
    await client.say('MAIL FROM:<a@sender.test>');
    for (let i = 0; i < 5; i++) expect(await client.say('RCPT TO:<nobody@ours.test>')).to.match(/^550 5\.1\.1/);
    for (let i = 5; i < 20; i++) {
      client.send('RCPT TO:<b@ours.test>\r\nRCPT TO:<nobody@ours.test>\r\n');
      await started.clock.advance(0);
      expect(client.pending()).to.deep.equal([]);
      expect(await hear(client), 'a known one').to.match(/^250 2\.1\.5/);
      expect(await hear(client), 'an unknown one').to.match(/^550 5\.1\.1/);
    }
    expect(await client.say('RCPT TO:<b@ours.test>')).to.match(/^421 4\.7\.0/);
    expect(await client.reply()).to.equal('closed');
    expect(started.log.of('smtp.refused').filter(({ level }) => level === 'info')).to.have.length(5);
    expect(started.log.of('smtp.refused')).to.have.length(21);
  });

  async function hear(client: Client): Promise<string> {
    await until('a slow answer', async () => {
      await started.clock.advance(100);
      return client.pending().length > 0;
    });
    return client.reply();
  }

  it('ends at a command line of 100 MB long before its end', async () => {
    started = await startListener();
    const client = await started.client();
    const part = Buffer.alloc(1_000_000, 'x');
    for (let i = 0; i < 100 && client.pending().length === 0; i++) {
      client.send(part);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(await client.reply()).to.match(/^500 5\.5\.2/);
    expect(await client.reply()).to.equal('closed');
  });
});

describe('a refusal', () => {
  it('is logged with its envelope, and without message text or a password', async () => {
    const started = await startListener();
    const client = await started.client();
    await client.say('DATA');
    await client.say('Subject: between us');
    await client.say('AUTH PLAIN c2VjcmV0');
    await client.say('MAIL FROM:<a@sender.test>');
    await client.say('RCPT TO:<nobody@ours.test>');
    expect(started.log.of('smtp.refused').map(({ fields }) => fields['command'])).to.deep.equal([
      'DATA',
      'unknown',
      'AUTH',
      'RCPT TO:<nobody@ours.test>',
    ]);
    await started.stop();
  });
});

describe('the listener', () => {
  let started: Started;
  afterEach(() => started.stop());

  it('does not keep rejected connections', async () => {
    started = await startListener({ maxSessions: 1 });
    await started.client();
    const client = started.raw();
    expect(await client.reply()).to.match(/^421/);
    await started.clock.advance(6000);
    await new Promise((resolve) => client.socket().write('x', resolve));
    await client.closed();
  });

  it('answers 421 4.3.2 while the event loop lags, and accepts sessions again afterwards', async () => {
    const steady = createTestClock();
    let lag = 0;
    const clock: TestClock = {
      ...steady,
      monotonic: () => steady.monotonic() + lag,
    };
    started = await startListener({ maxLoopLagMs: 500 }, clock);
    // Each probe finds that more time has passed than it asked for.
    for (let i = 0; i < 3; i++) {
      lag += 600;
      await steady.advance(100);
    }
    expect(await started.raw().reply()).to.match(/^421 4\.3\.2/);
    await steady.advance(100);
    await steady.advance(100);
    expect(await started.raw().reply()).to.match(/^220/);
  });

  it('tolerates a single pause', async () => {
    const steady = createTestClock();
    let lag = 0;
    const clock = { ...steady, monotonic: () => steady.monotonic() + lag };
    started = await startListener({ maxLoopLagMs: 500 }, clock);
    lag += 700;
    await steady.advance(100);
    expect(await started.raw().reply()).to.match(/^220/);
  });

  it('listens on several addresses, or on none if one of them is in use', async () => {
    started = await startListener({
      listen: [
        { host: '127.0.0.1', port: 0 },
        { host: '127.0.0.1', port: 0 },
      ],
    });
    expect(started.listener.addresses()).to.have.length(2);
    expect(started.listener.healthy()).to.equal(true);
    let refused: unknown;
    await startListener({
      listen: [
        { host: '127.0.0.1', port: 0 },
        { host: '127.0.0.1', port: started.port },
      ],
    }).catch((error: unknown) => {
      refused = error;
    });
    expect(refused).to.have.property('code', 'EADDRINUSE');
  });
});

whereverSessionsAre('sessions', (start) => {
  let started: Started;
  afterEach(() => started.stop());

  it('answers 421 4.3.2 above the limit of sessions, and accepts new ones when old ones end', async () => {
    started = await start({ maxSessions: 2 });
    const first = await started.client();
    await started.client();
    const third = started.raw();
    expect(await third.reply()).to.match(/^421 4\.3\.2/);
    expect(await third.reply()).to.equal('closed');
    await first.say('QUIT');
    first.end();
    await until('room for one more', async () => (await started.raw().reply()).startsWith('220'));
  });

  it('answers 421 4.7.0 above the limit of one address', async () => {
    started = await start({ maxSessionsPerAddress: 2 });
    await started.client();
    await started.client();
    const third = started.raw();
    expect(await third.reply()).to.match(/^421 4\.7\.0/);
    expect(await third.reply()).to.equal('closed');
  });

  it('writes one log line', async () => {
    started = await start();
    const client = await started.client();
    await sendMessage(client, 'text');
    await client.say('MAIL FROM:<a@sender.test>');
    await client.say('RCPT TO:<nobody@ours.test>');
    await client.say('QUIT');
    await until('the log', () => started.log.of('smtp.session').length === 1);
    const { duration_ms: duration, ...fields } = started.log.of('smtp.session')[0]?.fields ?? {};
    expect(duration).to.be.a('number');
    expect(fields).to.deep.equal({
      client: '127.0.0.1',
      helo: 'client.test',
      tls: null,
      messages: 1,
      recipients: 1,
      refusals: 1,
      reason: 'quit',
    });
    expect(started.log.of('message.accepted')[0]?.fields).to.deep.equal({
      message: started.below.taken[0]?.messageId,
      recipients: 1,
      size: 6,
      client: '127.0.0.1',
    });
  });
});

whereverSessionsAre('stop', (start) => {
  it('notifies all clients, closes, and is unhealthy', async () => {
    const started = await start();
    const client = await started.client();
    await started.listener.stop();
    expect(await client.reply()).to.match(/^421 4\.3\.2/);
    expect(await client.reply()).to.equal('closed');
    expect(started.listener.healthy()).to.equal(false);
    const late = started.raw();
    await late.closed();
    await started.stop();
  });

  it('lets a message in DATA finish and then replies 421', async () => {
    const started = await start();
    const client = await started.client();
    await openData(client);
    client.send('Subject: x\r\n');
    const stopped = started.listener.stop();
    client.send('\r\ntext\r\n.\r\nNOOP\r\n');
    expect(await client.reply()).to.match(/^250 2\.0\.0/);
    expect(await client.reply()).to.match(/^421 4\.3\.2/);
    await stopped;
    expect(started.below.taken).to.have.length(1);
  });
});

describe('a stop', () => {
  it('does not wait for ever for a client', async () => {
    const started = await startListener();
    const client = await started.client();
    await openData(client);
    client.send('Subject: x\r\n');
    await until('the first bytes', () => started.below.held > 0);
    const stopped = started.listener.stop(5000);
    await started.clock.advance(5001);
    await stopped;
    expect(await client.reply()).to.match(/^421 4\.3\.2/);
    expect(started.below).to.include({ open: 0 });
    expect(started.below.taken).to.have.length(0);
  });
});
