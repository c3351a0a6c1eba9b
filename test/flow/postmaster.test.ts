import { connect } from 'node:net';
import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { createClient } from '../support/smtp.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const TEXT = 'From: mta@client.test\r\nSubject: a report\r\n\r\nto the postmaster\r\n';

describe('mail to the postmaster, through the whole daemon', function () {
  this.timeout(30_000);
  let server: MailServer;
  let zone: Zone;
  let hook: Receiver;
  before(async () => {
    server = await startMailServer();
    zone = await startZone({
      'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'mx.to.test': { A: ['127.0.0.1'] },
    });
    hook = await startReceiver();
  });
  after(() => Promise.all([zone.stop(), hook.stop(), server.stop()]));

  const open = (postmaster: string, dir?: string) =>
    startDaemon(
      {
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_DNS__TIMEOUT_MS: '5000',
        POSTERN_OUTBOUND__MTA_STS: 'false',
        POSTERN_MAIL__MX_PORT: String(server.port),
        POSTERN_SMTP__POSTMASTER: postmaster,
      },
      dir === undefined ? {} : { dir },
    );

  /** Each recipient in a transaction of its own; answers what RCPT and the message were answered. */
  async function write({ smtp }: TestDaemon, ...recipients: string[]): Promise<string[]> {
    const client = createClient(connect(smtp.port, smtp.host));
    await client.reply();
    await client.say('EHLO client.test');
    const replies: string[] = [];
    for (const to of recipients) {
      await client.say('MAIL FROM:<mta@client.test>');
      replies.push(await client.say(`RCPT TO:<${to}>`));
      if (!replies.at(-1)?.startsWith('250')) await client.say('RSET');
      else {
        await client.say('DATA');
        client.send(`${TEXT.replace('a report', `for ${to}`)}.\r\n`);
        expect(await client.reply()).to.match(/^250 2\.0\.0/);
      }
    }
    client.destroy();
    return replies.map((reply) => reply.slice(0, 9));
  }
  const forwarded = (to: string) => server.mails.find(({ raw }) => raw.includes(`Subject: for ${to}\r\n`));

  it('is accepted at our names, without a domain, and at domains without a route, and is forwarded to the operator unchanged with a null sender', async () => {
    const running = await open('ops@to.test');
    try {
      await running.api('/inbound/add-domain', { domain: 'in.test' });
      const takers = [
        'Postmaster',
        'postmaster@in.postern.test',
        'POSTMASTER@bounces.in.postern.test',
        'postmaster@in.test',
      ];
      expect(await write(running, ...takers, 'postmaster@elsewhere.test', 'nobody@in.postern.test')).to.deep.equal([
        '250 2.1.5',
        '250 2.1.5',
        '250 2.1.5',
        '250 2.1.5',
        '550 5.7.1',
        '550 5.7.1',
      ]);
      for (const to of takers) {
        const mail = await until(`the mail to ${to}`, () => forwarded(to));
        expect(mail).to.deep.include({ from: '', to: ['ops@to.test'] });
        expect(mail.raw)
          .to.match(/^Received: from client\.test /)
          .and.to.contain('(envelope-from <mta@client.test>)');
        expect(mail.raw.slice(mail.raw.indexOf('From: '))).to.equal(TEXT.replace('a report', `for ${to}`));
      }
    } finally {
      await running.stop();
    }
  });

  it('goes to a matching route of an account at its own domain', async () => {
    const running = await open('ops@to.test');
    try {
      await running.api('/inbound/add-domain', { domain: 'theirs.test' });
      await running.api('/inbound/add-route', { domain: 'theirs.test', pattern: 'post*', url: hook.url });
      expect(await write(running, 'postmaster@theirs.test')).to.deep.equal(['250 2.1.5']);
      await until('the post', () =>
        postsOf(hook.requests)
          .flatMap(eventsOf)
          .some(({ msg }: any) => msg?.email === 'postmaster@theirs.test'),
      );
      expect(forwarded('postmaster@theirs.test')).to.equal(undefined);
    } finally {
      await running.stop();
    }
  });

  it('waits in the queue, readable, until smtp.postmaster is set, and is then sent', async () => {
    const first = await open('');
    const env = { POSTERN_DATA_DIR: first.dir };
    expect(await write(first, 'Postmaster', 'postmaster@bounces.in.postern.test')).to.deep.equal([
      '250 2.1.5',
      '250 2.1.5',
    ]);
    await until('both are noted', () => first.log.of('postmaster.kept').length === 2);
    expect(first.log.of('postmaster.kept')[0]?.fields).to.deep.include({ sender: 'mta@client.test' });
    const listed = await postern(['queue', 'list', '--url', 'postmaster:', '--state', 'waiting'], env);
    expect(listed.out).to.contain('Postmaster@in.postern.test').and.to.contain('postmaster@bounces.in.postern.test');
    const [{ id }] = (await postern(['queue', 'list', '--url', 'postmaster:', '--json'], env)).json();
    const reason = 'Due now (mail to postmaster waits until smtp.postmaster is set)';
    await until('its reason', async () => {
      const [{ waits }] = (await postern(['queue', 'show', id, '--json'], env)).json();
      return waits === reason;
    });
    await first.stop();
    const second = await open('later@to.test', first.dir);
    try {
      await until(
        'both are forwarded',
        () => server.mails.filter(({ to }) => to.includes('later@to.test')).length === 2,
      );
    } finally {
      await second.stop();
    }
  });

  it('is limited while smtp.postmaster is not set, because anybody may send it', async () => {
    const running = await open('');
    try {
      const client = createClient(connect(running.smtp.port, running.smtp.host));
      await client.reply();
      await client.say('EHLO client.test');
      expect(await sendMessageTo(client, `Subject: x\r\n\r\n${'x'.repeat(70)}\r\n`.repeat(20_000))).to.match(
        /^552 5\.3\.4/,
      );
      for (let n = 0; n < 100; n++) expect(await sendMessageTo(client, 'Subject: x\r\n\r\nx')).to.match(/^250 2\.0\.0/);
      await client.say('MAIL FROM:<a@client.test>');
      expect(await client.say('RCPT TO:<postmaster>')).to.match(/^452 4\.2\.2/);
      client.destroy();
    } finally {
      await running.stop();
    }
  });

  const sendMessageTo = async (client: ReturnType<typeof createClient>, body: string) => {
    await client.say('MAIL FROM:<a@client.test>');
    await client.say('RCPT TO:<postmaster>');
    await client.say('DATA');
    client.send(`${body}\r\n.\r\n`);
    return client.reply();
  };
});
