import { Resolver } from 'node:dns/promises';
import { expect } from 'chai';
import { authenticate } from 'mailauth';
import { simpleParser } from 'mailparser';
import { createTransport } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { addAccount } from '../support/second-account.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const RECORDS = {
  'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
  'mx.to.test': { A: ['127.0.0.1'] },
};
const IDS = Array.from({ length: 40 }, (_, at) => `<${at}.${'x'.repeat(40)}@mail.example.com>`).join(' ');

describe('the header of outgoing mail', function () {
  this.timeout(60_000);
  let zone: Zone;
  let sink: MailSink;
  let running: TestDaemon;
  let tenant: Awaited<ReturnType<typeof addAccount>>;
  let transport: { sendMail(mail: object): Promise<{ response: string }>; close(): void };
  let count = 0;

  before(async () => {
    sink = await startMailSink({ hideSMTPUTF8: true });
    zone = await startZone(RECORDS);
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_OUTBOUND__MX_PORT: String(sink.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_OUTBOUND__SIGNING_DOMAIN: 'op.test',
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
    });
    const { name, txt } = await running.api('/senders/domain-key', { domain: 'op.test' });
    zone.set({ ...RECORDS, [name]: { TXT: [txt] } });
    tenant = await addAccount(running, 'tenant');
    transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: tenant.key },
      tls: { rejectUnauthorized: false },
    });
  });
  after(async () => {
    transport.close();
    await running.stop();
    await Promise.all([zone.stop(), sink.stop()]);
  });

  const next = () => `to-${++count}@to.test`;

  /** The mail as it came to a server without SMTPUTF8, once a library that we do not send with has found its signature valid. */
  async function arrived(to: string): Promise<string> {
    const { raw, from } = await until('the mail', () => sink.mails.find((mail) => mail.to.includes(to)));
    const dns = new Resolver();
    dns.setServers([zone.server]);
    const resolver = (name: string, type: string) => dns.resolve(name, type) as any;
    const { dkim } = await authenticate(raw, { ip: '127.0.0.1', helo: 'mx.postern.test', sender: from, resolver });
    expect(dkim.results.map(({ signingDomain, status }) => `${signingDomain} ${status.result}`)).to.deep.equal([
      'op.test pass',
    ]);
    const header = raw.split('\r\n\r\n', 1)[0] ?? '';
    expect(header).to.match(/^[\t\r\n -~]*$/);
    expect(Math.max(...header.split('\r\n').map((line) => line.length))).to.be.at.most(998);
    return raw;
  }

  const document = (to: string) =>
    [
      'From: Jürgen <ok@tenant.test>',
      `To: Jörg <${to}>`,
      'Subject: Größe',
      `References: ${IDS}`,
      'Disposition-Notification-To: Jörg <ok@tenant.test>',
      '',
      'x',
      '',
    ].join('\r\n');

  const roads: Readonly<Record<string, (to: string) => Promise<unknown>>> = {
    submission: (to) =>
      transport.sendMail({ envelope: { from: 'ok@tenant.test', to }, raw: Buffer.from(document(to)) }),
    'send-raw': (to) => tenant.api('/messages/send-raw', { raw_message: document(to), to: [to] }),
    send: (to) => tenant.api('/messages/send', { message: draft(to) }),
    'send-template': async (to) => {
      await tenant.api('/templates/add', { name: 'T', code: '<p>x</p>', publish: true });
      await tenant.api('/messages/send-template', { template_name: 'T', template_content: [], message: draft(to) });
    },
  };
  const draft = (to: string) => ({
    from_email: 'ok@tenant.test',
    from_name: 'Jürgen',
    subject: 'Größe',
    text: 'x',
    to: [{ email: to, name: 'Jörg' }],
    headers: { References: IDS, 'Disposition-Notification-To': 'Jörg <ok@tenant.test>' },
  });

  for (const [road, send] of Object.entries(roads)) {
    it(`is valid for every server, by ${road}`, async () => {
      const to = next();
      await send(to);
      const mail = await simpleParser(await arrived(to));
      expect(mail.subject).to.equal('Größe');
      expect(mail.from?.value).to.deep.equal([{ name: 'Jürgen', address: 'ok@tenant.test' }]);
      expect(mail.to).to.deep.include({ value: [{ name: 'Jörg', address: to }] });
      expect([mail.references].flat().join(' ')).to.equal(IDS);
      expect(mail.headers.get('disposition-notification-to')).to.deep.include({
        value: [{ name: 'Jörg', address: 'ok@tenant.test' }],
      });
    });
  }
});
