import { Resolver } from 'node:dns/promises';
import { expect } from 'chai';
import { authenticate } from 'mailauth';
import { createTransport } from 'nodemailer';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { addAccount } from '../support/second-account.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const certificate = (name: string) => new URL(`../fixtures/tls/first.${name}.pem`, import.meta.url).pathname;
/** The hostname is in.postern.test: our return domain is below the domain that this person has a mailbox at. */
const BOSS = 'boss@postern.test';

describe('mail From the domains that authenticate the mail of all accounts', () => {
  let zone: Zone;
  let server: MailServer;
  let running: TestDaemon;
  let tenant: { readonly api: TestDaemon['api']; readonly key: string };

  beforeEach(async () => {
    server = await startMailServer();
    zone = await startZone({
      'postern.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
      'mx.to.test': { A: ['127.0.0.1'] },
      'bounces.in.postern.test': { TXT: ['v=spf1 ip4:127.0.0.1 -all'] },
      '_dmarc.postern.test': { TXT: ['v=DMARC1; p=reject'] },
    });
  });
  afterEach(async () => {
    await running.stop();
    await Promise.all([zone.stop(), server.stop()]);
  });

  async function start(env: Readonly<Record<string, string>> = {}): Promise<void> {
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_MAIL__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SMTP__TLS__CERT: certificate('cert'),
      POSTERN_SMTP__TLS__KEY: certificate('key'),
      ...env,
    });
  }

  async function addTenant(): Promise<void> {
    tenant = await addAccount(running, 'tenant');
  }

  const send = async (api: TestDaemon['api'], from: string, to = 'jo@to.test') => {
    const [sent] = await api('/messages/send', {
      message: { from_email: from, subject: 'Pay this', text: 'Now', to: [{ email: to }] },
    });
    return { status: sent.status, reason: sent.reject_reason };
  };
  const arrived = (to: string) => until('the mail', () => server.mails.find((mail) => mail.to.includes(to)));
  async function submit(from: string): Promise<string> {
    const transport = createTransport({
      ...running.submission[0],
      requireTLS: true,
      auth: { user: 'any', pass: tenant.key },
      tls: { rejectUnauthorized: false },
    });
    try {
      return (await transport.sendMail({ from, to: 'jo@to.test', subject: 'x', text: 'x' })).response;
    } catch (error) {
      return error instanceof Error && 'response' in error ? String(error.response) : String(error);
    } finally {
      transport.close();
    }
  }

  /** What a receiver says of a mail as it came, by a library that we do not send with. */
  async function dmarcOf({ raw, from }: { readonly raw: string; readonly from: string }): Promise<string> {
    const dns = new Resolver();
    dns.setServers([zone.server]);
    const { dmarc } = await authenticate(raw, {
      ip: '127.0.0.1',
      helo: 'in.postern.test',
      sender: from,
      resolver: (name, type) => dns.resolve(name, type) as any,
    });
    return String(dmarc ? dmarc.status.result : 'none');
  }

  it('passes DMARC for every sender, so it must be restricted (control)', async () => {
    await start({ POSTERN_OUTBOUND__FROM_OWN_DOMAINS: 'open' });
    await addTenant();
    expect(await send(tenant.api, BOSS)).to.deep.equal({ status: 'queued', reason: null });
    expect(await dmarcOf(await arrived('jo@to.test'))).to.equal('pass');
  });

  it('is allowed for the only account', async () => {
    await start();
    expect(await send(running.api, BOSS)).to.deep.equal({ status: 'queued', reason: null });
    await arrived('jo@to.test');
  });

  it('is rejected once there are two accounts: by the API, for subdomains, and by SMTP; other senders are allowed', async () => {
    await start();
    await addTenant();
    for (const from of [BOSS, 'a@POSTERN.test', 'a@in.postern.test', 'a@deep.bounces.in.postern.test'])
      expect(await send(tenant.api, from), from).to.deep.equal({ status: 'rejected', reason: 'invalid-sender' });
    expect(await submit(BOSS)).to.match(/^550 5\.7\.1 Sender address rejected/);
    expect(await submit(`"${BOSS}" <news@shop.test>`)).to.match(/^250 /);
    expect(await send(tenant.api, 'news@shop.test', 'last@to.test')).to.deep.equal({ status: 'queued', reason: null });
    await arrived('last@to.test');
    expect(server.mails.filter(({ raw }) => /^From: .*boss@postern\.test>?\r?$/m.test(raw))).to.deep.equal([]);
    expect(running.log.of('message.refused')[0]).to.deep.nested.include({
      'fields.from': BOSS,
      'fields.reason': 'invalid-sender',
    });
  });

  it('is allowed only for the account that verified the domain', async () => {
    await start();
    await addTenant();
    await tenant.api('/senders/add-domain', { domain: 'postern.test' });
    await tenant.api('/senders/verify-domain', { domain: 'postern.test', mailbox: 'postmaster' });
    const { raw } = await arrived('postmaster@postern.test');
    const path = /(\/verify\/[\w-]{22})\r?\n/.exec(raw.replaceAll('=\r\n', ''))?.[1] ?? '';
    expect(await send(tenant.api, BOSS)).to.deep.equal({ status: 'rejected', reason: 'invalid-sender' });
    expect((await fetch(running.base + path, { method: 'POST' })).status).to.equal(200);
    expect(await send(tenant.api, BOSS)).to.deep.equal({ status: 'queued', reason: null });
    expect(await send(tenant.api, 'a@in.postern.test')).to.deep.equal({ status: 'queued', reason: null });
    expect(await send(running.api, BOSS)).to.deep.equal({ status: 'rejected', reason: 'invalid-sender' });
  });

  it('is rejected even for the only account if the operator requires a proof', async () => {
    await start({ POSTERN_OUTBOUND__FROM_OWN_DOMAINS: 'verified' });
    expect(await send(running.api, BOSS)).to.deep.equal({ status: 'rejected', reason: 'invalid-sender' });
  });
});
