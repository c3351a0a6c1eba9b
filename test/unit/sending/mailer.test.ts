import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { type CarrierSettings, createMailCarrier } from '../../../src/sending/carry/carrier.ts';
import { createMailer } from '../../../src/sending/notices.ts';
import type { MailCarrier, NoticeMail } from '../../../src/sending/types.ts';
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
  const carriers: MailCarrier[] = [];
  beforeEach(async () => {
    sink = await startMailSink();
  });
  afterEach(async () => {
    for (const carrier of carriers.splice(0)) await carrier.stop();
    await sink.stop();
  });

  const signOwn = async (message: Buffer) => message;

  function mailerFor(zone: ZoneRecords, settings: Partial<CarrierSettings> = {}, clock = systemClock) {
    const carrier = createMailCarrier(
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

  it('is cancelled on stop', async () => {
    sink.mute();
    const mailer = mailerFor(LOCAL);
    const sending = mailer.send(MAIL);
    await until('the connection', () => sink.connections() === 1);
    mailer.stop();
    expect(await sending).to.include({ kind: 'deferred' });
  });
});
