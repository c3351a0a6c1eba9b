import { X509Certificate } from 'node:crypto';
import { copyFileSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { loadTestSettings } from '../../support/daemon.ts';
import { type HostWorld, startHost } from '../../support/host-world.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';
import { startZone, type Zone } from '../../support/zone.ts';

describe('host checks in the console', function () {
  this.timeout(30_000);
  let world: HostWorld;
  let zone: Zone;
  before(async () => {
    zone = await startZone({
      com: { NS: ['ns.example'] },
      'in.test': { MX: [{ exchange: 'mail.old.test', priority: 10 }] },
    });
    world = await startHost({ POSTERN_DNS__SERVERS: zone.server, POSTERN_DNS__TIMEOUT_MS: '2000' });
  });
  after(async () => {
    await world.stop();
    await zone.stop();
  });

  /** Begins one that is not the last, which has to be some seconds old. */
  const begin = (lastId?: string) =>
    until('a new one begins', async () => {
      const run = await world.host('examine');
      return run.id !== lastId && run;
    });
  const finished = (id: string) =>
    until('it is done', async () => {
      const run = await world.host('examine', { id });
      return run.state === 'done' && run;
    });
  const of = (run: any, name: string) => run.checks.find((one: any) => one.name === name);
  let last: any;

  it('match postern doctor, and find no problem with a running daemon', async () => {
    last = await finished((await begin()).id);
    const { smtp, base } = world;
    expect(of(last, `SMTP ${smtp.host}:${smtp.port}`)).to.deep.include({ level: 'ok', advice: null });
    expect(of(last, 'daemon')).to.deep.include({ level: 'ok', text: `${base}/readyz: ready` });
    expect(of(last, 'store (embedded)').level).to.equal('ok');
    expect(of(last, `resolver ${zone.server}`).level).to.equal('ok');
    expect(of(last, 'outbound port 25')).to.deep.include({ level: 'skipped', text: 'every listener is on loopback' });
    const { level, text, advice } = of(last, 'MX in.test');
    expect([level, text]).to.deep.equal([
      'fault',
      'The MX records of in.test point to mail.old.test, not to in.postern.test',
    ]);
    expect(advice).to.contain('Publish an MX record for in.test');
    const levels: string[] = last.checks.map((one: any) => one.level);
    // Every check but that of scanners, of which there are none; by the machine, there may be more.
    const names: string[] = last.checks.map((one: any) => one.name);
    expect(names.map((name) => name.replace(/^mode of .*/, 'mode'))).to.include.members([
      ...['clock', 'disk', 'memory', 'mode', 'other hosts', 'certificate', 'ports 80 and 443', 'ACME certificates'],
      ...['host name', 'hosts file', 'inbound port 25', 'public URL', 'console.mail_origin', 'postmaster', 'sending'],
      ...['own mail', 'reserved domains', 'sender domains', 'block lists', 'queue'],
    ]);
    for (const level of ['ok', 'warning', 'fault', 'skipped'])
      expect(last.counts[level], level).to.equal(levels.filter((one) => one === level).length);
    expect(last.started_at <= last.ended_at).to.equal(true);
  });

  it('are shared by all callers, with the findings so far, check by check', async () => {
    zone.behave('drop');
    const { id } = await begin(last.id);
    const other = await world.enter();
    const joined = await world.host('examine', {}, other);
    expect([joined.id, joined.state, joined.ended_at]).to.deep.equal([id, 'running', null]);
    const partly = await until('the first checks', async () => {
      const run = await world.host('examine', { id });
      return run.checks.length > 0 && run;
    });
    expect([partly.state, partly.checks[0].name, of(partly, 'MX in.test')]).to.deep.equal([
      'running',
      'clock',
      undefined,
    ]);
    zone.behave('normal');
    const done = await finished(id);
    expect(done.checks.length).to.be.above(partly.checks.length);
    expect(of(done, 'MX in.test').level).to.equal('fault');
  });

  it('keep only the latest run', async () => {
    const { status, body } = await world.ask('examine', { id: last.id });
    expect([status, body.name]).to.deep.equal([404, 'Unknown_Job']);
  });

  it('read the certificate after a reload, not the one of the start', async () => {
    const dir = await tempDir();
    await world.daemon.reload(loadTestSettings(world.dir, useCertificate(dir, 'first')));
    last = await finished((await begin((await world.host('examine')).id)).id);
    expect(of(last, 'certificate name').text).to.equal('covers CN=first.ours.test, not in.postern.test');
  });
});

const fixture = (name: string) => new URL(`../../fixtures/tls/${name}.pem`, import.meta.url).pathname;

/** Puts a certificate and its key into the folder, and answers the settings that name them. */
function useCertificate(dir: string, name: string) {
  const [cert, key] = [join(dir, 'cert.pem'), join(dir, 'key.pem')];
  copyFileSync(fixture(`${name}.cert`), cert);
  copyFileSync(fixture(`${name}.key`), key);
  return { POSTERN_SMTP__TLS__CERT: cert, POSTERN_SMTP__TLS__KEY: key };
}

describe('the listeners in the console', () => {
  it('are shown with their ports, their sessions and the certificate in use, also after a reload', async () => {
    const dir = await tempDir();
    const env = {
      ...useCertificate(dir, 'first'),
      POSTERN_SUBMISSION__LISTEN: '127.0.0.1:0',
      POSTERN_SUBMISSION__TLS_LISTEN: '127.0.0.1:0',
    };
    const world = await startHost(env);
    const { smtp, submission, base } = world;
    const session = connect(smtp.port, smtp.host);
    await new Promise((greeted) => session.once('data', greeted));
    const { listeners } = await world.host('listeners');
    session.destroy();
    expect(
      listeners.slice(0, 3).map(({ name, tls, addresses, sessions }: any) => [name, tls, addresses[0].port, sessions]),
    ).to.deep.equal([
      ['smtp', 'starttls', smtp.port, 1],
      ['submission', 'starttls', submission[0]?.port, 0],
      ['submissions', 'implicit', submission[1]?.port, 0],
    ]);
    const http = listeners.at(-1);
    expect(http).to.deep.include({
      name: 'http',
      tls: 'none',
      addresses: [{ address: '127.0.0.1', port: Number(new URL(base).port) }],
      certificate: null,
    });
    expect(http.sessions, 'the connection that asks').to.be.at.least(1);
    const end = Date.parse(new X509Certificate(readFileSync(fixture('first.cert'))).validTo);
    const { not_after: notAfter, days_left: daysLeft, ...certificate } = listeners[0].certificate;
    expect(certificate).to.deep.equal({ names: ['first.ours.test'], issuer: 'CN=first.ours.test' });
    expect(Date.parse(`${notAfter}Z`)).to.equal(end);
    expect(daysLeft).to.equal(Math.floor((end - Date.now()) / 86_400_000));
    useCertificate(dir, 'second');
    await world.daemon.reload(loadTestSettings(world.dir, env));
    const after = (await world.host('listeners')).listeners;
    expect(after.map((one: any) => one.certificate?.names[0])).to.deep.equal([
      ...Array(3).fill('second.ours.test'),
      undefined,
    ]);
    await world.stop();
  });

  it('without a certificate offer no TLS', async () => {
    const world = await startHost();
    const { listeners } = await world.host('listeners');
    expect(listeners.map(({ name, tls, certificate }: any) => [name, tls, certificate])).to.deep.equal([
      ['smtp', 'none', null],
      ['http', 'none', null],
    ]);
    await world.stop();
  });
});
