import { type AddressInfo, createServer, type Server } from 'node:net';
import { expect } from 'chai';
import { loadSettings } from '../../../src/config.ts';
import { acmeCertificates, webPorts } from '../../../src/examination/certificates.ts';
import { type Check, type Finding, listenersOf } from '../../../src/examination/finding.ts';
import type { CertificateRow } from '../../../src/store/rows/certificates.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock } from '../../support/clock.ts';
import { freePort } from '../../support/free-port.ts';
import { openTestStore } from '../../support/store.ts';
import { zoneResolver } from '../../support/zone.ts';

const NOW = Date.UTC(2030, 0, 5);
const DAY = 86_400_000;

describe('postern doctor, on certificates from ACME', () => {
  let store: Store;
  beforeEach(async () => {
    store = await openTestStore();
  });
  afterEach(() => store.close());

  async function look(check: Check, env: Readonly<Record<string, string>> = {}): Promise<readonly Finding[]> {
    const { settings } = loadSettings(undefined, {
      POSTERN_HOSTNAME: 'mx.example.com',
      POSTERN_PUBLIC_URL: 'https://mail.example.com',
      POSTERN_ACME__ENABLED: 'true',
      ...env,
    });
    const findings: Finding[] = [];
    const world = {
      settings,
      resolver: zoneResolver({}),
      store,
      noStore: '',
      queue: undefined,
      noQueue: '',
      listeners: listenersOf(settings),
      clock: createTestClock(NOW),
      settingsFile: undefined,
      reach: undefined,
      root: '/',
    };
    for await (const finding of check.run(world)) findings.push(finding);
    return findings;
  }
  const row = (id: string, more: Partial<CertificateRow>): Promise<unknown> =>
    store.certificates.insert({
      id,
      chain: null,
      key: null,
      issuedAt: null,
      notAfter: null,
      dueAt: new Date(NOW + DAY),
      failures: 0,
      error: null,
      failedAt: null,
      ...more,
    });
  const words = (findings: readonly Finding[]) =>
    findings.map(({ check, verdict, seen }) => `${check}: ${verdict}: ${seen}`);

  it('shows each of our names, with the last error and the remedy', async () => {
    await row('mx.example.com', { notAfter: new Date(NOW + 60 * DAY) });
    await row('mail.example.com', { error: 'Connection refused (open port 80 of mail.example.com)', failures: 3 });
    const found = await look(acmeCertificates);
    expect(words(found)).to.deep.equal([
      'certificate of mx.example.com: ok: valid for 60 days',
      'certificate of mail.example.com: fault: none: Connection refused (open port 80 of mail.example.com)',
    ]);
    expect(found[1]?.advice).to.contain('postern-http.socket').and.to.contain('2030-01-06T00:00:00.000Z');
  });

  it('warns of a certificate that is not renewed, and reports one that has expired', async () => {
    await row('mx.example.com', { notAfter: new Date(NOW + 25 * DAY), error: 'too many', failures: 1 });
    await row('mail.example.com', { notAfter: new Date(NOW - DAY / 2), dueAt: new Date(NOW - 30 * DAY) });
    expect(words(await look(acmeCertificates))).to.deep.equal([
      'certificate of mx.example.com: warning: valid for 25 days, but not renewed',
      'certificate of mail.example.com: fault: expired on 2030-01-04T12:00:00.000Z',
    ]);
  });

  it('sums up the names of accounts, and lists the needs of a policy host', async () => {
    const domain = { account: 'a', createdAt: new Date(NOW), validMx: true, testedAt: null };
    for (const id of ['good.example', 'bad.example']) await store.inboundDomains.insert({ id, domain: id, ...domain });
    for (const id of ['mx.example.com', 'mail.example.com', 'mta-sts.good.example'])
      await row(id, { notAfter: new Date(NOW + 60 * DAY) });
    const found = await look(acmeCertificates, { POSTERN_INBOUND__MTA_STS: 'testing' });
    expect(words(found).slice(2)).to.deep.equal([
      'certificate of mta-sts.bad.example: warning: none yet',
      'certificates of accounts: ok: 1 valid',
    ]);
    expect(found[2]?.advice).to.contain('Point mta-sts.bad.example to the addresses of this host');
  });

  it('warns if no name can have a certificate, and leaves this out if ACME is off', async () => {
    const local = { POSTERN_HOSTNAME: 'box', POSTERN_PUBLIC_URL: 'http://127.0.0.1:8080' };
    expect(words(await look(acmeCertificates, local))[0]).to.match(
      /^ACME certificates: warning: no authority issues certificates for hostname/,
    );
    const off = { POSTERN_ACME__ENABLED: 'false' };
    expect((await look(acmeCertificates, off)).map(({ verdict }) => verdict)).to.deep.equal(['skipped']);
    expect((await look(webPorts, off)).map(({ verdict }) => verdict)).to.deep.equal(['skipped']);
  });

  it('connects to the ports of HTTPS and of challenges', async () => {
    const server: Server = createServer((socket) => socket.destroy());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const open = (server.address() as AddressInfo).port;
    const closed = await freePort();
    const found = await look(webPorts, {
      POSTERN_HTTPS__LISTEN: `127.0.0.1:${open}`,
      POSTERN_HTTPS__REDIRECT_LISTEN: `127.0.0.1:${closed}`,
    });
    server.close();
    expect(found.map(({ check, verdict }) => [check, verdict])).to.deep.equal([
      [`port ${closed}`, 'fault'],
      [`port ${open}`, 'ok'],
    ]);
    expect(found[0]?.advice).to.contain('postern-http.socket');
  });
});
