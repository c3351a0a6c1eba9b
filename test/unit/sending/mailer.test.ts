import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { createMailer } from '../../../src/sending/notices.ts';
import { createMailTransport, type TransportSettings } from '../../../src/sending/transport/mail-transport.ts';
import type { MailTransport, NoticeMail } from '../../../src/sending/types.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { type MailSink, startMailSink } from '../../support/mail-sink.ts';
import { until } from '../../support/until.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const MAIL: NoticeMail = {
  id: '01notice',
  to: 'postmaster@example.com',
  subject: 'Please confirm',
  text: 'Hello.\n\nhttps://postern.test/verify/AAAAAAAAAAAAAAAAAAAAAA\n',
  at: new Date('2026-01-05T12:00:00Z'),
};
const LOCAL: ZoneRecords = {
  'example.com': { MX: [{ exchange: 'mx.example.com', priority: 10 }] },
  'mx.example.com': { A: ['127.0.0.1'] },
};

describe('the mailer', () => {
  let sink: MailSink;
  const carriers: MailTransport[] = [];
  beforeEach(async () => {
    sink = await startMailSink();
  });
  afterEach(async () => {
    for (const carrier of carriers.splice(0)) await carrier.stop();
    await sink.stop();
  });

  const signOwn = async (message: Buffer) => message;

  function mailerFor(zone: ZoneRecords, settings: Partial<TransportSettings> = {}, clock = systemClock) {
    const carrier = createMailTransport(
      {
        hostname: 'mx.postern.test',
        relay: '',
        relaySetting: 'mail.relay',
        mxPort: sink.port,
        timeoutMs: 120_000,
        hostTimeoutMs: 120_000,
        tls: 'opportunistic',
        allowPrivate: ['127.0.0.0/8'],
        loopbackOnly: false,
        ...settings,
      },
      { resolver: zoneResolver(zone), clock, ids: createIds(clock), log: createTestLog(), policies: null },
    );
    carriers.push(carrier);
    return createMailer({ hostname: 'mx.postern.test', from: 'postmaster@mx.postern.test' }, { carrier, signOwn });
  }

  it('sends a message to the MX of its recipient, encrypted where that is offered', async () => {
    expect(await mailerFor(LOCAL).send(MAIL)).to.deep.equal({ kind: 'sent' });
    const [mail] = sink.mails;
    expect(mail).to.deep.include({
      from: 'postmaster@mx.postern.test',
      to: ['postmaster@example.com'],
      secure: true,
      helo: 'mx.postern.test',
    });
    const headers = mail?.raw.split('\r\n\r\n')[0] ?? '';
    expect(headers)
      .to.contain('Message-ID: <01notice@mx.postern.test>')
      .and.to.contain('Auto-Submitted: auto-generated')
      .and.to.contain('X-Auto-Response-Suppress: OOF, AutoReply')
      .and.to.contain('Date: Mon, 05 Jan 2026 12:00:00 +0000');
    expect(headers)
      .to.match(/^From: postmaster@mx\.postern\.test\r$/m)
      .and.to.match(/^To: postmaster@example\.com\r$/m)
      .and.to.match(/^Subject: Please confirm\r?$/m);
    expect(mail?.raw).to.contain('https://postern.test/verify/AAAAAAAAAAAAAAAAAAAAAA\r\n');
  });

  it('falls back to plain text when encryption is offered and fails', async () => {
    await sink.stop();
    // No cipher in common: the handshake fails.
    sink = await startMailSink({
      minVersion: 'TLSv1.2',
      maxVersion: 'TLSv1.2',
      ciphers: 'ECDHE-RSA-AES128-GCM-SHA256',
    });
    expect(await mailerFor(LOCAL).send(MAIL)).to.deep.equal({ kind: 'sent' });
    expect(sink.mails[0]).to.include({ secure: false });
  });

  it('sends to the domain itself without an MX', async () => {
    expect(await mailerFor({ 'example.com': { A: ['127.0.0.1'] } }).send(MAIL)).to.deep.equal({ kind: 'sent' });
  });

  it('tries the preferred host first, and the next when one is down', async () => {
    const other = await startMailSink();
    const zone = {
      'example.com': {
        MX: [
          { exchange: 'second.example.com', priority: 20 },
          { exchange: 'gone.example.com', priority: 5 },
          { exchange: 'first.example.com', priority: 10 },
        ],
      },
      'gone.example.com': { A: ['127.0.0.9'] },
      'first.example.com': { A: ['127.0.0.1'] },
      'second.example.com': { A: ['127.0.0.1'] },
    };
    expect(await mailerFor(zone).send(MAIL)).to.deep.equal({ kind: 'sent' });
    expect(sink.connections()).to.equal(1);
    await other.stop();
  });

  it('fails at once if no retry can succeed', async () => {
    expect(await mailerFor({ 'example.com': { MX: [{ exchange: '', priority: 0 }] } }).send(MAIL)).to.deep.equal({
      kind: 'failed',
      reason: 'the domain example.com accepts no mail (null MX)',
    });
    expect(await mailerFor({}).send(MAIL)).to.deep.equal({
      kind: 'failed',
      reason: 'the domain example.com does not exist',
    });
    expect(await mailerFor({ 'example.com': { TXT: ['x'] } }).send(MAIL)).to.deep.equal({
      kind: 'failed',
      reason: 'the mail hosts of example.com have no address',
    });
    sink.refuse({ code: 550, text: 'no such user' });
    expect(await mailerFor(LOCAL).send(MAIL))
      .to.include({ kind: 'failed' })
      .and.to.have.property('reason')
      .that.matches(/^mx\.example\.com \(127\.0\.0\.1\): 550 no such user/);
  });

  it('defers on temporary failures', async () => {
    expect(await mailerFor({ 'example.com': { fails: 'timeout' } }).send(MAIL)).to.deep.equal({
      kind: 'deferred',
      reason: 'the MX records of example.com could not be looked up',
    });
    expect(await mailerFor({ ...LOCAL, 'mx.example.com': { fails: 'servfail' } }).send(MAIL)).to.deep.equal({
      kind: 'deferred',
      reason: 'the mail hosts of example.com could not be looked up',
    });
    sink.refuse({ code: 451, text: 'greylisted' });
    expect(await mailerFor(LOCAL).send(MAIL))
      .to.include({ kind: 'deferred' })
      .and.to.have.property('reason')
      .that.contains('451 greylisted');
    expect(await mailerFor({ ...LOCAL, 'mx.example.com': { A: ['127.0.0.9'] } }).send(MAIL)).to.include({
      kind: 'deferred',
    });
    expect(sink.mails).to.have.length(0);
  });

  it('connects to no private address, for any MX records', async () => {
    const forbidden = [
      ['10.0.0.1'],
      ['169.254.169.254'],
      ['::1'],
      ['::ffff:127.0.0.1'],
      ['127.0.0.1'],
      ['8.8.8.8', '127.0.0.1'],
    ];
    for (const addresses of forbidden) {
      const zone = {
        ...LOCAL,
        'mx.example.com': {
          A: addresses.filter((one) => !one.includes(':')),
          AAAA: addresses.filter((one) => one.includes(':')),
        },
      };
      expect(await mailerFor(zone, { allowPrivate: [] }).send(MAIL), addresses.join()).to.deep.equal({
        kind: 'failed',
        reason: 'the mail hosts of example.com have forbidden addresses',
      });
    }
    for (const exchange of ['localhost', '127.0.0.1', 'a.localhost']) {
      const zone = { 'example.com': { MX: [{ exchange, priority: 10 }] } };
      expect(await mailerFor(zone, { allowPrivate: null }).send(MAIL), exchange).to.deep.equal({
        kind: 'failed',
        reason: 'the mail hosts of example.com have forbidden addresses',
      });
    }
    expect(sink.connections()).to.equal(0);
    // A machine of a developer is another matter.
    expect(await mailerFor(LOCAL, { allowPrivate: null, loopbackOnly: true }).send(MAIL)).to.deep.equal({
      kind: 'sent',
    });
  });

  it('has one deadline in all', async () => {
    sink.mute();
    const clock = createTestClock();
    const sending = mailerFor(LOCAL, {}, clock).send(MAIL);
    await until('the connection', () => sink.connections() === 1);
    await clock.advance(120_000);
    expect(await sending).to.deep.equal({ kind: 'deferred', reason: 'timed out' });
  });

  it('is cancelled on stop', async () => {
    sink.mute();
    const mailer = mailerFor(LOCAL);
    const sending = mailer.send(MAIL);
    await until('the connection', () => sink.connections() === 1);
    mailer.stop();
    expect(await sending).to.include({ kind: 'deferred' });
  });

  it('sends through a relay, with a password on the same machine', async () => {
    const zone = { 'relay.test': { A: ['127.0.0.1'] } };
    expect(
      await mailerFor(zone, { relay: `smtp://me:p%40ss@relay.test:${sink.port}`, allowPrivate: [] }).send(MAIL),
    ).to.deep.equal({ kind: 'sent' });
    expect(sink.mails[0]).to.deep.include({ to: ['postmaster@example.com'], user: 'me:p@ss' });
    expect(
      await mailerFor(zone, { relay: `smtp://relay.test:${sink.port}`, allowPrivate: [] }).send(MAIL),
    ).to.deep.equal({ kind: 'sent' });
    expect(sink.mails[1]?.user).to.equal('');
    expect(await mailerFor({}, { relay: 'smtp://relay.test:25' }).send(MAIL)).to.deep.equal({
      kind: 'deferred',
      reason: 'the relay relay.test has no address (mail.relay)',
    });
  });

  it('treats a wrong password at the relay as temporary', async () => {
    await sink.stop();
    sink = await startMailSink({
      onAuth: (_auth, _session, done) => done(Object.assign(new Error('wrong'), { responseCode: 535 })),
    });
    expect(
      await mailerFor(
        { 'relay.test': { A: ['127.0.0.1'] } },
        { relay: `smtp://me:wrong@relay.test:${sink.port}` },
      ).send(MAIL),
    ).to.include({ kind: 'deferred' });
  });

  describe('with a faulty server', () => {
    let server: Server;
    const sockets: Socket[] = [];
    const serve = async (said: (line: string) => string | undefined, greeting = '220 hello\r\n') => {
      server = createServer((socket) => {
        sockets.push(socket);
        socket.on('error', () => {});
        socket.write(greeting);
        socket.on('data', (bytes) => {
          for (const line of bytes.toString().split('\r\n').slice(0, -1)) {
            const reply = said(line);
            if (reply === undefined) socket.destroy();
            else socket.write(reply);
          }
        });
      });
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      return (server.address() as AddressInfo).port;
    };
    afterEach(async () => {
      for (const socket of sockets.splice(0)) socket.destroy();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    });

    it('treats a lost connection, a refusing greeting and invalid replies as temporary', async () => {
      for (const [said, greeting] of [
        [() => undefined, '220 hello\r\n'],
        [() => '250 ok\r\n', '554 go away\r\n'],
        [() => '250 ok\r\n', 'HTTP/1.1 400 Bad Request\r\n\r\n'],
      ] as const) {
        const mxPort = await serve(said, greeting);
        expect(await mailerFor(LOCAL, { mxPort }).send(MAIL), greeting).to.include({ kind: 'deferred' });
        for (const socket of sockets.splice(0)) socket.destroy();
        await new Promise<void>((resolve) => server.close(() => resolve()));
      }
      await serve(() => undefined);
    });

    it('treats a 5xx to the message itself as permanent', async () => {
      const mxPort = await serve((line) =>
        /^(?:EHLO|MAIL|RCPT)/.test(line)
          ? '250 ok\r\n'
          : line === 'DATA'
            ? '354 go\r\n'
            : line === '.'
              ? '554 spam\r\n'
              : '',
      );
      expect(await mailerFor(LOCAL, { mxPort }).send(MAIL))
        .to.include({ kind: 'failed' })
        .and.to.have.property('reason')
        .that.contains('554 spam');
    });
  });
});
