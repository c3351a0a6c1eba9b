import { expect } from 'chai';
import { createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailSink, startMailSink } from '../support/mail-sink.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone, type ZoneNode } from '../support/zone.ts';

describe('a sender domain, from its DNS to the proof of ownership', () => {
  let zone: Zone;
  let sink: MailSink;
  let postern: TestDaemon;
  const records: Record<string, ZoneNode> = {};

  beforeEach(async () => {
    Object.assign(records, {
      'shop.test': { MX: [{ exchange: 'mx.shop.test', priority: 10 }], A: ['127.0.0.1'], ttl: 1 },
      'mx.shop.test': { A: ['127.0.0.1'] },
    });
    zone = await startZone(records);
    sink = await startMailSink();
    postern = await startDaemon(env());
  });
  afterEach(async () => {
    await postern.stop();
    await sink.stop();
    await zone.stop();
  });
  const env = () => ({
    POSTERN_DNS__SERVERS: zone.server,
    POSTERN_DNS__TIMEOUT_MS: '2000',
    POSTERN_MAIL__MX_PORT: String(sink.port),
    POSTERN_PUBLIC_URL: 'https://postern.test/mail',
  });
  const unfolded = (raw: string) => raw.replaceAll('=\r\n', '').replaceAll('=3D', '=');
  const linkIn = (raw: string) =>
    /https:\/\/postern\.test\/mail(\/verify\/[\w-]{22})\r?\n/.exec(unfolded(raw))?.[1] ?? 'no link';

  it('gets its DNS records, is tested, mailed and verified', async () => {
    const key = await postern.api('/senders/domain-key', { domain: 'shop.test' });
    expect(key).to.include({
      name: 'postern._domainkey.shop.test',
      spf_include: 'include:spf.in.postern.test',
      spf: 'v=spf1 include:spf.in.postern.test ~all',
    });
    expect(key.txt).to.match(/^v=DKIM1; k=rsa; p=[\w+/]{380,}={0,2}$/);
    const before = await postern.api('/senders/check-domain', { domain: 'shop.test' });
    expect([before.spf.valid, before.dkim.valid]).to.deep.equal([false, false]);

    // 410 characters are two strings in the DNS.
    zone.set({
      ...records,
      'shop.test': { ...records['shop.test'], TXT: [key.spf] },
      [key.name]: { TXT: [key.txt], ttl: 1 },
    });
    const tested = await postern.api('/senders/check-domain', { domain: 'shop.test' });
    expect([tested.spf.valid, tested.dkim.valid, tested.valid_signing]).to.deep.equal([true, true, false]);
    expect(tested.spf.valid_after).to.be.a('string');

    expect(await postern.api('/senders/verify-domain', { domain: 'shop.test', mailbox: 'postmaster' })).to.deep.equal({
      status: 'sent',
      domain: 'shop.test',
      email: 'postmaster@shop.test',
    });
    const mail = await until('the mail', () => sink.mails[0]);
    expect(mail).to.deep.include({ from: 'postmaster@in.postern.test', to: ['postmaster@shop.test'], secure: true });
    expect(mail.raw)
      .to.match(/^From: postmaster@in\.postern\.test\r$/m)
      .and.to.match(/^Subject: Please confirm that shop\.test is yours\r$/m);
    const link = linkIn(mail.raw);
    expect(await (await fetch(postern.base + link)).text()).to.contain('Is shop.test yours?');
    expect((await postern.api('/senders/check-domain', { domain: 'shop.test' })).verified_at).to.equal(null);
    expect((await fetch(postern.base + link, { method: 'POST' })).status).to.equal(200);
    expect((await fetch(postern.base + link, { method: 'POST' })).status).to.equal(410);
    const signing = await until('the TTL to pass', async () => {
      const [record] = await postern.api('/senders/domains');
      return record.valid_signing && record;
    });
    expect(signing.verified_at).to.match(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
    expect(await postern.api('/senders/verify-domain', { domain: 'shop.test', mailbox: 'admin' })).to.include({
      status: 'already_verified',
    });
    expect(sink.mails).to.have.length(1);
    const logged = JSON.stringify(postern.log.lines);
    expect(logged)
      .to.contain('notice.sent')
      .and.to.not.contain(link.slice('/verify/'.length))
      .and.to.not.contain('PRIVATE KEY');
  }).timeout(30_000);

  it('gets its mail after a restart when its mail server was down', async () => {
    sink.refuse({ code: 451, text: 'later' });
    await postern.api('/senders/verify-domain', { domain: 'shop.test', mailbox: 'postmaster' });
    await until('the first attempt', () => postern.log.of('notice.deferred').length === 1);
    await postern.stop();
    sink.refuse(undefined);
    const clock = {
      now: () => Date.now() + 61_000,
      monotonic: () => performance.now(),
      after: (ms: number, fn: () => void) => {
        const timer = setTimeout(fn, ms);
        return () => clearTimeout(timer);
      },
    };
    postern = await startDaemon(env(), { dir: postern.dir, clock });
    // What is queued next wakes the sender, which finds the old one as well.
    await createCaller(postern.base, postern.key).api('/senders/verify-domain', {
      domain: 'shop.test',
      mailbox: 'admin',
    });
    await until('both mails', () => sink.mails.length === 2);
    expect(sink.mails.flatMap(({ to }) => to).toSorted()).to.deep.equal(['admin@shop.test', 'postmaster@shop.test']);
  }).timeout(30_000);
});
