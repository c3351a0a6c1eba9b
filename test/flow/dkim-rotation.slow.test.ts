import { expect } from 'chai';
import { systemClock } from '../../src/base/clock.ts';
import { createAuthenticator } from '../../src/inbound/verdicts/authenticate.ts';
import { postern } from '../support/command.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { type MailServer, startMailServer } from '../support/mail-server.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone, type ZoneRecords, zoneResolver } from '../support/zone.ts';

const MX = { 'to.test': { MX: [{ exchange: 'mx.to.test', priority: 10 }] }, 'mx.to.test': { A: ['127.0.0.1'] } };

describe('postern dkim rotate beside a running daemon', function () {
  this.timeout(60_000);
  let server: MailServer;
  let zone: Zone;
  let running: TestDaemon;
  let published: ZoneRecords = {};
  before(async () => {
    server = await startMailServer();
    zone = await startZone(MX);
    running = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '5000',
      POSTERN_OUTBOUND__MX_PORT: String(server.port),
      POSTERN_OUTBOUND__MTA_STS: 'false',
      POSTERN_OUTBOUND__SIGNING_DOMAIN: 'sign.test',
    });
  });
  after(async () => {
    await running.stop();
    await Promise.all([zone.stop(), server.stop()]);
  });

  const dkim = (...argv: string[]) =>
    postern(['dkim', ...argv], { POSTERN_DATA_DIR: running.dir, POSTERN_HOSTNAME: 'in.postern.test' });
  const publish = (records: readonly any[]) => {
    published = Object.fromEntries(records.map(({ name, txt }) => [name, { TXT: [txt], ttl: 0 }]));
    zone.set({ ...MX, ...published });
  };
  /** The selector that the next message is signed under; fails when the signature is not valid in the DNS as it is. */
  async function signedUnder(to: string): Promise<string | undefined> {
    await running.api('/messages/send', {
      message: { from_email: 'news@sender.test', subject: 'x', text: 'x', to: [{ email: to }] },
    });
    const { raw } = await until('the mail', () => server.mails.find((mail) => mail.to.includes(to)));
    const authenticator = createAuthenticator({
      resolver: zoneResolver(published),
      settings: { questionsPerMessage: 60, budgetMs: 20_000, hostname: 'x.test', trustedSealers: [] },
      clock: systemClock,
    });
    const bytes = Buffer.from(raw, 'latin1');
    const { dkim: verdict } = await authenticator.authenticate(
      { kind: 'memory', bytes },
      { mailFrom: '', client: { address: null, helo: null, tls: null } },
    );
    expect(verdict).to.deep.equal({ signed: true, valid: true });
    return / s=(\w+);/.exec(raw)?.[1];
  }

  it('signs with the old key until the new one is published, then with the new one, and prints the DNS record', async () => {
    await running.api('/senders/domain-key', { domain: 'sign.test' });
    publish((await dkim('list', '--json')).json());
    expect(await signedUnder('one@to.test')).to.equal('postern');

    const rotated = await dkim('rotate', 'sign.test', '--json');
    const [next] = rotated.json();
    expect(next).to.deep.include({
      domain: 'sign.test',
      state: 'next',
      name: 'postern2._domainkey.sign.test',
      at: null,
    });
    expect((await dkim('rotate', 'sign.test', '--json')).json()).to.deep.equal([next]);
    const asked = await running.api('/senders/domain-key', { domain: 'sign.test' });
    expect(asked).to.deep.include({
      selector: 'postern',
      previous: null,
      next: { selector: 'postern2', name: next.name, txt: next.txt, cname: next.cname },
    });
    await running.api('/senders/check-domain', { domain: 'sign.test' });
    expect(await signedUnder('two@to.test')).to.equal('postern');

    publish((await dkim('show', 'sign.test', '--json')).json());
    await running.api('/senders/check-domain', { domain: 'sign.test' });
    const before = await running.api('/senders/domain-key', { domain: 'sign.test' });
    expect(before).to.deep.include({ selector: 'postern2', next: null });
    expect(before.previous).to.include({ selector: 'postern', name: 'postern._domainkey.sign.test' });
    expect(running.log.of('dkim.rotated').map(({ fields }) => fields['selector'])).to.deep.equal(['postern2']);
    // The daemon believes what it knows of a key for ten seconds; the old record is still there for what it signs
    // meanwhile.
    let n = 0;
    expect(
      await until(
        'the new selector',
        async () => (await signedUnder(`n${n++}@to.test`)) === 'postern2' && 'postern2',
        30_000,
      ),
    ).to.equal('postern2');
    const again = await dkim('rotate', 'sign.test');
    expect([again.code, again.out]).to.deep.equal([1, '']);
    expect(again.err).to.match(/Its selector is free again from \d{4}-\d\d-\d\d \S+ UTC/);
  });

  it('shows no private key', async () => {
    for (const argv of [['list'], ['show', 'sign.test'], ['list', '--json'], ['show', 'sign.test', '--json']]) {
      const { code, out } = await dkim(...argv);
      expect([code, /PRIVATE|BEGIN/.test(out)], argv.join(' ')).to.deep.equal([0, false]);
      expect(out).to.contain('sign.test');
    }
  });

  it('exits with 64 for a domain without a key, and for none', async () => {
    expect((await dkim('rotate', 'none.test')).code).to.equal(64);
    expect((await dkim('show', 'none.test')).code).to.equal(64);
    expect((await dkim('rotate')).code).to.equal(64);
    expect((await dkim('rotate', 'sign.test', '--all')).code).to.equal(64);
  });
});
