import { execFileSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { withStore } from '../../../src/cli/open.ts';
import { loadSettings } from '../../../src/config.ts';
import type { Store } from '../../../src/store/store.ts';
import { postern } from '../../support/command.ts';
import { startDaemon } from '../../support/daemon.ts';
import { diskDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';
import { startZone, type Zone, type ZoneRecords } from '../../support/zone.ts';

const ADDRESSES = ['--address', '192.0.2.10', '--address', '2001:db8::10'];
const SPF = 'v=spf1 ip4:192.0.2.10 ip6:2001:db8::10 -all';
const MX = [{ exchange: 'mx.postern.test', priority: 10 }];
const PTR6 = '0.1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa';
/** The names of the zone's own servers. */
const SERVERS: ZoneRecords = {
  'postern.test': { NS: ['ns1.postern.test', 'ns2.postern.test'] },
  'shop.test': { NS: ['ns1.postern.test'], TXT: [] },
  'ns1.postern.test': { A: ['127.0.0.1'] },
  'ns2.postern.test': { A: ['127.0.0.2'] },
};
/** All that the host needs, as the command says. */
const HOST: ZoneRecords = {
  ...SERVERS,
  'mx.postern.test': { A: ['192.0.2.10'], AAAA: ['2001:db8::10'], TXT: ['another program', SPF] },
  '10.2.0.192.in-addr.arpa': { PTR: ['mx.postern.test'] },
  [PTR6]: { PTR: ['mx.postern.test'] },
  'bounces.mx.postern.test': { MX, TXT: [SPF] },
  'spf.mx.postern.test': { TXT: [SPF] },
};
const NSD = '/usr/sbin/nsd-checkzone';

describe('postern dns', () => {
  let dir: string;
  let first: Zone;
  let second: Zone;
  beforeEach(async () => {
    dir = await diskDir();
    first = await startZone(HOST);
    second = await startZone(HOST, { host: '127.0.0.2', port: first.port });
  });
  afterEach(async () => {
    await first.stop();
    await second.stop();
  });

  const env = () => ({
    POSTERN_DATA_DIR: dir,
    POSTERN_HOSTNAME: 'mx.postern.test',
    POSTERN_DNS__SERVERS: first.server,
    POSTERN_DNS__AUTHORITY_PORT: String(first.port),
    POSTERN_SMTP__LISTEN: '127.0.0.1:2525',
  });
  const run = (...argv: string[]) => postern(['dns', ...ADDRESSES, ...argv], env());
  const records = async (...argv: string[]) => (await run('--json', ...argv)).json();
  const stateOf = (all: any[], name: string, type: string) =>
    all.find((one) => one.name === name && one.type === type)?.state;

  /** Adds an inbound domain, a verified sender domain, and the key of the host. */
  async function addDomains(): Promise<void> {
    const daemon = await startDaemon({ ...env(), POSTERN_SMTP__LISTEN: '127.0.0.1:0' }, { dir });
    await daemon.stop();
    for (const argv of [
      ['domain', 'add', 'in.shop.test'],
      ['sender', 'add', 'shop.test'],
    ]) {
      const ran = await postern(argv, env());
      expect(ran.code, ran.err).to.equal(0);
    }
  }

  it('lists the records of a new host before its daemon has run, with addresses and reverse names', async () => {
    first.set(SERVERS);
    second.set(SERVERS);
    const ran = await run('--json');
    expect(ran.code).to.equal(1);
    expect(ran.json().map(({ name, type, value, state }: any) => [name, type, value, state])).to.deep.equal([
      ['mx.postern.test', 'A', '192.0.2.10', 'missing'],
      ['mx.postern.test', 'AAAA', '2001:db8::10', 'missing'],
      ['10.2.0.192.in-addr.arpa', 'PTR', 'mx.postern.test.', 'missing'],
      [PTR6, 'PTR', 'mx.postern.test.', 'missing'],
      ['mx.postern.test', 'TXT', SPF, 'missing'],
      ['bounces.mx.postern.test', 'MX', '10 mx.postern.test.', 'missing'],
      ['bounces.mx.postern.test', 'TXT', SPF, 'missing'],
      ['spf.mx.postern.test', 'TXT', SPF, 'missing'],
    ]);
    const { out } = await run();
    expect(out).to.match(/next: publish the 8 records above that are not ok \(postern dns --zone --missing/);
    // The addresses that were given belong to the next commands too.
    expect(out).to.match(/then run postern dns --wait( --address \S+)+\n$/);
  });

  it('exits 0 once all are published, and prints the next step', async () => {
    const ran = await run();
    expect(ran.out).to.match(/All records are published\.\nnext: start the daemon/);
    expect(ran.code).to.equal(0);
    expect((await run('--missing', '--json')).json()).to.deep.equal([]);
  });

  it('names the server that does not have a record yet', async () => {
    second.set({ ...HOST, 'spf.mx.postern.test': {} });
    const found = (await records()).find(({ name }: any) => name === 'spf.mx.postern.test');
    expect(found.state).to.equal('partly');
    expect(found.seen).to.deep.equal([
      { server: 'ns1.postern.test', values: [SPF], error: null },
      { server: 'ns2.postern.test', values: [], error: 'no SPF record' },
    ]);
    expect((await run()).out).to.match(
      /partly .*spf\.mx\.postern\.test.*\n.*\n +ns1\.postern\.test: ok\n +ns2.*: no SPF/,
    );
  });

  it('distinguishes a wrong record from a missing one', async () => {
    const wrong: ZoneRecords = {
      ...HOST,
      'mx.postern.test': { A: ['198.51.100.1'], AAAA: ['2001:db8:0::10'], TXT: ['another program'] },
      'bounces.mx.postern.test': { MX: [{ exchange: 'mail.other.test', priority: 1 }], TXT: ['v=spf1 -all'] },
    };
    first.set(wrong);
    second.set(wrong);
    const all = await records();
    expect(stateOf(all, 'mx.postern.test', 'A')).to.equal('different');
    expect(stateOf(all, 'mx.postern.test', 'AAAA')).to.equal('ok');
    expect(stateOf(all, 'mx.postern.test', 'TXT')).to.equal('missing');
    expect(stateOf(all, 'bounces.mx.postern.test', 'MX')).to.equal('different');
    expect(stateOf(all, 'bounces.mx.postern.test', 'TXT')).to.equal('different');
  });

  it('accepts an SPF record that allows the addresses in other words', async () => {
    const zone = { ...HOST, 'spf.mx.postern.test': { TXT: ['v=spf1 a:mx.postern.test ~all'] } };
    first.set(zone);
    second.set(zone);
    expect(stateOf(await records(), 'spf.mx.postern.test', 'TXT')).to.equal('ok');
  });

  it('lists the records of inbound and sender domains, and keeps the existing terms of an SPF record', async () => {
    const zone = { ...HOST, 'shop.test': { NS: ['ns1.postern.test'], TXT: ['v=spf1 include:crm.test ~all'] } };
    first.set(zone);
    second.set(zone);
    await addDomains();
    const all = await records();
    const of = (name: string, type: string) => all.find((one: any) => one.name === name && one.type === type);
    expect(of('in.shop.test', 'MX')).to.include({ value: '10 mx.postern.test.', need: 'receiving', state: 'missing' });
    expect(of('shop.test', 'TXT')).to.include({
      value: 'v=spf1 include:spf.mx.postern.test include:crm.test ~all',
      state: 'different',
    });
    expect(of('postern._domainkey.shop.test', 'TXT').value).to.match(/^v=DKIM1; k=rsa; p=/);
    expect(of('_dmarc.shop.test', 'TXT')).to.include({ need: 'advised', value: 'v=DMARC1; p=none' });
    expect(of('shop.test', 'MX')).to.include({ need: 'advised' });
    expect(of('postern._domainkey.mx.postern.test', 'TXT')).to.include({ need: 'sending' });
    const below = await records('in.shop.test');
    expect(below.map(({ name }: any) => name)).to.deep.equal(['in.shop.test']);
    const receiving = await records('--for', 'receiving');
    expect(new Set(receiving.map(({ need }: any) => need))).to.deep.equal(new Set(['receiving']));
  });

  it('lists where senders find the MTA-STS policy of an inbound domain, if there is one', async () => {
    await addDomains();
    const wanted = async (mode: string) =>
      (
        await postern(['dns', ...ADDRESSES, '--json', 'in.shop.test'], { ...env(), POSTERN_INBOUND__MTA_STS: mode })
      ).json();
    const [testing, enforce] = [await wanted('testing'), await wanted('enforce')];
    const id = (all: any[]) => all.find(({ name }) => name === '_mta-sts.in.shop.test').value;
    expect(testing.map(({ name, type, need, state }: any) => [name, type, need, state])).to.deep.equal([
      ['in.shop.test', 'MX', 'receiving', 'missing'],
      ['mta-sts.in.shop.test', 'A', 'advised', 'missing'],
      ['mta-sts.in.shop.test', 'AAAA', 'advised', 'missing'],
      ['_mta-sts.in.shop.test', 'TXT', 'advised', 'missing'],
    ]);
    expect(id(testing)).to.match(/^v=STSv1; id=[0-9a-z]{1,32}$/);
    expect(id(enforce), 'senders read the policy again if it has changed').to.not.equal(id(testing));
    const zone = { ...HOST, '_mta-sts.in.shop.test': { TXT: [`${id(testing)};`] } };
    first.set(zone);
    second.set(zone);
    expect(stateOf(await wanted('testing'), '_mta-sts.in.shop.test', 'TXT')).to.equal('ok');
    expect(stateOf(await wanted('enforce'), '_mta-sts.in.shop.test', 'TXT')).to.not.equal('ok');
  });

  it('names the relay that sends our mail in SPF records, without its password', async () => {
    const relays = {
      POSTERN_OUTBOUND__RELAY: 'smtp://me:secret@relay.test:587',
      POSTERN_MAIL__RELAY: 'smtps://[2001:db8::7]',
    };
    const ran = await postern(['dns', ...ADDRESSES, '--zone'], { ...env(), ...relays });
    expect(ran.out).to.not.contain('secret');
    expect(ran.out).to.match(/^spf\.mx\.postern\.test\. .*"v=spf1 a:relay\.test -all"$/m);
    expect(ran.out).to.match(/^mx\.postern\.test\. .*"v=spf1 ip6:2001:db8::7 -all"$/m);
  });

  it('prints a zone file that a name server accepts, with the requested records', async () => {
    await addDomains();
    const { out } = await run('--zone');
    expect(out).to.match(
      /^postern\._domainkey\.shop\.test\. +3600 IN TXT +\( "v=DKIM1; k=rsa; p=[^"]{237}" "[^"]+" \)$/m,
    );
    expect(out).to.match(/^; 10\.2\.0\.192\.in-addr\.arpa\. +3600 IN PTR +mx\.postern\.test\.$/m);
    if (!existsSync(NSD)) return;
    const file = join(dir, 'zone');
    writeFileSync(file, `test. 3600 IN SOA ns.test. root.test. 1 2 3 4 5\ntest. 3600 IN NS ns.test.\n${out}`);
    expect(execFileSync(NSD, ['test', file]).toString()).to.contain('is ok');
  });

  it('waits until the missing records are published', async () => {
    first.set({ ...HOST, 'spf.mx.postern.test': {} });
    second.set({ ...HOST, 'spf.mx.postern.test': {} });
    const running = run('--wait', '--timeout', '10');
    await until('the first look', () =>
      first.questions.some(({ name, type }) => name === 'spf.mx.postern.test' && type === 'TXT'),
    );
    first.set(HOST);
    second.set(HOST);
    const ran = await running;
    expect(ran.code, ran.err).to.equal(0);
    expect(ran.out).to.match(
      /Waiting for 1 record, at most 10 minutes; Ctrl-C ends it\.\nok +spf\.mx\.postern\.test {2}TXT/,
    );
    expect(ran.out).to.match(/All records are published\.\n$/);
  });

  it('forgets, once all is published, that a sender domain was tested before', async () => {
    await addDomains();
    const tested = async () => {
      const [{ spf, dkim, valid_signing: signs }] = (await postern(['sender', 'list', '--json'], env())).json();
      return { spf, dkim, signs };
    };
    expect(await tested()).to.deep.equal({ spf: false, dkim: false, signs: false });
    const published: Record<string, any> = { ...HOST };
    const wanted = (await records()).filter(({ state }: any) => state !== 'ok');
    for (const { name, type, value } of wanted)
      published[name] = { ...published[name], [type]: type === 'MX' ? MX : [value] };
    for (const zone of [first, second]) zone.set(published);
    expect((await run('--wait')).out).to.equal('All records are published.\n');
    // The next mail tests it, and is signed at once if it passes.
    expect(await tested()).to.deep.equal({ spf: null, dkim: null, signs: false });
  });

  it('triggers first certificates whose orders failed before, once all is published', async () => {
    await addDomains();
    const name = 'mx.postern.test';
    const within = <T>(use: (store: Store) => Promise<T>) => withStore(loadSettings(undefined, env()).settings, use);
    const later = new Date(Date.now() + 6 * 3_600_000);
    const failed = {
      chain: null,
      key: null,
      issuedAt: null,
      notAfter: null,
      error: 'no address',
      failedAt: new Date(),
    };
    await within((store) => store.certificates.insert({ id: name, ...failed, dueAt: later, failures: 5 }));
    const due = async () => (await within((store) => store.certificates.one({ id: name })))?.dueAt.getTime();
    expect((await run('--wait', '--timeout', '0.001')).code).to.equal(1);
    expect(await due()).to.equal(later.getTime());
    expect((await run('--wait', '--for', 'receiving', name)).code).to.equal(0);
    expect(await due()).to.be.at.most(Date.now());
  });

  it('gives up waiting after the time that is given', async () => {
    first.set(SERVERS);
    const ran = await run('--wait', '--timeout', '0.001');
    expect(ran.code).to.equal(1);
    expect(ran.out).to.match(/next: publish/);
  });

  it('takes the public addresses of the host from the DNS', async () => {
    first.set({ ...HOST, 'mx.postern.test': { A: ['9.9.9.9', '127.0.0.1', '10.0.0.1'] } });
    const ran = await postern(['dns', '--json', '--for', 'receiving'], env());
    expect(ran.json().map(({ value }: any) => value)).to.deep.equal(['9.9.9.9']);
  });

  it('says how it is called if it is called wrongly', async () => {
    for (const [argv, text] of [
      [['not a name'], /"not a name" is not a domain name/],
      [['--for', 'reading'], /--for must be one of receiving, sending/],
      [['--timeout', 'soon'], /--timeout must be a number of minutes/],
      [['elsewhere.test'], /no records for elsewhere\.test\. Add it first: postern domain add/],
    ] as const) {
      const ran = await run(...argv);
      expect([ran.code, text.test(ran.err)], ran.err).to.deep.equal([64, true]);
    }
    const ran = await postern(['dns', '--address', 'here'], env());
    expect(ran.err).to.match(/"here" is not an IP address/);
  });
});
