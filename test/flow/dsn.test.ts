import { expect } from 'chai';
import { simpleParser } from 'mailparser';
import { createTransport } from 'nodemailer';
import { postern } from '../support/command.ts';
import { KEY, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { openSession } from '../support/mail.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
const ALL = 'success,failure,delay';

interface Report {
  readonly status: string;
  readonly types: readonly string[];
  readonly text: string;
  readonly returned: string;
  readonly headers: ReadonlyMap<string, unknown>;
}

describe('delivery status notifications (RFC 3461)', function () {
  this.timeout(60_000);
  let server: MailServer;
  let hook: Receiver;
  let zone: Zone;
  let running: TestDaemon;
  before(async () => {
    [server, hook, zone] = await Promise.all([
      startMailServer(),
      startReceiver(),
      startZone({ 'proven.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] }, 'forged.test': { TXT: ['v=spf1 -all'] } }),
    ]);
    const relay = `smtp://127.0.0.1:${server.port}`;
    running = await startDaemon({
      POSTERN_OUTBOUND__RELAY: relay,
      POSTERN_MAIL__RELAY: relay,
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
    });
    await running.api('/inbound/add-domain', { domain: 'in.test' });
    await running.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  });
  after(async () => {
    await running.stop();
    await Promise.all([hook.stop(), server.stop(), zone.stop()]);
  });

  const reportsTo = (address: string) => server.mails.filter(({ to }) => to.includes(address));

  /** The one report to an address, taken apart by a parser that has nothing to do with ours. */
  async function reportTo(address: string): Promise<Report> {
    const mail = await until(`the report to ${address}`, () => reportsTo(address)[0]);
    expect(mail.from).to.equal('');
    const { attachments, text = '', headers } = await simpleParser(mail.raw, { keepDeliveryStatus: true });
    const contentOf = (type: RegExp) =>
      attachments.find(({ contentType }) => type.test(contentType))?.content.toString() ?? '';
    return {
      status: contentOf(/delivery-status/),
      types: attachments.map(({ contentType }) => contentType),
      text,
      returned: contentOf(/rfc822/),
      headers,
    };
  }

  /** nodemailer as the client: it says these parameters only to a server that offers them. */
  async function submit(
    to: string,
    from: string,
    dsn: { id: string; return: 'headers' | 'full'; notify: string; recipient: string },
  ): Promise<void> {
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: KEY },
      tls: { rejectUnauthorized: false },
    });
    await transport
      .sendMail({ from: 'news@sender.test', to, subject: 'Hi', text: 'the text', envelope: { from, to: [to] }, dsn })
      .finally(() => transport.close());
  }

  async function receive(from: string, mailParams: string, to: string, rcptParams: string): Promise<void> {
    const session = await openSession(running.smtp);
    await session.say('EHLO client.test');
    expect(await session.say(`MAIL FROM:<${from}> ${mailParams}`.trimEnd())).to.match(/^250 /);
    expect(await session.say(`RCPT TO:<${to}> ${rcptParams}`.trimEnd())).to.match(/^250 /);
    await session.say('DATA');
    expect(await session.data('From: a@proven.test\r\nSubject: in\r\n\r\nthe text\r\n')).to.match(/^250 /);
    session.close();
  }

  it('report that a submitted message was relayed', async () => {
    await submit('jo@to.test', 'me@sender.test', {
      id: 'QQ+314159',
      return: 'headers',
      notify: ALL,
      recipient: 'jo+x@to.test',
    });
    const { status, types, text, returned, headers } = await reportTo('me@sender.test');
    expect(headers.get('content-type')).to.deep.include({ value: 'multipart/report' });
    expect(headers.get('auto-submitted')).to.equal('auto-replied');
    expect(types).to.deep.equal(['message/delivery-status', 'text/rfc822-headers']);
    expect(status)
      .to.match(/^Original-Envelope-Id: QQ\+314159\r?$/m)
      .and.match(/^Reporting-MTA: dns; in\.postern\.test\r?$/m);
    expect(status)
      .to.match(/^Original-Recipient: rfc822;jo\+x@to\.test\r?$/m)
      .and.match(/^Final-Recipient: rfc822;jo@to\.test\r?$/m);
    expect(status)
      .to.match(/^Action: relayed\r?$/m)
      .and.match(/^Status: 2\.0\.0\r?$/m);
    expect(text).to.contain('relayed to the next server');
    expect(returned)
      .to.match(/^Subject: Hi\r?$/m)
      .and.not.contain('the text');
  });

  it('report that a submitted message failed, with the full message on request', async () => {
    await submit('gone@to.test', 'whole@sender.test', {
      id: 'x',
      return: 'full',
      notify: 'failure',
      recipient: 'gone@to.test',
    });
    await submit('gone2@to.test', 'head@sender.test', {
      id: 'y',
      return: 'headers',
      notify: 'failure',
      recipient: 'gone2@to.test',
    });
    const [whole, head] = await Promise.all([reportTo('whole@sender.test'), reportTo('head@sender.test')]);
    for (const { status } of [whole, head])
      expect(status)
        .to.match(/^Action: failed\r?$/m)
        .and.match(/^Status: 5\.1\.1\r?$/m)
        .and.match(/^Diagnostic-Code: smtp; 550 5\.1\.1 /m);
    expect([whole.types[1], head.types[1]]).to.deep.equal(['message/rfc822', 'text/rfc822-headers']);
    expect([/the text/.test(whole.returned), /the text/.test(head.returned)]).to.deep.equal([true, false]);
  });

  it('are not sent if not requested, for NOTIFY=NEVER, for the other outcome, or without a return address', async () => {
    await submit('gone3@to.test', 'never@sender.test', {
      id: 'x',
      return: 'full',
      notify: 'never',
      recipient: 'gone@to.test',
    });
    await submit('jo@to.test', 'failure@sender.test', {
      id: 'x',
      return: 'full',
      notify: 'failure',
      recipient: 'jo@to.test',
    });
    await submit('gone4@to.test', 'success@sender.test', {
      id: 'x',
      return: 'full',
      notify: 'success',
      recipient: 'gone@to.test',
    });
    await receive('', 'RET=HDRS', 'a@in.test', 'NOTIFY=SUCCESS');
    await receive('plain@proven.test', 'ENVID=only', 'a@in.test', '');
    await submit('jo@to.test', 'last@sender.test', {
      id: 'x',
      return: 'headers',
      notify: 'success',
      recipient: 'jo@to.test',
    });
    await reportTo('last@sender.test');
    expect(
      ['never@sender.test', 'failure@sender.test', 'success@sender.test', 'plain@proven.test'].flatMap(reportsTo),
    ).to.deep.equal([]);
  });

  it('report that an incoming message was delivered, only if SPF passed', async () => {
    await receive('victim@forged.test', 'RET=HDRS', 'a@in.test', 'NOTIFY=SUCCESS,FAILURE');
    await receive(
      'ada@proven.test',
      'RET=HDRS ENVID=in+2B1',
      'a@in.test',
      'NOTIFY=SUCCESS,FAILURE ORCPT=rfc822;first@else.test',
    );
    const { status } = await reportTo('ada@proven.test');
    expect(status)
      .to.match(/^Original-Envelope-Id: in\+1\r?$/m)
      .and.match(/^Original-Recipient: rfc822;first@else\.test\r?$/m)
      .and.match(/^Action: delivered\r?$/m);
    expect(reportsTo('victim@forged.test')).to.deep.equal([]);
  });

  it('never cause another report', async () => {
    const { out } = await postern(['queue', 'list', '--kind', 'inbound', '--state', 'delivered', '--json'], {
      POSTERN_DATA_DIR: running.dir,
    });
    expect(out).to.contain('a@in.test').and.not.contain('report:');
  });
});
