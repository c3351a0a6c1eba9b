import { expect } from 'chai';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const told = (hook: Receiver): any[] =>
  [...new Map(postsOf(hook.requests).map((post) => [post.headers['webhook-id'], post])).values()].flatMap(eventsOf);

describe('mail sent by an account, through the whole daemon', function () {
  this.timeout(60_000);
  let server: MailServer;
  let zone: Zone;
  let hook: Receiver;
  let running: TestDaemon;
  before(async () => {
    server = await startMailServer();
    zone = await startZone({
      'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'mx.to.test': { A: ['127.0.0.1'] },
      'none.test': { MX: [{ exchange: '', priority: 0 }] },
    });
    hook = await startReceiver();
    running = await startDaemon({
      // The name server shares this process: a question that a busy machine lets wait would be one more deferral.
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_WEBHOOKS__BATCH_WAIT_MS: '50',
    });
    await running.api('/webhooks/add', {
      url: hook.url,
      events: ['send', 'deferral', 'hard_bounce', 'soft_bounce', 'reject'],
    });
  });
  after(async () => {
    await running.stop();
    await Promise.all([zone.stop(), hook.stop(), server.stop()]);
  });

  const send = async (to: string, more: object = {}): Promise<string> => {
    const message = {
      from_email: 'news@sender.test',
      subject: `for ${to}`,
      text: 'Hello',
      to: [{ email: to }],
      tags: ['weekly'],
      ...more,
    };
    const [{ _id: id }] = await running.api('/messages/send', { message });
    return id;
  };
  const eventsFor = (id: string) => told(hook).filter(({ _id }) => _id === id);

  it('reaches the MX of its recipient with its own return path, and is reported and counted as sent', async () => {
    const id = await send('jo@to.test');
    const mail = await until('the mail', () => server.mails.find(({ to }) => to.includes('jo@to.test')));
    expect(mail.from)
      .to.match(/^1-[0-9a-f]{32}-[0-9a-z]{16,}@bounces\.in\.postern\.test$/)
      .and.to.contain(id);
    expect(mail.raw).to.match(/^Subject: for jo@to\.test\r?$/m);
    const [event] = await until('the event', () => eventsFor(id).length > 0 && eventsFor(id));
    expect(event).to.deep.include({ event: 'send', _id: id });
    expect(event.msg).to.deep.include({
      email: 'jo@to.test',
      sender: 'news@sender.test',
      state: 'sent',
      tags: ['weekly'],
    });
    expect(
      await until('the row', async () => {
        const found = await running.api('/messages/info', { id });
        return found.state === 'sent' && found;
      }),
    ).to.include({ _id: id, state: 'sent' });
  });

  it('ends with the bounce class of the reply', async () => {
    const ids = await Promise.all(['gone@to.test', 'full@to.test', 'jo@none.test'].map((to) => send(to)));
    await until('three events', () => ids.every((id) => eventsFor(id).length === 1));
    const seen = ids.map((id) => eventsFor(id)[0]);
    expect(seen.map(({ event, msg }) => [event, msg.bounce_description, msg.bgtools_code])).to.deep.equal([
      ['hard_bounce', 'bad_mailbox', 10],
      ['soft_bounce', 'mailbox_full', 22],
      ['hard_bounce', 'invalid_domain', 21],
    ]);
    expect(seen[0].msg.diag).to.match(/^smtp;550 5\.1\.1 .*User unknown/);
    await until('the rejects', async () => (await running.api('/rejects/list', {})).length === 3);
    const again = await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', text: 'x', to: [{ email: 'gone@to.test' }] },
    });
    expect(again[0]).to.include({ email: 'gone@to.test', status: 'rejected', reject_reason: 'hard-bounce' });
  });

  it('is retried after 4xx, reported as deferred once and then as sent', async () => {
    const id = await send('grey@to.test');
    await until('both events', () => eventsFor(id).length === 2, 20_000);
    expect(
      eventsFor(id)
        .map(({ event }) => event)
        .sort(),
    ).to.deep.equal(['deferral', 'send']);
    const deferral = eventsFor(id).find(({ event }) => event === 'deferral');
    expect(deferral.msg.smtp_events[0]).to.include({ type: 'deferred', destination_ip: '127.0.0.1' });
    expect(deferral.msg.smtp_events[0].diag).to.match(/^450 4\.2\.0 /);
  });

  it('waits while its subaccount is paused, and is sent when it is resumed', async () => {
    await running.api('/subaccounts/add', { id: 'cust' });
    await running.api('/subaccounts/pause', { id: 'cust' });
    const id = await send('paused@to.test', { subaccount: 'cust' });
    await send('after@to.test');
    await until('the one behind it', () => server.mails.some(({ to }) => to.includes('after@to.test')));
    expect(server.asked).not.to.include('paused@to.test');
    expect(await running.api('/inbound/deliveries', {}), 'nobody sees it as mail that came in').to.deep.equal([]);
    const env = { POSTERN_DATA_DIR: running.dir };
    const rows = (await postern(['queue', 'list', '--kind', 'outbound', '--json'], env)).records();
    expect(
      rows
        .filter(({ state }) => state === 'waiting')
        .map(({ kind, recipient, url, attempts }) => ({ kind, recipient, url, attempts })),
    ).to.deep.equal([{ kind: 'outbound', recipient: 'paused@to.test', url: 'smtp://to.test', attempts: 0 }]);
    await running.api('/subaccounts/resume', { id: 'cust' });
    await until(
      'it leaves',
      async () => {
        await postern(['queue', 'retry', '--kind', 'outbound'], env);
        return eventsFor(id).length === 1;
      },
      50_000,
    );
    expect(server.mails.filter(({ to }) => to.includes('paused@to.test'))).to.have.length(1);
  });

  it('is counted exactly once, whatever the result', async () => {
    await until('the numbers', async () => {
      const [sender] = await running.api('/senders/list', {});
      return sender?.sent === 4 && sender.hard_bounces === 2 && sender.soft_bounces === 1;
    });
  });
});
