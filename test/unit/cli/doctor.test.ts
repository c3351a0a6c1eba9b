import { X509Certificate } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { expect } from 'chai';
import { withStore } from '../../../src/cli/open.ts';
import { loadSettings } from '../../../src/config.ts';
import type { Resolver } from '../../../src/dns/types.ts';
import { blockLists } from '../../../src/examination/addresses.ts';
import { examine } from '../../../src/examination/examine.ts';
import { type Check, type CheckContext, listenersOf } from '../../../src/examination/finding.ts';
import { certificate, listening, outgoing } from '../../../src/examination/listening.ts';
import { clockCheck, disk, fileModes, nameServers } from '../../../src/examination/machine.ts';
import {
  hostName,
  hostsFile,
  inboundDomainsCheck,
  postmaster,
  reservedDomains,
  senderDomainsCheck,
} from '../../../src/examination/names.ts';
import { ownMail, sending } from '../../../src/examination/own-mail.ts';
import { scanners } from '../../../src/examination/scanners.ts';
import { greet } from '../../../src/examination/smtp-talk.ts';
import { waiting } from '../../../src/examination/waiting.ts';
import { mailOrigin, publicUrl } from '../../../src/examination/web.ts';
import { newSenderDomain } from '../../../src/store/rows/domains.ts';
import type { Store } from '../../../src/store/store.ts';
import { MX_CERT, MX_KEY } from '../../support/carrier-tls.ts';
import { createTestClock } from '../../support/clock.ts';
import { postern } from '../../support/command.ts';
import { startDaemon, type TestDaemon } from '../../support/daemon.ts';
import { startMailSink } from '../../support/mail-sink.ts';
import { startReceiver } from '../../support/receiver.ts';
import { nobodyConnected, startClamd, startMilter, startRspamd, startSpamd } from '../../support/scanners.ts';
import { TEST_KEYS, TEST_TXT } from '../../support/senders.ts';
import { diskDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';
import { KEY as OTHER_KEY } from '../../support/webhook-tls.ts';
import { startZone, type Zone, type ZoneRecords, zoneResolver } from '../../support/zone.ts';

interface Shown {
  readonly check: string;
  readonly verdict: string;
  readonly seen: string;
  readonly advice?: string;
}
const NOW = Date.UTC(2030, 0, 5);
const fixture = (name: string) => new URL(`../../fixtures/tls/${name}.pem`, import.meta.url).pathname;

async function collect(findings: AsyncIterable<Shown>): Promise<Shown[]> {
  const all: Shown[] = [];
  for await (const finding of findings) all.push(finding);
  return all;
}

describe('postern doctor', () => {
  let dir: string;
  let zone: Zone | undefined;
  let daemon: TestDaemon | undefined;
  let other: Server | undefined;
  beforeEach(async () => {
    dir = await diskDir();
  });
  afterEach(async () => {
    await daemon?.stop();
    await zone?.stop();
    other?.close();
    daemon = zone = other = undefined;
  });

  const port = (url: string) => new URL(url).port;
  const verdicts = (findings: readonly Shown[]) =>
    Object.fromEntries(findings.map(({ check, verdict }) => [check, verdict]));

  async function local(): Promise<Record<string, string>> {
    zone = await startZone({ com: { NS: ['ns.example'] } });
    daemon = await startDaemon({ POSTERN_DNS__SERVERS: zone.server }, { dir });
    return {
      POSTERN_DATA_DIR: dir,
      POSTERN_HOSTNAME: 'in.postern.test',
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
      POSTERN_SPOOL__MIN_FREE_BYTES: '0',
      POSTERN_SMTP__LISTEN: `127.0.0.1:${daemon.smtp.port}`,
      POSTERN_HTTP__LISTEN: `127.0.0.1:${port(daemon.base)}`,
    };
  }

  it('finds no error on a fresh machine with a running daemon, and exits with 0', async () => {
    const env = await local();
    const ran = await postern(['doctor', '--json'], env);
    const found: Shown[] = ran.json();
    expect(found.filter(({ verdict }) => verdict === 'fault')).to.deep.equal([]);
    expect(ran.code).to.equal(0);
    expect(verdicts(found)).to.include({
      daemon: 'ok',
      'store (embedded)': 'ok',
      disk: 'ok',
      [`SMTP 127.0.0.1:${daemon?.smtp.port}`]: 'ok',
      'inbound domains': 'skipped',
      'outbound port 25': 'skipped',
    });
  });

  it('ends with the next step: the worst finding first, then the missing steps of a new host', async () => {
    const env = await local();
    const faulty = await postern(['doctor'], { ...env, POSTERN_SMTP__LISTEN: '127.0.0.1:1' });
    expect(faulty.out).to.match(/fault.*\.\nnext: SMTP 127\.0\.0\.1:1: .+\n$/);
    const { out } = await postern(['doctor'], env);
    // A machine may have a finding of its own, such as a clock that nothing sets.
    const own = (await postern(['doctor', '--json'], env)).json().find(({ verdict }: Shown) => verdict === 'warning');
    expect(out.trim().split('\n').at(-1)).to.equal(
      own ? `next: ${own.check}: ${own.advice}` : 'next: postern domain add in.example.com',
    );
  });

  it('sends each scanner test messages that it must detect', async () => {
    const [rspamd, spamd, clamd, milter] = [
      await startRspamd(),
      await startSpamd(),
      await startClamd(),
      await startMilter(),
    ];
    try {
      spamd.behave('nonsense');
      const found = await look(scanners, {
        env: {
          POSTERN_SCAN__RSPAMD: `http://${rspamd.address}`,
          POSTERN_SCAN__SPAMD: spamd.address,
          POSTERN_SCAN__CLAMD: clamd.address,
          // It does not decode base64.
          POSTERN_SCAN__MILTERS: `virus=${milter.address}`,
        },
      });
      expect(verdicts(found)).to.deep.equal({
        'scanner rspamd': 'ok',
        'scanner spamd': 'fault',
        'scanner clamd': 'ok',
        'scanner milter-1': 'warning',
      });
      expect(found[0]?.seen).to.contain('GTUBE');
      expect(found[3]?.seen).to.contain('did not find');
      await Promise.all([rspamd, spamd, clamd, milter].map(nobodyConnected));
    } finally {
      await Promise.all([rspamd, spamd, clamd, milter].map((scanner) => scanner.stop()));
    }
  });

  it('speaks the PROXY protocol to a listener that expects it', async () => {
    const proxied = { POSTERN_SMTP__PROXY_PROTOCOL: '127.0.0.1' };
    daemon = await startDaemon(proxied, { dir });
    const at = `127.0.0.1:${daemon.smtp.port}`;
    const [found] = await look(listening, {
      env: { ...proxied, POSTERN_SMTP__LISTEN: at, POSTERN_HOSTNAME: 'in.postern.test' },
    });
    expect(found).to.include({ check: `SMTP ${at}`, verdict: 'ok' });
  });

  it('prints findings and remedies, and exits with 1 when the daemon is down', async () => {
    const env = await local();
    await daemon?.stop();
    daemon = undefined;
    const { code, out } = await postern(['doctor'], env);
    expect(code).to.equal(1);
    expect(out).to.match(/FAULT {4}daemon: no answer from http:\/\/127\.0\.0\.1:\d+\/readyz\n {9}Start the daemon/);
    expect(out).to.match(/^\d+ faults?, \d+ warnings?\.$/m);
  });

  it('creates no files where the daemon has not run yet', async () => {
    zone = await startZone({});
    const { out } = await postern(['doctor'], {
      POSTERN_DATA_DIR: join(dir, 'new'),
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_SMTP__LISTEN: '127.0.0.1:9',
      POSTERN_HTTP__LISTEN: '127.0.0.1:9',
    });
    expect(out).to.contain('the daemon has not run here yet');
    expect(existsSync(join(dir, 'new'))).to.equal(false);
  });

  it('continues without the store if it is unavailable, and reports it once', async () => {
    zone = await startZone({ 'gone.example': { A: ['127.0.0.1'] } });
    const ran = await postern(['doctor', '--json'], {
      POSTERN_DATA_DIR: dir,
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_STORE__URL: 'mongodb://127.0.0.1:9/?serverSelectionTimeoutMS=200',
      POSTERN_STORE__TIMEOUT_MS: '300',
      POSTERN_SMTP__LISTEN: '127.0.0.1:9',
      POSTERN_HTTP__LISTEN: '127.0.0.1:9',
    });
    const found: Shown[] = ran.json();
    expect(found.filter(({ check }) => check.startsWith('store')).map(({ verdict }) => verdict)).to.deep.equal([
      'fault',
    ]);
    expect(verdicts(found)).to.include({ 'inbound domains': 'skipped', disk: 'ok' });
    expect(found.find(({ check }) => check === 'inbound domains')?.seen).to.equal('the store is unavailable');
    expect(ran.code).to.equal(1);
  });

  it('reports name servers that do not answer', async () => {
    const env = await local();
    await zone?.stop();
    const ran = await postern(['doctor', '--json'], env);
    const found: Shown[] = ran.json();
    expect(verdicts(found)).to.include({ [`resolver ${zone?.server}`]: 'fault' });
    zone = undefined;
    expect(ran.code).to.equal(1);
  });

  it('treats a host with the settings of the package as one on the internet, whose socket unit opens port 25', async () => {
    zone = await startZone({ com: { NS: ['ns.example'] }, 'mx.example.com': { A: ['127.0.0.1'] } });
    const file = new URL('../../../config/production.example.yaml', import.meta.url).pathname;
    const found: Shown[] = (
      await postern(['doctor', '--json', '--config', file], {
        POSTERN_DATA_DIR: dir,
        POSTERN_DNS__SERVERS: zone.server,
        POSTERN_HTTP__LISTEN: '127.0.0.1:9',
      })
    ).json();
    expect(verdicts(found)).to.include({
      'host name': 'fault', // the name of a host on the internet is no address of the machine itself
      'public URL': 'fault',
      certificate: 'warning',
      'return domain bounces.mx.example.com': 'warning',
    });
    expect(found.map(({ check }) => check))
      .to.include('SMTP [::]:25')
      .and.not.include('port 25');
  });

  it('tests port 25 of the mail server given by --reach', async () => {
    const env = await local();
    zone?.set({
      com: { NS: ['ns.example'] },
      'there.example': { MX: [{ exchange: 'mx.there.example', priority: 5 }] },
      'mx.there.example': { A: ['127.66.55.44'] },
    });
    const found: Shown[] = (await postern(['doctor', '--json', '--reach', 'there.example'], env)).json();
    const reach = found.find(({ check }) => check === 'outbound port 25');
    expect(reach).to.include({ verdict: 'fault' });
    expect(reach?.seen).to.contain('cannot reach mx.there.example (127.66.55.44)');
  });

  it('exits with 64 for unknown arguments', async () => {
    expect((await postern(['doctor', 'please'], { POSTERN_DATA_DIR: dir })).code).to.equal(64);
  });

  interface Given {
    readonly zone?: ZoneRecords;
    readonly env?: Readonly<Record<string, string>>;
    readonly store?: Store;
    readonly queue?: CheckContext['queue'];
    readonly at?: number;
    readonly root?: string;
    readonly resolver?: Resolver;
    readonly file?: string;
  }

  /** The world of an operator of a public host. */
  function worldOf(given: Given = {}): CheckContext {
    const { settings } = loadSettings(undefined, {
      POSTERN_DATA_DIR: dir,
      POSTERN_HOSTNAME: 'mx.example.com',
      POSTERN_PUBLIC_URL: 'https://mail.example.com',
      POSTERN_SMTP__LISTEN: '0.0.0.0:25',
      ...given.env,
    });
    return {
      settings,
      resolver: given.resolver ?? zoneResolver(given.zone ?? {}),
      store: given.store,
      noStore: 'none here',
      queue: given.queue,
      noQueue: 'none here',
      listeners: listenersOf(settings),
      clock: createTestClock(given.at ?? NOW),
      settingsFile: given.file,
      reach: undefined,
      root: given.root ?? dir,
    };
  }

  /** One look, with settings as an operator of a public host has them. */
  async function look(check: Check, given: Given = {}): Promise<readonly Shown[]> {
    return collect(check.run(worldOf(given)));
  }

  it('finds addresses on block lists that answer this resolver', async () => {
    const listed = { A: ['127.0.0.2'] };
    const zone: ZoneRecords = {
      'mx.example.com': { A: ['25.66.0.10', '10.0.0.1'] },
      '2.0.0.127.zen.spamhaus.org': listed,
      '2.0.0.127.bl.spamcop.net': listed,
    };
    const seen = async (more: ZoneRecords, env = {}) =>
      (await look(blockLists, { zone: { ...zone, ...more }, env })).map(({ verdict, seen: text }) => [verdict, text]);
    expect(await seen({})).to.deep.equal([['ok', 'no address is on zen.spamhaus.org or bl.spamcop.net']]);
    expect(await seen({ '10.0.66.25.bl.spamcop.net': listed })).to.deep.equal([['warning', 'lists 25.66.0.10']]);
    const refused = { A: ['127.255.255.254'] };
    expect(await seen({ '2.0.0.127.zen.spamhaus.org': refused, '10.0.66.25.zen.spamhaus.org': refused })).to.deep.equal(
      [['ok', 'no address is on bl.spamcop.net']],
    );
    expect(await seen({ '2.0.0.127.zen.spamhaus.org': {}, '2.0.0.127.bl.spamcop.net': {} })).to.deep.equal([
      ['skipped', 'zen.spamhaus.org and bl.spamcop.net do not answer this resolver'],
    ]);
    const relayed = { POSTERN_OUTBOUND__RELAY: 'smtp://relay.test' };
    expect(await seen({}, relayed)).to.deep.equal([['skipped', 'a relay sends all mail']]);
  });

  describe('checks that fail or hang', () => {
    const quick: Check = {
      name: 'quick',
      async *run() {
        yield { check: 'quick', verdict: 'ok', seen: 'done' };
      },
    };

    it('stop after a minute; their findings so far and the other checks are reported', async () => {
      const clock = createTestClock(NOW);
      const slow: Check = {
        name: 'slow',
        async *run() {
          yield { check: 'slow first', verdict: 'ok', seen: 'seen in time' };
          await new Promise(() => {});
        },
      };
      const told: Shown[] = [];
      for await (const finding of examine({ world: { ...worldOf(), clock }, checks: [slow, quick] })) {
        told.push(finding);
        if (told.length === 1) setImmediate(() => clock.advance(60_000));
      }
      expect(told.map(({ check, verdict, seen }) => [check, verdict, seen])).to.deep.equal([
        ['slow first', 'ok', 'seen in time'],
        ['slow', 'warning', 'gave up after 60 s'],
        ['quick', 'ok', 'done'],
      ]);
    });

    it('that throw are reported as errors, and the others continue', async () => {
      const broken: Check = {
        name: 'broken',
        // biome-ignore lint/correctness/useYield: it fails before it finds anything
        async *run() {
          throw new Error('no such file');
        },
      };
      const told = await collect(examine({ world: worldOf(), checks: [broken, quick] }));
      expect(told.map(({ check, verdict, seen }) => [check, verdict, seen])).to.deep.equal([
        ['broken', 'fault', 'no such file'],
        ['quick', 'ok', 'done'],
      ]);
    });
  });

  describe('the host name', () => {
    const good: ZoneRecords = {
      'mx.example.com': { A: ['192.0.2.1'], AAAA: ['2001:db8::1'] },
      '1.2.0.192.in-addr.arpa': { PTR: ['mx.example.com'] },
    };
    const v6 = '1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa';

    it('passes if it is the reverse DNS of every address', async () => {
      expect(verdicts(await look(hostName, { zone: { ...good, [v6]: { PTR: ['MX.example.com.'] } } }))).to.deep.equal({
        'host name': 'ok',
        'reverse DNS 192.0.2.1': 'ok',
        'reverse DNS 2001:db8::1': 'ok',
      });
    });

    it('fails if one address has another, or none', async () => {
      const found = await look(hostName, { zone: { ...good, [v6]: { PTR: ['host-7.provider.example'] } } });
      expect(verdicts(found)).to.include({ 'reverse DNS 192.0.2.1': 'ok', 'reverse DNS 2001:db8::1': 'fault' });
      expect(found.at(-1)?.seen).to.equal('points to host-7.provider.example, not mx.example.com');
      expect(found.at(-1)?.advice).to.contain('PTR record to mx.example.com');
      expect((await look(hostName, { zone: good })).at(-1)?.seen).to.equal('no PTR record');
    });

    it('fails without an address or a dot, and is unknown when the DNS is unavailable', async () => {
      expect(verdicts(await look(hostName))).to.deep.equal({ 'host name': 'fault' });
      expect(verdicts(await look(hostName, { env: { POSTERN_HOSTNAME: 'mx' } }))).to.deep.equal({
        'host name': 'fault',
      });
      expect(verdicts(await look(hostName, { zone: { 'mx.example.com': { fails: 'timeout' } } }))).to.deep.equal({
        'host name': 'skipped',
      });
    });

    it('needs a postmaster address that is read', async () => {
      const verdict = async (env: Record<string, string>) => (await look(postmaster, { env }))[0]?.verdict;
      expect(await verdict({ POSTERN_SMTP__LISTEN: '0.0.0.0:25' })).to.equal('warning');
      expect(
        await verdict({ POSTERN_SMTP__LISTEN: '0.0.0.0:25', POSTERN_SMTP__POSTMASTER: 'ops@example.org' }),
      ).to.equal('ok');
      expect(await verdict({ POSTERN_SMTP__LISTEN: '127.0.0.1:2525' })).to.equal('skipped');
    });

    it('leads to this host for displayed mail of the console, through a proxy that passes the name on', async () => {
      let status = 421;
      const proxy = createHttpServer((_, response) => response.writeHead(status).end());
      await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
      const origin = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
      const verdict = async (env: Record<string, string>) => (await look(mailOrigin, { env }))[0]?.verdict;
      const set = { POSTERN_PUBLIC_URL: 'http://mx.example.com', POSTERN_CONSOLE__MAIL_ORIGIN: origin };
      expect(await verdict({})).to.equal('skipped');
      expect(await verdict(set)).to.equal('ok');
      status = 200;
      expect(await verdict(set)).to.equal('fault');
      proxy.closeAllConnections();
      await new Promise((resolve) => proxy.close(resolve));
      expect(await verdict(set)).to.equal('warning');
    });

    it('is not needed for a public URL that is not public', async () => {
      const verdict = async (env: Record<string, string>, zone: ZoneRecords = {}) =>
        (await look(publicUrl, { zone, env }))[0]?.verdict;
      expect(await verdict({ POSTERN_PUBLIC_URL: '' })).to.equal('warning');
      expect(await verdict({}, {})).to.equal('fault');
      expect(await verdict({}, { 'mail.example.com': { fails: 'servfail' } })).to.equal('skipped');
    });
  });

  describe('the public URL', () => {
    const NAME = 'mail.example.com';
    const zone: ZoneRecords = { [NAME]: { A: ['127.0.0.1'] } };
    /** What is found while this server, if any, stands at the public URL, in front of our daemon. */
    async function found(at: string, env: Record<string, string> = {}): Promise<Shown> {
      daemon ??= await startDaemon({}, { dir });
      const [first] = await look(publicUrl, {
        zone,
        env: {
          POSTERN_PUBLIC_URL: at.replace('127.0.0.1', NAME),
          POSTERN_HTTP__LISTEN: `127.0.0.1:${port(daemon.base)}`,
          ...env,
        },
      });
      if (!first) throw new Error('nothing was found');
      return first;
    }

    it('fails if nothing answers there, for example a stopped web server', async () => {
      const closed = await startReceiver();
      await closed.stop();
      for (const scheme of ['http', 'https']) {
        const { verdict, seen, advice } = await found(`${scheme}://127.0.0.1:${closed.port}`);
        expect(verdict).to.equal('fault');
        expect(seen).to.match(/^mail\.example\.com at 127\.0\.0\.1: .*ECONNREFUSED/);
        expect(advice).to.contain('systemctl status nginx');
      }
    });

    it('fails if another server answers, or if the web server does not reach the daemon', async () => {
      const receiver = await startReceiver();
      try {
        for (const [how, words] of [
          [{ status: 200, body: 'Welcome to nginx!' }, /another server answers \(200 Welcome/],
          [{ status: 404 }, /another server answers \(404\)/],
          [{ status: 200, body: '{"status":"ok"}' }, /another server answers/],
          [{ redirect: 'https://www.example.com/', status: 301 }, /301, to https:\/\/www\.example\.com/],
          [{ status: 502 }, /the web server answers 502/],
        ] as const) {
          receiver.answer(how);
          const { verdict, seen } = await found(`http://127.0.0.1:${receiver.port}`);
          expect(verdict, seen).to.equal('fault');
          expect(seen).to.match(words);
        }
      } finally {
        await receiver.stop();
      }
    });

    it('fails if another Postern answers, unless hosts share the work', async () => {
      const neighbour = await startDaemon();
      try {
        expect(await found(neighbour.base)).to.include({
          verdict: 'fault',
          seen: 'mail.example.com at 127.0.0.1: another Postern answers',
        });
        const shared = { POSTERN_INBOUND__MX_HOSTS: 'mx1.example.com,mx2.example.com' };
        expect((await found(neighbour.base, shared)).verdict).to.equal('warning');
      } finally {
        await neighbour.stop();
      }
    });

    it('fails if its certificate is not trusted', async () => {
      const secure = await startReceiver({ tls: { cert: MX_CERT, key: MX_KEY } });
      try {
        const { verdict, advice } = await found(`https://127.0.0.1:${secure.port}`);
        expect(verdict).to.equal('fault');
        expect(advice).to.contain('certificate');
      } finally {
        await secure.stop();
      }
    });

    it('passes for this daemon, with a warning if others cannot use that address', async () => {
      daemon = await startDaemon({}, { dir });
      expect(await found(daemon.base)).to.include({
        verdict: 'warning',
        seen: `http://${NAME}:${port(daemon.base)} reaches this daemon, but by an address that others cannot reach (127.0.0.1)`,
      });
    });
  });

  describe('the hosts file', () => {
    const records: ZoneRecords = { 'mx.example.com': { A: ['192.0.2.1'] }, 'mail.example.com': { A: ['192.0.2.1'] } };
    const saysWith = async (text: string) => {
      mkdirSync(join(dir, 'etc'), { recursive: true });
      writeFileSync(join(dir, 'etc/hosts'), text);
      return look(hostsFile, { zone: records });
    };

    it('may name this host as the DNS does, or not at all', async () => {
      for (const text of ['', '127.0.0.1 localhost\n', '192.0.2.1 mx.example.com mx\n'])
        expect(verdicts(await saysWith(text)), text).to.deep.equal({ 'hosts file': 'ok' });
    });

    it('gets a warning if it sends our names elsewhere, or to this machine as installers of Debian do', async () => {
      for (const address of ['127.0.1.1', '203.0.113.9', '::1']) {
        const [first] = await saysWith(`${address} MX.example.com mx\n`);
        expect(first).to.include({ verdict: 'warning' });
        expect(first?.seen).to.contain(`says ${address} for mx.example.com; the DNS says 192.0.2.1`);
      }
      expect(await saysWith('127.0.1.1 mail.example.com mx.example.com')).to.have.length(2);
    });

    it('is reported if a resolver answers from it with an address of this machine', async () => {
      const [first] = await look(hostName, { zone: { 'mx.example.com': { A: ['127.0.1.1'] } } });
      expect(first).to.include({ verdict: 'fault' });
      expect(first?.seen).to.contain('127.0.1.1');
    });
  });

  describe('the greeting of a mail server', () => {
    it('is read, and its certificate after STARTTLS', async () => {
      daemon = await startDaemon(
        { POSTERN_SMTP__TLS__CERT: fixture('first.cert'), POSTERN_SMTP__TLS__KEY: fixture('first.key') },
        { dir },
      );
      const seen = await greet({ ...daemon.smtp, as: 'mx.example.com' });
      expect(seen).to.include({ greeting: '220 in.postern.test ESMTP Postern', starttls: true });
      const installed = new X509Certificate(readFileSync(fixture('first.cert')));
      expect(!(seen instanceof Error) && seen.certificate?.fingerprint256).to.equal(installed.fingerprint256);
    });

    it('gives an error if it is missing, incomplete, or reset at any time', async () => {
      for (const [lines, wanted] of [
        [[], /without a greeting/],
        [['220 there\r\n'], /closed|ECONNRESET/],
        [['220 there\r\n', '250-there\r\n250 STARTTLS\r\n'], /closed|ECONNRESET/],
        [['220 there\r\n', '250-there\r\n250 STARTTLS\r\n', '220 go\r\n'], /closed|ECONNRESET/],
      ] as const) {
        const left = [...lines];
        const server = createServer((socket) => {
          socket.on('error', () => {});
          const next = () => {
            const line = left.shift();
            if (line === undefined) socket.resetAndDestroy();
            else socket.write(line);
          };
          socket.on('data', next);
          if (lines.length === 0) socket.end();
          else next();
        });
        await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
        const seen = await greet({
          host: '127.0.0.1',
          port: (server.address() as AddressInfo).port,
          as: 'mx.example.com',
        });
        expect(seen).to.be.instanceOf(Error);
        expect(String(seen)).to.match(wanted);
        server.close();
      }
    });
  });

  describe('outbound port 25', () => {
    const closed = { A: ['127.66.55.44'] };

    it('is tested with the mail server of a known recipient, and never with its own', async () => {
      const records: ZoneRecords = {
        'boss.example': { MX: [{ exchange: 'mx.boss.example', priority: 5 }] },
        'mx.boss.example': closed,
        'own.example': { MX: [{ exchange: 'mx.example.com', priority: 5 }] },
        'mx.example.com': closed,
      };
      const seen = async (address: string) =>
        (await look(outgoing, { zone: records, env: { POSTERN_SMTP__POSTMASTER: address } }))[0];
      expect(await seen('me@boss.example')).to.include({
        verdict: 'fault',
        seen: 'cannot reach mx.boss.example (127.66.55.44): connect ECONNREFUSED 127.66.55.44:25',
      });
      expect(await seen('me@own.example')).to.include({ verdict: 'skipped' });
    });

    it('is open if one of them answers', async () => {
      const receiver = await startMailSink();
      try {
        const zone: ZoneRecords = { 'boss.example': { A: ['127.0.0.1'] } };
        const env = { POSTERN_SMTP__POSTMASTER: 'me@boss.example', POSTERN_OUTBOUND__MX_PORT: String(receiver.port) };
        expect((await look(outgoing, { zone, env }))[0]).to.include({ verdict: 'ok' });
      } finally {
        await receiver.stop();
      }
    });

    it('is not needed with a relay, which must answer', async () => {
      const receiver = await startMailSink();
      const env = { POSTERN_OUTBOUND__RELAY: `smtp://127.0.0.1:${receiver.port}` };
      const check = `outbound relay 127.0.0.1:${receiver.port}`;
      expect((await look(outgoing, { env }))[0]).to.include({ check, verdict: 'ok' });
      await receiver.stop();
      expect((await look(outgoing, { env }))[0]).to.include({ check, verdict: 'fault' });
    });
  });

  describe('the queue', () => {
    const queueOf = (parts: {
      readonly endpoints?: readonly object[];
      readonly ages?: readonly object[];
      readonly count?: object;
      readonly missing?: number;
    }) => ({
      copies: { missing: async () => parts.missing ?? 0 },
      endpoints: async () => (parts.endpoints ?? []) as any,
      ages: async () => (parts.ages ?? []) as any,
      count: async () => ({ waiting: 0, delivered: 0, dead: 0, dropped: 0, held: 0, ...parts.count }) as any,
    });

    it('passes when nothing waits', async () => {
      expect(await look(waiting, { queue: queueOf({}) })).to.deep.equal([
        { check: 'queue', verdict: 'ok', seen: 'no waiting deliveries' },
      ]);
    });

    it('warns of mail that is in no second place', async () => {
      const [found] = await look(waiting, { queue: queueOf({ missing: 3 }) });
      expect(found).to.include({ check: 'copies', verdict: 'warning' });
      expect(found?.seen).to.equal('3 messages have no copy in the store yet (queue.copies)');
    });

    it('names failing, deleted and slow endpoints, with waiting mail by age, without secrets of the URL', async () => {
      const endpoint = (url: string, phase: string, more = {}) => ({
        account: 'a1',
        url,
        kind: 'inbound',
        waiting: 3,
        nextDue: NOW,
        memory: JSON.stringify({ phase, since: NOW - 600_000, probeAt: NOW, gap: 1000, ...more }),
      });
      const aged = (url: string, minutes: number) => ({ account: 'a1', url, oldest: NOW - minutes * 60_000 });
      const endpoints = [
        endpoint('https://user:secret@down.example/mail?token=secret', 'open'),
        endpoint('https://gone.example/mail', 'paused'),
        endpoint('https://slow.example/mail', 'closed'),
        endpoint('https://busy.example/mail', 'closed'),
        endpoint('https://held.example/mail', 'closed', {
          hold: { by: 'account', since: NOW, until: NOW + 3_600_000 },
        }),
        { ...endpoint('smtp:there.example', 'open'), kind: 'outbound' },
      ];
      const found = await look(waiting, {
        queue: queueOf({
          endpoints,
          ages: endpoints.map(({ url }) => aged(url, url.includes('slow') ? 300 : 9)),
          count: { waiting: 18, held: 2 },
        }),
      });
      expect(found.map(({ check, verdict, seen }) => [check, verdict, seen])).to.deep.equal([
        ['endpoint https://down.example/mail', 'warning', 'down for 10 min: 3 deliveries wait, the oldest for 9 min'],
        [
          'endpoint https://gone.example/mail',
          'warning',
          'answered 410 (gone) 10 min ago: 3 deliveries wait, the oldest for 9 min',
        ],
        ['endpoint https://slow.example/mail', 'warning', 'up, but 3 deliveries wait, the oldest for 5 h'],
        [
          'queue',
          'ok',
          '18 deliveries wait, the oldest for 5 h; 9 for endpoints that are down; 3 for paused endpoints; 2 held by routes (postern queue list --state held)',
        ],
      ]);
    });

    it('of a real daemon shows an endpoint that is down, and nothing after it has recovered', async () => {
      const env = await local();
      const receiver = await startReceiver();
      try {
        await daemon?.api('/inbound/add-domain', { domain: 'in.example.org' });
        const route = { domain: 'in.example.org', pattern: '*', url: receiver.url };
        await daemon?.api('/inbound/add-route', route);
        receiver.answer({ status: 503 });
        const send = { raw_message: 'From: a@b.example\r\n\r\nHello.\r\n', to: ['x@in.example.org'] };
        const doctor = async () =>
          ((await postern(['doctor', '--json'], env)).json() as Shown[]).find(({ check }) =>
            check.startsWith('endpoint'),
          );
        const down = await until('the endpoint to be down', async () => {
          await daemon?.api('/inbound/send-raw', send);
          return doctor();
        });
        expect(down).to.include({ check: `endpoint ${receiver.url}`, verdict: 'warning' });
        expect(down.seen).to.match(/^down for \d+ s: \d+ deliver(?:y waits|ies wait), the oldest for \d+ s$/);
        receiver.answer({ status: 200 });
        await daemon?.api('/endpoints/retry', { url: receiver.url });
        await until('the endpoint to be up', async () => (await doctor()) === undefined);
      } finally {
        await receiver.stop();
      }
    });
  });

  describe('the domains', () => {
    const withRows = (use: (store: Store) => Promise<void>) =>
      withStore(loadSettings(undefined, { POSTERN_DATA_DIR: dir }).settings, use);
    const at = new Date(NOW);

    it('have an MX that names us, or get advice on the record to publish', () =>
      withRows(async (store) => {
        for (const domain of ['good.example', 'other.example', 'silent.example'])
          await store.inboundDomains.insert({
            id: domain,
            account: 'a',
            domain,
            createdAt: at,
            validMx: true,
            testedAt: null,
          });
        const records: ZoneRecords = {
          'good.example': { MX: [{ exchange: 'mx2.example.com', priority: 1 }] },
          'other.example': { MX: [{ exchange: 'mx.old.example', priority: 1 }] },
          'silent.example': { fails: 'servfail' },
        };
        const found = await look(inboundDomainsCheck, {
          store,
          zone: records,
          env: { POSTERN_INBOUND__MX_HOSTS: 'mx2.example.com' },
        });
        expect(verdicts(found)).to.deep.equal({
          'MX good.example': 'ok',
          'MX other.example': 'fault',
          'MX silent.example': 'skipped',
        });
        expect(found.find(({ check }) => check === 'MX other.example')?.seen).to.contain('mx.old.example');
      }));

    it('of the operator are reported if an account has them, as an error if there are other accounts', () =>
      withRows(async (store) => {
        const add = (id: string, account: string) =>
          store.inboundDomains.insert({ id, account, domain: id, createdAt: at, validMx: true, testedAt: at });
        const accountOf = (id: string, number: number) =>
          store.accounts.insert({ id, name: id, number, createdAt: at });
        await accountOf('a', 1);
        await add('fine.example', 'a');
        expect(verdicts(await look(reservedDomains, { store }))).to.deep.equal({ 'reserved domains': 'ok' });
        await add('bounces.mx.example.com', 'a');
        await add('co.uk', 'a');
        await add('gmail.com a', 'a');
        expect(verdicts(await look(reservedDomains, { store }))).to.deep.equal({
          'inbound domain bounces.mx.example.com': 'warning',
          'inbound domain co.uk': 'warning',
        });
        await accountOf('b', 2);
        expect(verdicts(await look(reservedDomains, { store }))).to.deep.equal({
          'inbound domain bounces.mx.example.com': 'fault',
          'inbound domain co.uk': 'fault',
        });
      }));

    it('of the operator are found beyond one page, including claims', () =>
      withRows(async (store) => {
        const add = (id: string) =>
          store.inboundDomains.insert({ id, account: 'a', domain: id, createdAt: at, validMx: true, testedAt: at });
        const fine = Array.from({ length: 501 }, (_, n) => `a${n}.example`);
        await Promise.all([...fine, 'a1.example b', 'bounces.mx.example.com', 'co.uk'].map(add));
        expect(verdicts(await look(reservedDomains, { store }))).to.deep.equal({
          'inbound domain bounces.mx.example.com': 'warning',
          'inbound domain co.uk': 'warning',
        });
        const zone = Object.fromEntries(
          fine.map((name) => [name, { MX: [{ exchange: 'mx.example.com', priority: 1 }] }]),
        );
        const found = await look(inboundDomainsCheck, { store, zone });
        expect(found).to.have.length(501);
        expect(found.at(-1)).to.deep.include({
          verdict: 'skipped',
          seen: 'more than 500; only the first 500 were checked',
        });
      }));

    it('that send mail have SPF and DKIM, each checked once for all accounts', () =>
      withRows(async (store) => {
        for (const account of ['a', 'b'])
          await store.senderDomains.insert(newSenderDomain(account, 'shop.example', at));
        await store.senderDomains.insert(newSenderDomain('a', 'new.example', at));
        await store.domainKeys.insert({ id: 'shop.example', ...TEST_KEYS, createdAt: at });
        const zone: ZoneRecords = {
          'shop.example': { TXT: ['v=spf1 include:spf.mx.example.com ~all'] },
          'postern._domainkey.shop.example': { TXT: [TEST_TXT.replace('p=', 'p=x')] },
        };
        const found = await look(senderDomainsCheck, { store, zone });
        expect(found.map(({ check, verdict }) => `${check} ${verdict}`).sort()).to.deep.equal([
          'DKIM new.example skipped',
          'DKIM shop.example warning',
          'SPF new.example warning',
          'SPF shop.example ok',
        ]);
      }));

    it('with correct records do not hide that mail is unsigned, because no account has verified the domain', () =>
      withStore(loadSettings(undefined, { POSTERN_DATA_DIR: dir }).settings, async (store) => {
        const row = newSenderDomain('a', 'shop.example', new Date(NOW));
        await store.senderDomains.insert(row);
        await store.domainKeys.insert({ id: 'shop.example', ...TEST_KEYS, createdAt: new Date(NOW) });
        const zone: ZoneRecords = {
          'shop.example': { TXT: ['v=spf1 include:spf.mx.example.com ~all'] },
          'postern._domainkey.shop.example': { TXT: [TEST_TXT] },
        };
        const signing = async (env = {}) => (await look(senderDomainsCheck, { store, zone, env })).at(-1);
        expect(await signing()).to.deep.equal({
          check: 'signing shop.example',
          verdict: 'warning',
          seen: 'not verified by any account: mail From it is unsigned',
          advice:
            'If it is yours, run postern sender add shop.example; otherwise its owner must verify it with /senders/verify-domain.',
        });
        expect(await signing({ POSTERN_OUTBOUND__SIGNING_DOMAIN: 'example.com' })).to.include({
          verdict: 'warning',
          seen: 'not verified by any account: mail From it is signed only by example.com',
        });
        expect(await signing({ POSTERN_OUTBOUND__SIGNING_DOMAIN: 'shop.example' })).to.include({ verdict: 'ok' });
        await store.senderDomains.change({ id: row.id }, { verifiedAt: new Date(NOW) });
        expect(await signing()).to.include({ check: 'signing shop.example', verdict: 'ok' });
      }));

    it('of system mail cover its senders and have its key: the host name, the return domain, the signing domain', () =>
      withStore(loadSettings(undefined, { POSTERN_DATA_DIR: dir }).settings, async (store) => {
        const env = { POSTERN_OUTBOUND__SIGNING_DOMAIN: 'example.com' };
        const hosts: ZoneRecords = { 'mx.example.com': { A: ['192.0.2.10'], AAAA: ['2001:db8::10'] } };
        const own = async (zone: ZoneRecords, more = {}) =>
          (await look(ownMail, { store, zone, env: { ...env, ...more } })).map(
            ({ check, verdict, seen }) => `${check}: ${verdict}: ${seen}`,
          );
        expect(await own(hosts)).to.deep.equal([
          'SPF mx.example.com: warning: no SPF record',
          'SPF bounces.mx.example.com: warning: no SPF record',
          'DKIM example.com: warning: no key yet',
        ]);
        await store.domainKeys.insert({ id: 'example.com', ...TEST_KEYS, createdAt: new Date(NOW) });
        const good: ZoneRecords = {
          'mx.example.com': { ...hosts['mx.example.com'], TXT: ['v=spf1 a -all'] },
          'bounces.mx.example.com': { TXT: ['v=spf1 ip4:192.0.2.10 -all'] },
          'postern._domainkey.example.com': { TXT: [TEST_TXT] },
        };
        expect(await own(good)).to.deep.equal([
          'SPF mx.example.com: ok: pass for 192.0.2.10, 2001:db8::10',
          'SPF bounces.mx.example.com: warning: fail for 2001:db8::10',
          'DKIM example.com: ok: valid',
        ]);
        const relay = { POSTERN_OUTBOUND__RELAY: 'smtp://relay.example', POSTERN_MAIL__FROM: 'a@shop.example' };
        expect(await own(good, relay), 'a relay has other addresses').to.deep.equal([
          'SPF mx.example.com: ok: pass for 192.0.2.10, 2001:db8::10',
          'SPF shop.example: warning: no SPF record',
          'SPF bounces.mx.example.com: ok: v=spf1 ip4:192.0.2.10 -all',
          'DKIM shop.example: warning: no key yet',
          'DKIM example.com: ok: valid',
        ]);
        const two = { 'mx.example.com': { ...hosts['mx.example.com'], TXT: ['v=spf1 a -all', 'v=spf1 mx -all'] } };
        expect((await own({ ...good, ...two }))[0]).to.equal('SPF mx.example.com: warning: more than one SPF record');
      }));

    it('of our own accept bounces and are included by others', async () => {
      const zone: ZoneRecords = {
        'bounces.mx.example.com': { MX: [{ exchange: 'mx.example.com', priority: 1 }] },
        'spf.mx.example.com': { TXT: ['v=spf1 ip4:192.0.2.1 -all'] },
      };
      expect((await look(sending, { zone })).map(({ verdict }) => verdict)).to.deep.equal(['ok', 'ok']);
      const addressed = { 'mx.example.com': { A: ['192.0.2.1'] } };
      const found = await look(sending, { zone: addressed });
      expect(found.map(({ verdict }) => verdict)).to.deep.equal(['warning', 'warning']);
      expect(found[1]?.advice).to.contain('"v=spf1 ip4:192.0.2.1 -all"');
    });

    it('of our own get no advice to publish `v=spf1 -all` while the host has no address in the DNS', async () => {
      const found = [...(await look(sending)), ...(await look(ownMail))].filter(({ check }) => check.startsWith('SPF'));
      expect(found.map(({ check, verdict }) => [check, verdict])).to.deep.equal([
        ['SPF include spf.mx.example.com', 'skipped'],
        ['SPF mx.example.com', 'skipped'],
        ['SPF bounces.mx.example.com', 'skipped'],
      ]);
      expect(JSON.stringify(found)).to.not.contain('-all');
    });
  });

  describe('the certificate', () => {
    const pem = (name: string) => readFileSync(`test/fixtures/tls/${name}.pem`, 'utf8');
    const files = (cert: string, key: string) => {
      writeFileSync(join(dir, 'cert.pem'), cert);
      writeFileSync(join(dir, 'key.pem'), key);
      return { POSTERN_SMTP__TLS__CERT: join(dir, 'cert.pem'), POSTERN_SMTP__TLS__KEY: join(dir, 'key.pem') };
    };

    it('passes if it is valid, has our name and matches its key', async () => {
      expect((await look(certificate, { env: files(MX_CERT, MX_KEY) })).map(({ verdict }) => verdict)).to.deep.equal([
        'ok',
        'ok',
        'ok',
      ]);
    });

    it('gets a note, not a warning, if it is not ECDSA', async () => {
      const seen = async (cert: string, key: string) => (await look(certificate, { env: files(cert, key) }))[2];
      expect(await seen(MX_CERT, MX_KEY)).to.deep.include({ verdict: 'ok', seen: 'ECDSA, prime256v1' });
      const rsa = await seen(pem('rsa.cert'), pem('rsa.key'));
      expect(rsa).to.deep.include({ verdict: 'ok', check: 'certificate key' });
      expect(rsa?.seen).to.match(/^RSA, 2048 bits; with an ECDSA certificate .*--key-type ecdsa/);
    });

    it('is reported before it expires, and if it has expired, is not valid yet or has another name', async () => {
      const env = files(MX_CERT, MX_KEY);
      const end = Date.UTC(2126, 9, 28);
      const verdict = async (at: number) => (await look(certificate, { env, at }))[0]?.verdict;
      expect(await verdict(end - 13 * 86_400_000)).to.equal('warning');
      expect(await verdict(end + 86_400_000 * 2)).to.equal('fault');
      expect(await verdict(Date.UTC(2020, 0, 1))).to.equal('fault');
      expect((await look(certificate, { env: { ...env, POSTERN_HOSTNAME: 'mx9.example.com' } }))[1]).to.include({
        verdict: 'warning',
        check: 'certificate name',
      });
    });

    it('fails with a key that does not match, or if it cannot be read', async () => {
      expect((await look(certificate, { env: files(MX_CERT, OTHER_KEY) }))[0]?.seen).to.match(/is not the key of/);
      expect((await look(certificate, { env: files('nothing', MX_KEY) }))[0])
        .to.include({ verdict: 'fault' })
        .and.to.have.property('seen')
        .that.matches(/^\S+ is not a PEM certificate/);
      expect((await look(certificate))[0]).to.include({
        verdict: 'warning',
        seen: 'none; inbound mail is not encrypted',
      });
    });
  });

  describe('the machine', () => {
    it('has a synchronised clock', async () => {
      expect((await look(clockCheck))[0]?.verdict).to.equal('warning');
      mkdirSync(join(dir, 'run/chrony'), { recursive: true });
      writeFileSync(join(dir, 'run/chrony/chronyd.pid'), '1');
      expect((await look(clockCheck))[0]).to.include({ verdict: 'ok' });
      expect((await look(clockCheck, { at: Date.UTC(2001, 0, 1) }))[0]?.verdict).to.equal('fault');
    });

    it('has space on a persistent disk', async () => {
      expect(
        (await look(disk, { env: { POSTERN_SPOOL__MIN_FREE_PERCENT: '0', POSTERN_SPOOL__MIN_FREE_BYTES: '0' } }))[0]
          ?.verdict,
      ).to.equal('ok');
      expect((await look(disk, { env: { POSTERN_SPOOL__MIN_FREE_BYTES: String(2 ** 50) } }))[0]?.verdict).to.equal(
        'fault',
      );
      if (existsSync('/dev/shm'))
        expect((await look(disk, { env: { POSTERN_DATA_DIR: '/dev/shm' } })).at(-1)).to.include({
          check: 'file system',
          verdict: 'fault',
        });
    });

    it('hides keys, and settings with a secret, from other users', async () => {
      const [key, file] = [join(dir, 'key.pem'), join(dir, 'postern.yaml')];
      for (const path of [key, file]) writeFileSync(path, '');
      chmodSync(dir, 0o750);
      chmodSync(key, 0o644);
      chmodSync(file, 0o644);
      const env = { POSTERN_SMTP__TLS__CERT: key, POSTERN_SMTP__TLS__KEY: key };
      expect(verdicts(await look(fileModes, { env, file }))).to.deep.equal({
        [`mode of ${dir}`]: 'ok',
        [`mode of ${key}`]: 'warning',
      });
      const secret = { ...env, POSTERN_STORE__URL: 'mongodb://postern:secret@db.example/postern' };
      expect(verdicts(await look(fileModes, { env: secret, file }))).to.include({ [`mode of ${file}`]: 'warning' });
      chmodSync(key, 0o600);
      expect(verdicts(await look(fileModes, { env }))).to.include({ [`mode of ${key}`]: 'ok' });
      expect(readdirSync(dir)).to.have.length(2);
    });
  });

  describe('the resolver', () => {
    const there: ZoneRecords = { com: { NS: ['a.gtld-servers.net'] } };
    it('answers, and does not rewrite NXDOMAIN answers', async () => {
      expect(
        (await look(nameServers, { zone: there, env: { POSTERN_DNS__SERVERS: '127.0.0.1:53' } }))[0]?.verdict,
      ).to.equal('ok');
      expect(
        (await look(nameServers, { zone: { ...there, 'postern-doctor.invalid': { A: ['198.51.100.9'] } } }))[0]
          ?.verdict,
      ).to.equal('fault');
      expect((await look(nameServers, { zone: { com: { fails: 'servfail' } } }))[0]?.verdict).to.equal('fault');
    });

    it('is preferably not a public one', async () => {
      expect(
        (await look(nameServers, { zone: there, env: { POSTERN_DNS__SERVERS: '127.0.0.1:53,8.8.8.8:53' } }))[0]?.seen,
      ).to.contain('Google');
    });
  });

  it('distinguishes a foreign program on our port from the daemon', async () => {
    const lines = ['220 mail.other.example ESMTP\r\n', 'SSH-2.0-OpenSSH\r\n'];
    other = createServer((socket) => {
      socket.on('error', () => {}).resume();
      socket.end(lines.shift() ?? '');
    });
    await new Promise<void>((resolve) => other?.listen(0, '127.0.0.1', resolve));
    const address = other.address();
    const env = { POSTERN_SMTP__LISTEN: `127.0.0.1:${typeof address === 'object' ? address?.port : 0}` };
    expect((await look(listening, { env }))[0]).to.include({ verdict: 'warning' });
    expect((await look(listening, { env }))[0]).to.include({ verdict: 'fault' });
    expect((await look(listening, { env }))[0]?.seen).to.contain('closed without a greeting');
  });
});
