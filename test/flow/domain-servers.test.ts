import { expect } from 'chai';
import { createIds } from '../../src/base/ids.ts';
import { createTestClock } from '../support/clock.ts';
import { postern } from '../support/command.ts';
import { createCaller, startDaemon, type TestDaemon } from '../support/daemon.ts';
import { startZone, type Zone } from '../support/zone.ts';

const MX = (exchange: string) => ({ MX: [{ exchange, priority: 10 }] });

describe('the name servers of a domain', () => {
  let first: Zone;
  let second: Zone;
  let resolver: Zone;
  let daemon: TestDaemon;
  /** What the resolver knows, which is what the first of the name servers values. */
  const NAMES = {
    'shop.test': { ...MX('in.postern.test'), NS: ['ns1.host.test', 'ns2.host.test'] },
    'ns1.host.test': { A: ['127.0.0.1'] },
    'ns2.host.test': { A: ['127.0.0.2'] },
  };
  before(async () => {
    first = await startZone({ 'shop.test': MX('in.postern.test') });
    second = await startZone({ 'shop.test': MX('mail.old.test') }, { host: '127.0.0.2', port: first.port });
    resolver = await startZone(NAMES);
    daemon = await startDaemon({
      POSTERN_DNS__SERVERS: resolver.server,
      POSTERN_DNS__TIMEOUT_MS: '2000',
      POSTERN_DNS__AUTHORITY_PORT: String(first.port),
      POSTERN_INBOUND__OWNERSHIP: 'first',
      // As hosts that share a store and their settings: each is in the list.
      POSTERN_INBOUND__MX_HOSTS: 'IN.postern.test',
    });
  });
  after(async () => {
    await daemon.stop();
    await Promise.all([first.stop(), second.stop(), resolver.stop()]);
  });

  it('names this host once, also if it is in inbound.mx_hosts', async () => {
    const { mx_hosts } = await daemon.api('/inbound/add-domain', { domain: 'twice.test' });
    expect(mx_hosts).to.deep.equal(['in.postern.test']);
  });

  const ask = async () => {
    const { records, ...rest } = await daemon.api('/inbound/domain-servers', { domain: 'shop.test' });
    const [mx, txt] = records;
    return { ...rest, mx, txt };
  };

  it('are each shown with the current records, beside the expected ones', async () => {
    const added = await daemon.api('/inbound/add-domain', { domain: 'shop.test' });
    const { mx, txt, domain, asked_at: askedAt } = await ask();
    expect(domain).to.equal('shop.test');
    expect(Date.parse(`${askedAt}Z`)).to.be.within(Date.now() - 60_000, Date.now() + 1000);
    expect(mx).to.deep.include({
      name: 'shop.test',
      expected: ['10 in.postern.test.'],
      zone: 'shop.test',
      error: null,
    });
    expect(mx.servers).to.deep.equal([
      { server: 'ns1.host.test', address: '127.0.0.1', state: 'ok', values: ['10 in.postern.test.'], reason: null },
      { server: 'ns2.host.test', address: '127.0.0.2', state: 'differs', values: ['10 mail.old.test.'], reason: null },
    ]);
    expect(txt).to.deep.include({ name: added.txt_name, expected: [added.txt_value], since: null });
    expect(txt.servers.map(({ state }: any) => state)).to.deep.equal(['missing', 'missing']);
    first.set({ 'shop.test': MX('in.postern.test'), [added.txt_name]: { TXT: ['other', added.txt_value] } });
    second.behave('refuse');
    const after = (await ask()).txt.servers;
    expect(after.map(({ state, values, reason }: any) => [state, values, reason])).to.deep.equal([
      ['ok', ['other', added.txt_value], null],
      ['failed', [], 'It refuses the query.'],
    ]);
    second.behave('normal');
  });

  it('are shown with the time of their last change, and of the next check', async () => {
    const clock = createTestClock(Date.UTC(2030, 0, 5, 12));
    const other = await startDaemon(
      {
        POSTERN_DNS__SERVERS: resolver.server,
        POSTERN_DNS__AUTHORITY_PORT: String(first.port),
        POSTERN_DNS__TIMEOUT_MS: '2000',
      },
      { clock, ids: createIds(clock) },
    );
    const times = async () => {
      const { records, next_test_at: next } = await other.api('/inbound/domain-servers', { domain: 'shop.test' });
      return [records[0].since, next];
    };
    await other.api('/inbound/add-domain', { domain: 'shop.test' });
    expect(await times()).to.deep.equal(['2030-01-05 12:00:00', '2030-01-05 13:00:00']);
    await clock.advance(600_000);
    await other.api('/inbound/check-domain', { domain: 'shop.test' });
    expect(await times()).to.deep.equal(['2030-01-05 12:00:00', '2030-01-05 13:10:00']);
    resolver.set({ ...NAMES, 'shop.test': { ...NAMES['shop.test'], ...MX('mail.old.test') } });
    await clock.advance(600_000);
    await other.api('/inbound/check-domain', { domain: 'shop.test' });
    expect(await times()).to.deep.equal(['2030-01-05 12:20:00', '2030-01-05 13:20:00']);
    await other.stop();
    resolver.set(NAMES);
  });

  it('of a domain of another account are not shown or queried', async () => {
    const [{ key }] = (
      await postern(['account', 'create', 'other', '--json'], {
        POSTERN_DATA_DIR: daemon.dir,
        POSTERN_HTTP__LISTEN: new URL(daemon.base).host,
      })
    ).json();
    const before = first.questions.length;
    const { status, body } = await createCaller(daemon.base, key).ask('/inbound/domain-servers', {
      domain: 'shop.test',
    });
    expect([status, body.name]).to.deep.equal([404, 'Unknown_InboundDomain']);
    expect(first.questions).to.have.length(before);
  });

  it('of a domain without a zone, or while the DNS is unavailable, are shown as unknown', async () => {
    await daemon.api('/inbound/add-domain', { domain: 'nowhere.test' });
    const errorOf = async () =>
      (await daemon.api('/inbound/domain-servers', { domain: 'nowhere.test' })).records.map(({ error }: any) => error);
    expect(await errorOf()).to.deep.equal(Array(2).fill('The DNS has no zone for this name.'));
    resolver.behave('servfail');
    expect(await errorOf()).to.deep.equal(Array(2).fill('The name servers of this name could not be looked up.'));
    resolver.behave('normal');
  });
});
