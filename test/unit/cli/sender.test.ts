import { expect } from 'chai';
import { postern } from '../../support/command.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { type MailServer, startMailServer } from '../../support/mail-server.ts';
import { addAccount } from '../../support/second-account.ts';
import { until } from '../../support/until.ts';
import { startZone, type Zone, type ZoneRecords } from '../../support/zone.ts';

const ZONE: ZoneRecords = {
  'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] },
  'mx.to.test': { A: ['127.0.0.1'] },
  'op.test': { A: ['192.0.2.1'] },
};

describe('sender domains on the command line, while a daemon runs', function () {
  this.timeout(60_000);
  let running: TestDaemon;
  let server: MailServer;
  let zone: Zone;
  let env: Record<string, string>;

  beforeEach(async () => {
    [server, zone] = await Promise.all([startMailServer(), startZone(ZONE)]);
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
    });
    env = {
      POSTERN_DATA_DIR: running.dir,
      POSTERN_HOSTNAME: 'in.postern.test',
      POSTERN_SMTP__LISTEN: '127.0.0.1:0',
      POSTERN_HTTP__LISTEN: '127.0.0.1:0',
      POSTERN_DNS__SERVERS: zone.server,
    };
  });
  afterEach(async () => {
    await running.stop();
    await Promise.all([server.stop(), zone.stop()]);
  });

  async function send(to: string) {
    const [{ signed_by, warning }] = await running.api('/messages/send', {
      message: { from_email: 'me@op.test', text: 'x', to: [{ email: to }] },
    });
    const { raw } = await until('the mail', () => server.mails.find((mail) => mail.to.includes(to)));
    return { signed_by, warning, signature: /^DKIM-Signature:.* d=([\w.]+);/m.exec(raw)?.[1] ?? null };
  }

  it('are verified without a mail, and sign at once if their records are correct: those of the operator', async () => {
    expect(await send('1@to.test')).to.deep.equal({
      signed_by: null,
      warning:
        'Not signed by op.test: the account has not verified the domain (/senders/verify-domain, or postern sender add op.test on the host)',
      signature: null,
    });
    const first = await postern(['sender', 'add', 'Op.test'], env);
    expect(first).to.include({ code: 0 });
    expect(first.out)
      .to.contain('op.test is a verified sender domain of account main.')
      .and.to.contain('DKIM: There is no DKIM record at postern._domainkey.op.test.')
      .and.to.contain('op.test  TXT  "v=spf1 include:spf.in.postern.test ~all"')
      .and.to.contain('Then check again: postern sender add op.test');
    const [{ records, spf, valid_signing }] = (await postern(['sender', 'add', 'op.test', '--json'], env)).json();
    expect(valid_signing).to.equal(false);
    zone.set({
      ...ZONE,
      'op.test': { TXT: ['v=spf1 include:spf.in.postern.test ~all'], ttl: 3600 },
      [records.name]: { TXT: [records.txt], ttl: 3600 },
    });
    expect(spf).to.deep.equal({ valid: false, valid_after: null, error: "This domain doesn't have an SPF record." });
    // The TTL of an hour protects records that were seen wrong before; the operator knows that this one was not.
    expect((await send('2@to.test')).signature).to.equal(null);
    const again = await postern(['sender', 'add', 'op.test'], env);
    expect(again.out).to.contain('Both records are in the DNS. Mail From op.test is signed from now on.');
    let count = 2;
    await until('a signed mail', async () => (await send(`${++count}@to.test`)).signature === 'op.test', 30_000);
    expect(await send('last@to.test')).to.deep.equal({ signed_by: 'op.test', warning: null, signature: 'op.test' });
    const [listed] = (await postern(['sender', 'list', '--json'], env)).json();
    expect(listed).to.include({ domain: 'op.test', account_name: 'main', spf: true, dkim: true, valid_signing: true });
    expect((await postern(['sender', 'list'], env)).out).to.match(/^op\.test +main +\d.* +valid +valid +yes$/m);
    expect(server.mails.filter(({ raw }) => raw.includes('/verify/'))).to.deep.equal([]);
  });

  it('for signing system mail show their record before there is any mail', async () => {
    const own = await postern(['dkim', 'show', '--json'], env);
    expect(own.json()).to.have.length(1);
    expect(own.json()[0]).to.include({ domain: 'in.postern.test', name: 'postern._domainkey.in.postern.test' });
    const signing = { ...env, POSTERN_OUTBOUND__SIGNING_DOMAIN: 'op.test' };
    const both = (await postern(['dkim', 'show', '--json'], signing)).json();
    expect(both.map(({ domain }: { domain: string }) => domain)).to.deep.equal(['in.postern.test', 'op.test']);
    expect((await postern(['dkim', 'show', 'op.test', '--json'], env)).json()[0].txt).to.equal(both[1].txt);
    expect(await postern(['dkim', 'show', 'other.test'], env)).to.include({ code: 64 });
  });

  it('belong to the named account, and must be domains that can be owned', async () => {
    const { id } = await addAccount(running, 'second');
    expect((await postern(['sender', 'add', 'op.test'], env)).err).to.contain('choose one with --account');
    expect(await postern(['sender', 'add', 'op.test', '--account', 'second'], env)).to.include({ code: 0 });
    const [row] = (await postern(['sender', 'list', '--account', 'second', '--json'], env)).json();
    expect(row).to.include({ domain: 'op.test', account: id });
    for (const word of ['localhost', 'a b', 'co.uk', 'gmail.com'])
      expect(await postern(['sender', 'add', word, '--account', 'second'], env), word).to.include({ code: 64 });
    expect(await postern(['sender', 'add'], env)).to.include({ code: 64 });
  });
});
