import { Resolver } from 'node:dns/promises';
import { expect } from 'chai';
import { authenticate } from 'mailauth';
import { createTransport } from 'nodemailer';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone, type ZoneRecords } from '../support/zone.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const HOST = 'in.postern.test';
const ZONE: ZoneRecords = {
  'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
  'mx.to.test': { A: ['127.0.0.1'] },
  // As docs/operations.md says.
  [HOST]: { A: ['127.0.0.1'], TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
  [`_dmarc.${HOST}`]: { TXT: ['v=DMARC1; p=reject; aspf=s; adkim=s'] },
  '_dmarc.postern.test': { TXT: ['v=DMARC1; p=reject'] },
};

describe('system mail: verification links, notices and delivery reports', function () {
  this.timeout(60_000);
  let zone: Zone;
  let server: MailServer;
  let running: TestDaemon;
  beforeEach(async () => {
    server = await startMailServer();
    zone = await startZone(ZONE);
  });
  afterEach(async () => {
    await running.stop();
    await Promise.all([zone.stop(), server.stop()]);
  });

  async function start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_MAIL__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
      ...env,
    });
  }

  /** Publishes the key that signs for a domain, as its operator does. */
  async function publish(domain: string): Promise<void> {
    const { name, txt } = await running.api('/senders/domain-key', { domain });
    zone.set({ ...ZONE, [name]: { TXT: [txt] } });
  }

  const arrived = (to: string) => until('the mail', () => server.mails.find((mail) => mail.to.includes(to)));

  /** What a receiver says of a mail as it came, by a library that we do not send with. */
  async function judged({ raw, from }: { readonly raw: string; readonly from: string }) {
    const dns = new Resolver();
    dns.setServers([zone.server]);
    const { spf, dkim, dmarc } = await authenticate(raw, {
      ip: '127.0.0.1',
      helo: HOST,
      sender: from,
      resolver: (name, type) => dns.resolve(name, type) as any,
    });
    return {
      spf: spf ? spf.status.result : null,
      dkim: dkim.results.map(({ signingDomain, status }) => `${signingDomain} ${status.result}`),
      dmarc: dmarc ? dmarc.status.result : null,
    };
  }

  async function notice(to = 'postmaster'): Promise<{ readonly raw: string; readonly from: string }> {
    await running.api('/senders/verify-domain', { domain: 'to.test', mailbox: to });
    return arrived(`${to}@to.test`);
  }

  it('is signed by the domain of the host name, and has a reverse-path that its SPF record covers', async () => {
    await start();
    await publish(HOST);
    const mail = await notice();
    expect(mail.from).to.equal(`postmaster@${HOST}`);
    expect(await judged(mail)).to.deep.equal({ spf: 'pass', dkim: [`${HOST} pass`], dmarc: 'pass' });
  });

  it('is signed by the signing domain if it is aligned', async () => {
    await start({ POSTERN_OUTBOUND__SIGNING_DOMAIN: 'postern.test' });
    await publish('postern.test');
    expect((await judged(await notice())).dkim).to.deep.equal(['postern.test pass']);
  });

  it('is signed by the domain of its author if the signing domain is another', async () => {
    await start({ POSTERN_OUTBOUND__SIGNING_DOMAIN: 'ern.test', POSTERN_MAIL__FROM: 'mailer@postern.test' });
    await publish('postern.test');
    const mail = await notice();
    expect(mail.from).to.equal('mailer@postern.test');
    expect((await judged(mail)).dkim).to.deep.equal(['postern.test pass']);
  });

  it('is signed and sent before its record is published', async () => {
    await start();
    expect((await judged(await notice())).dkim).to.deep.equal([`${HOST} neutral`]);
  });

  it('is signed as a delivery report too, whose HELO name has an SPF record', async () => {
    await start();
    await publish(HOST);
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: KEY },
      tls: { rejectUnauthorized: false },
    });
    await transport.sendMail({
      envelope: {
        from: 'me@to.test',
        to: 'gone@to.test',
        dsn: { id: 'a', return: 'headers', notify: 'failure', recipient: 'rfc822;gone@to.test' },
      },
      raw: 'From: me@to.test\r\nTo: gone@to.test\r\nSubject: x\r\n\r\nx\r\n',
    });
    transport.close();
    const report = await arrived('me@to.test');
    expect(report.from).to.equal('');
    expect(report.raw).to.match(/^Subject: Undelivered/m);
    expect(await judged(report)).to.deep.equal({ spf: 'pass', dkim: [`${HOST} pass`], dmarc: 'pass' });
  });
});
