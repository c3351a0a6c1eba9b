import { expect } from 'chai';
import { systemClock } from '../../../src/base/clock.ts';
import { createIds } from '../../../src/base/ids.ts';
import { createNameServers, type ServerAnswer, type ZoneAnswers } from '../../../src/dns/name-servers.ts';
import { createTestLog } from '../../support/log.ts';
import { startZone, type Zone, type ZoneRecords, zoneResolver } from '../../support/zone.ts';

const MX = (exchange: string) => ({ MX: [{ exchange, priority: 10 }] });
/** What the resolver knows: the zone, its servers and where they are. */
const NAMES: ZoneRecords = {
  'shop.test': { NS: ['ns1.host.test', 'NS2.host.test'] },
  'ns1.host.test': { A: ['127.0.0.1'] },
  'ns2.host.test': { A: ['127.0.0.2'] },
  'elsewhere.test': { TXT: ['the token'] },
};

describe('individually queried name servers', () => {
  let first: Zone;
  let second: Zone;
  before(async () => {
    first = await startZone({});
    second = await startZone({}, { host: '127.0.0.2', port: first.port });
  });
  after(async () => {
    await first.stop();
    await second.stop();
  });
  beforeEach(() => {
    for (const zone of [first, second]) {
      zone.set({});
      zone.behave('normal');
      zone.questions.length = 0;
    }
  });

  const serversWith = (records: ZoneRecords, allowPrivate: readonly string[] | null = null, loopbackOnly = true) =>
    createNameServers(
      { port: first.port, allowPrivate, loopbackOnly },
      { resolver: zoneResolver(records), clock: systemClock, ids: createIds(systemClock), log: createTestLog() },
    );
  const found = <T>(survey: ZoneAnswers<T>) => {
    if (typeof survey === 'string') throw new Error(survey);
    return survey;
  };
  const answers = <T>(survey: ZoneAnswers<T>) =>
    found(survey).servers.map(({ server, answer }: ServerAnswer<T>) => [
      server,
      answer.kind === 'records' ? answer.records : answer.kind === 'failure' ? answer.reason : answer.kind,
    ]);

  it('each report their records, including those without them', async () => {
    first.set({ 'in.shop.test': MX('mx.ours.test') });
    second.set({ 'in.shop.test': MX('mail.old.test') });
    const survey = await serversWith(NAMES).ask('in.shop.test', 'MX');
    expect(found(survey)).to.deep.include({ zone: 'shop.test', leftOut: 0 });
    expect(found(survey).servers.map(({ address }) => address)).to.deep.equal(['127.0.0.1', '127.0.0.2']);
    expect(answers(survey)).to.deep.equal([
      ['ns1.host.test', [{ exchange: 'mx.ours.test', priority: 10 }]],
      ['ns2.host.test', [{ exchange: 'mail.old.test', priority: 10 }]],
    ]);
    second.set({});
    expect(answers(await serversWith(NAMES).ask('in.shop.test', 'MX'))[1]).to.deep.equal(['ns2.host.test', 'nxdomain']);
  });

  it('give a reason if they are not authoritative, refuse, fail or do not answer', async () => {
    first.set({ 'shop.test': MX('mx.ours.test') });
    const reason = async () => answers(await serversWith(NAMES).ask('shop.test', 'MX'))[0]?.[1];
    for (const [how, expected] of [
      ['not-authoritative', 'not-authoritative'],
      ['referral', 'refused'],
      ['refuse', 'refused'],
      ['servfail', 'servfail'],
      ['garbage', 'timeout'],
      ['drop', 'timeout'],
    ] as const) {
      first.behave(how);
      expect(await reason(), how).to.equal(expected);
    }
  }).timeout(30_000);

  it('are queried over TCP for a long answer', async () => {
    first.set({ 'token.shop.test': { TXT: [Array(20).fill('x'.repeat(200))] } });
    first.behave('truncate');
    const [[, texts] = []] = answers(await serversWith(NAMES).ask('token.shop.test', 'TXT'));
    expect(texts).to.deep.equal(['x'.repeat(4000)]);
  });

  it('are followed through an alias to the record of another zone', async () => {
    const names = { ...NAMES, 'token.shop.test': { CNAME: 'elsewhere.test' } };
    for (const zone of [first, second]) {
      zone.set({ 'token.shop.test': { CNAME: 'elsewhere.test' } });
      zone.behave('links');
    }
    expect(answers(await serversWith(names).ask('token.shop.test', 'TXT'))).to.deep.equal([
      ['ns1.host.test', ['the token']],
      ['ns2.host.test', ['the token']],
    ]);
  });

  it('on private addresses are not queried, unless the operator allows it', async () => {
    const inward: ZoneRecords = {
      'shop.test': { NS: ['a.test', 'b.test', 'c.test', 'localhost'] },
      'a.test': { A: ['127.0.0.1'] },
      'b.test': { A: ['10.0.0.1', '169.254.169.254', '192.168.1.1'], AAAA: ['fd00::1', '::ffff:127.0.0.1'] },
    };
    expect(answers(await serversWith(inward, null, false).ask('shop.test', 'MX'))).to.deep.equal([
      ['a.test', 'private'],
      ['b.test', 'private'],
      ['c.test', 'no-address'],
      ['localhost', 'no-address'],
    ]);
    expect(first.questions).to.deep.equal([]);
    first.set({ 'shop.test': MX('mx.ours.test') });
    const [allowed] = answers(await serversWith(inward, ['127.0.0.0/8'], false).ask('shop.test', 'MX'));
    expect(allowed).to.deep.equal(['a.test', [{ exchange: 'mx.ours.test', priority: 10 }]]);
    expect(first.questions).to.deep.equal([{ name: 'shop.test', type: 'MX' }]);
  });

  it('are queried at one public address of each family, and eight of them at most', async () => {
    const many = Array.from({ length: 12 }, (_, n) => `ns${n}.many.test`);
    const records: ZoneRecords = {
      'shop.test': { NS: many },
      ...Object.fromEntries(many.map((name) => [name, { A: Array(50).fill('127.0.0.1') }])),
    };
    const survey = await serversWith(records).ask('shop.test', 'MX');
    expect([found(survey).servers.length, found(survey).leftOut]).to.deep.equal([8, 4]);
    expect(first.questions).to.have.length(8);
  });

  it('cannot be found for a name outside any zone, or while the DNS does not answer', async () => {
    const servers = serversWith({ ...NAMES, 'lost.test': { fails: 'servfail' } });
    expect(await servers.ask('nowhere.example', 'MX')).to.equal('none');
    expect(await servers.ask('lost.test', 'MX')).to.equal('unknown');
    expect(await servers.ask(`${'a.'.repeat(120)}test`, 'MX')).to.equal('unknown');
    expect(await servers.ask('no name at all..', 'MX')).to.equal('none');
    const [[, reason] = []] = answers(
      await serversWith({ ...NAMES, 'ns1.host.test': { fails: 'timeout' } }).ask('shop.test', 'MX'),
    );
    expect(reason).to.equal('address-unknown');
  });
});
