import { expect } from 'chai';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

describe('private networks allowed by the operator', function () {
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

  const openFor = (webhooks: string, mail: string) =>
    startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_MAIL__MX_PORT: String(server.port),
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: webhooks,
      POSTERN_OUTBOUND__ALLOW_PRIVATE: mail,
    });

  const send = async (running: TestDaemon, to: string): Promise<string> => {
    const [{ _id: id }] = await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', subject: 'x', text: 'x', to: [{ email: to }] },
    });
    return id;
  };

  it('webhooks.allow_private allows no outgoing mail there, of accounts or of the host', async () => {
    const running = await openFor('127.0.0.0/8', '');
    try {
      await running.api('/webhooks/add', { url: hook.url, events: ['send'] });
      const id = await send(running, 'jo@to.test');
      const found = await until('the bounce', async () => {
        const { status, body } = await running.ask('/messages/info', { id });
        return status === 200 && body.state === 'bounced' && body;
      });
      expect(found.diag).to.contain('the mail hosts of to.test have forbidden addresses');
      await running.api('/senders/verify-domain', { domain: 'to.test', mailbox: 'postmaster' });
      await until('the failed notice', () =>
        running.log.lines.some((line) =>
          JSON.stringify(line).includes('the mail hosts of to.test have forbidden addresses'),
        ),
      );
      expect(server.mails).to.deep.equal([]);
    } finally {
      await running.stop();
    }
  });

  it('outbound.allow_private allows no webhooks there', async () => {
    const running = await openFor('', '127.0.0.0/8');
    try {
      const { status, body } = await running.ask('/webhooks/add', { url: hook.url, events: ['send'] });
      expect({ status, name: body.name }).to.deep.equal({ status: 422, name: 'ValidationError' });
      await send(running, 'jo@to.test');
      await until('the mail', () => server.mails.some(({ to }) => to.includes('jo@to.test')));
    } finally {
      await running.stop();
    }
  });
});
