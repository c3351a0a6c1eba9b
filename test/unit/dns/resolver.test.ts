import { createSocket } from 'node:dgram';
import { expect } from 'chai';
import { Packet } from 'dns2';
import { createIds } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import type { ResolverDeps } from '../../../src/dns/resolver.ts';
import { createResolver } from '../../../src/dns/resolver.ts';
import type { Resolver } from '../../../src/dns/types.ts';
import type { TestClock } from '../../support/clock.ts';
import { createTestClock } from '../../support/clock.ts';
import { addressAnswer, startRawServer } from '../../support/dns-raw.ts';
import { createTestLog } from '../../support/log.ts';
import { until } from '../../support/until.ts';
import type { Zone } from '../../support/zone.ts';
import { startZone } from '../../support/zone.ts';

const RECORDS = {
  'host.example': { A: ['192.0.2.1', '192.0.2.2'], AAAA: ['2001:db8::1'], TXT: ['one', ['two ', 'parts']], ttl: 120 },
  'mail.example': {
    MX: [
      { exchange: 'mx1.example', priority: 10 },
      { exchange: 'mx2.example', priority: 20 },
    ],
  },
  '1.2.0.192.in-addr.arpa': { PTR: ['host.example'] },
  'zone.example': { NS: ['ns1.example', 'ns2.example'] },
  'alias.example': { CNAME: 'middle.example', ttl: 30 },
  'middle.example': { CNAME: 'host.example', ttl: 600 },
  'round.example': { CNAME: 'about.example' },
  'about.example': { CNAME: 'round.example' },
  'lost.example': { CNAME: 'nowhere.example' },
  'xn--bcher-kva.example': { A: ['192.0.2.9'] },
  'four.example': { A: ['192.0.2.4'], fails: { AAAA: 'servfail' } },
} as const;

describe('the resolver', () => {
  let clock: TestClock;
  let zone: Zone;
  let log: ReturnType<typeof createTestLog>;
  const closers: (() => Promise<void>)[] = [];

  function resolverFor(servers: readonly string[], more: Partial<ResolverDeps> = {}): Resolver {
    const settings = { servers, timeoutMs: 4000, questionsPerMessage: 60, budgetMs: 20_000 };
    const resolver = createResolver(settings, {
      clock,
      log,
      ids: createIds(clock),
      metrics: NO_METRICS,
      hostsFile: '/nonexistent',
      ...more,
    });
    closers.push(() => resolver.stop());
    return resolver;
  }
  /** The address of a server that was just closed. */
  async function deadServer(): Promise<string> {
    const dead = await startZone({});
    await dead.stop();
    return dead.server;
  }

  beforeEach(async () => {
    clock = createTestClock();
    log = createTestLog();
    zone = await startZone(RECORDS);
    closers.push(() => zone.stop());
  });
  afterEach(async () => {
    for (const close of closers.splice(0)) await close();
  });

  describe('parsing answers', () => {
    it('returns the records of every type with their TTL', async () => {
      const resolver = resolverFor([zone.server]);
      expect(await resolver.resolve('host.example', 'A')).to.deep.equal({
        kind: 'records',
        records: ['192.0.2.1', '192.0.2.2'],
        ttl: 120,
      });
      expect(await resolver.resolve('host.example', 'AAAA')).to.deep.equal({
        kind: 'records',
        records: ['2001:db8::1'],
        ttl: 120,
      });
      expect(await resolver.resolve('1.2.0.192.in-addr.arpa', 'PTR')).to.deep.include({ records: ['host.example'] });
      expect(await resolver.resolve('zone.example', 'NS')).to.deep.include({ records: ['ns1.example', 'ns2.example'] });
      expect(await resolver.resolve('alias.example', 'CNAME')).to.deep.include({ records: ['middle.example'] });
      expect(await resolver.resolve('mail.example', 'MX')).to.deep.include({
        records: [
          { exchange: 'mx1.example', priority: 10 },
          { exchange: 'mx2.example', priority: 20 },
        ],
      });
    });

    it('joins the strings of one TXT record and keeps records apart', async () => {
      expect(await resolverFor([zone.server]).resolve('host.example', 'TXT')).to.deep.include({
        records: ['one', 'two parts'],
      });
    });

    it('distinguishes a missing name from one without such records', async () => {
      const resolver = resolverFor([zone.server]);
      expect(await resolver.resolve('nothing.example', 'A')).to.deep.equal({ kind: 'nxdomain' });
      expect(await resolver.resolve('host.example', 'MX')).to.deep.equal({ kind: 'none' });
    });

    it('accepts names in any case, with a final dot and in any script', async () => {
      const resolver = resolverFor([zone.server]);
      expect(await resolver.resolve('HOST.Example.', 'A')).to.have.property('kind', 'records');
      expect(await resolver.resolve('Bücher.example', 'A')).to.deep.include({ records: ['192.0.2.9'] });
      expect(zone.questions.map((question) => question.name)).to.deep.equal(['host.example', 'xn--bcher-kva.example']);
    });

    it('sends no query for an invalid name', async () => {
      const resolver = resolverFor([zone.server]);
      for (const name of [
        '',
        '.',
        'a..example',
        `${'a'.repeat(64)}.example`,
        `${'abcdefg.'.repeat(32)}example`,
        'x'.repeat(100_000),
      ]) {
        expect(await resolver.resolve(name, 'TXT'), name.slice(0, 20)).to.deep.equal({ kind: 'nxdomain' });
      }
      expect(zone.questions).to.deep.equal([]);
    });

    it('follows aliases within an answer, with the smallest TTL', async () => {
      expect(await resolverFor([zone.server]).resolve('alias.example', 'A')).to.deep.equal({
        kind: 'records',
        records: ['192.0.2.1', '192.0.2.2'],
        ttl: 30,
      });
      expect(zone.questions).to.have.length(1);
    });

    it('follows aliases across answers, if a server does not', async () => {
      zone.behave('links');
      expect(await resolverFor([zone.server]).resolve('alias.example', 'A')).to.deep.equal({
        kind: 'records',
        records: ['192.0.2.1', '192.0.2.2'],
        ttl: 30,
      });
      expect(zone.questions.map((question) => question.name)).to.deep.equal([
        'alias.example',
        'middle.example',
        'host.example',
      ]);
    });

    it('fails on circular aliases, within an answer and across answers', async () => {
      expect(await resolverFor([zone.server]).resolve('round.example', 'A')).to.have.property('kind', 'failure');
      zone.behave('links');
      expect(await resolverFor([zone.server]).resolve('round.example', 'A')).to.deep.equal({
        kind: 'failure',
        reason: 'malformed',
      });
      expect(zone.questions.length).to.be.below(20);
    });

    it('reports a missing name when its alias points nowhere', async () => {
      expect(await resolverFor([zone.server]).resolve('lost.example', 'A')).to.deep.equal({ kind: 'nxdomain' });
    });
  });

  describe('hostile and broken servers', () => {
    it('fails at the deadline with a silent server, after four tries', async () => {
      zone.behave('drop');
      const answer = resolverFor([zone.server]).resolve('host.example', 'A');
      for (let tries = 1; tries <= 4; tries++) {
        await until('a try', () => zone.questions.length >= tries);
        await clock.advance(1000);
      }
      expect(await answer).to.deep.equal({ kind: 'failure', reason: 'timeout' });
      expect(zone.questions).to.have.length(4);
    });

    it('reports the reason of a refusal at once', async () => {
      for (const [how, reason] of [
        ['servfail', 'servfail'],
        ['refuse', 'refused'],
        ['formerr', 'malformed'],
        ['cut', 'malformed'],
        ['referral', 'refused'],
      ] as const) {
        zone.behave(how);
        expect(await resolverFor([zone.server]).resolve('host.example', 'A'), how).to.deep.equal({
          kind: 'failure',
          reason,
        });
      }
    });

    it('rejects an answer to another question, under another id or malformed', async () => {
      for (const how of ['other-question', 'wrong-id', 'garbage'] as const) {
        zone.behave(how);
        const asked = zone.questions.length;
        const answer = resolverFor([zone.server]).resolve('host.example', 'A');
        await until('the question', () => zone.questions.length > asked);
        await clock.advance(4000);
        expect(await answer, how).to.deep.equal({ kind: 'failure', reason: 'timeout' });
      }
    });

    it('waits for the right answer when a forged one comes first', async () => {
      zone.behave('wrong-id-first');
      expect(await resolverFor([zone.server]).resolve('host.example', 'A')).to.deep.include({
        records: ['192.0.2.1', '192.0.2.2'],
      });
    });

    it('queries a name server on another host from an address of this host, not from that of the server', async () => {
      let asked = '';
      const other = await startRawServer((request, from, reply) => {
        asked = from.address;
        reply(addressAnswer(request, '192.0.2.1'));
      }, '127.0.0.2');
      closers.push(() => other.stop());
      expect(await resolverFor([other.server]).resolve('host.example', 'A')).to.have.property('kind', 'records');
      expect(asked).to.equal('127.0.0.1');
    });

    it('rejects the right answer from the wrong address', async () => {
      const socket = createSocket('udp4');
      const forge = (bytes: Buffer, port: number) => socket.send(bytes, port, '127.0.0.1');
      const other = await startRawServer((request, from, reply) => {
        forge(addressAnswer(request, '6.6.6.6'), from.port);
        setImmediate(() => reply(addressAnswer(request, '192.0.2.1')));
      });
      closers.push(
        () => other.stop(),
        () => new Promise((resolve) => socket.close(() => resolve())),
      );
      expect(await resolverFor([other.server]).resolve('host.example', 'A')).to.deep.include({
        records: ['192.0.2.1'],
      });
    });

    it('ignores records that a server adds for other names', async () => {
      const server = await startRawServer((request, _from, reply) => {
        const response = Packet.parse(addressAnswer(request, '192.0.2.1', '6.6.6.6'));
        for (const added of response.answers.slice(1)) added.name = 'other.example';
        reply(response.toBuffer());
      });
      closers.push(() => server.stop());
      expect(await resolverFor([server.server]).resolve('host.example', 'A')).to.deep.include({
        records: ['192.0.2.1'],
      });
    });

    it('accepts the question back in any case of letters', async () => {
      zone.behave('plain-case');
      expect(await resolverFor([zone.server]).resolve('host.example', 'A')).to.have.property('kind', 'records');
    });

    it('queries again without an OPT record where it is not supported', async () => {
      zone.behave('no-edns');
      expect(await resolverFor([zone.server]).resolve('host.example', 'A')).to.have.property('kind', 'records');
    });

    it('queries over TCP after a truncated answer', async () => {
      zone.behave('truncate');
      expect(await resolverFor([zone.server]).resolve('host.example', 'TXT')).to.deep.include({
        records: ['one', 'two parts'],
      });
      expect(zone.questions.map((question) => question.type)).to.deep.equal(['TXT', 'TCP TXT']);
    });

    it('rejects a truncated answer over TCP', async () => {
      zone.behave('truncate-always');
      expect(await resolverFor([zone.server]).resolve('host.example', 'TXT')).to.deep.equal({
        kind: 'failure',
        reason: 'malformed',
      });
    });

    it('keeps the deadline over TCP', async () => {
      zone.behave('tcp-drip');
      const answer = resolverFor([zone.server]).resolve('host.example', 'TXT');
      await until('the question over TCP', () => zone.questions.some((question) => question.type === 'TCP TXT'));
      await clock.advance(4000);
      expect(await answer).to.deep.equal({ kind: 'failure', reason: 'timeout' });
    });

    it('still accepts an answer of a slow server during the next try', async () => {
      const late = Promise.withResolvers<void>();
      zone.behave({ after: late.promise });
      const answer = resolverFor([zone.server]).resolve('host.example', 'A');
      await until('the first try', () => zone.questions.length === 1);
      zone.behave('drop');
      await clock.advance(1000);
      await until('the second try', () => zone.questions.length === 2);
      late.resolve();
      expect(await answer).to.have.property('kind', 'records');
    });

    it('rejects a packet that announces more records than fit into it', async () => {
      const server = await startRawServer((request, _from, reply) => {
        const bytes = addressAnswer(request, '192.0.2.1');
        bytes.writeUInt16BE(65_535, 6);
        reply(bytes);
      });
      closers.push(() => server.stop());
      expect(await resolverFor([server.server]).resolve('host.example', 'A')).to.deep.equal({
        kind: 'failure',
        reason: 'malformed',
      });
    });
  });

  describe('several servers', () => {
    it('tries the next server when one refuses, fails, is down or does not answer', async () => {
      const other = await startZone(RECORDS);
      closers.push(() => other.stop());
      for (const how of ['refuse', 'servfail', 'cut'] as const) {
        zone.behave(how);
        expect(await resolverFor([zone.server, other.server]).resolve('host.example', 'A'), how).to.have.property(
          'kind',
          'records',
        );
      }
      expect(await resolverFor([await deadServer(), other.server]).resolve('host.example', 'A')).to.have.property(
        'kind',
        'records',
      );
      zone.behave('drop');
      const asked = zone.questions.length;
      const answer = resolverFor([zone.server, other.server]).resolve('host.example', 'A');
      await until('the silent one', () => zone.questions.length > asked);
      await clock.advance(1000);
      expect(await answer).to.have.property('kind', 'records');
    });

    it('prefers the server that answered last', async () => {
      const other = await startZone(RECORDS);
      closers.push(() => other.stop());
      zone.behave('refuse');
      const resolver = resolverFor([zone.server, other.server]);
      await resolver.resolve('host.example', 'A');
      await resolver.resolve('mail.example', 'MX');
      expect(zone.questions).to.have.length(1);
      expect(other.questions).to.have.length(2);
    });

    it('reports unreachable without a server', async () => {
      const resolver = resolverFor([await deadServer()]);
      const answer = resolver.resolve('host.example', 'A');
      let done = false;
      void answer.finally(() => {
        done = true;
      });
      await until('the end', async () => {
        await clock.advance(1000);
        return done;
      });
      expect(await answer).to.deep.equal({ kind: 'failure', reason: 'unreachable' });
    });

    it('queries the servers of the system when none are set, and checks them again after a minute', async () => {
      const other = await startZone(RECORDS);
      closers.push(() => other.stop());
      let system = [zone.server];
      const resolver = resolverFor([], { systemServers: () => system });
      await resolver.resolve('host.example', 'A');
      system = [other.server];
      await clock.advance(61_000);
      await resolver.resolve('mail.example', 'MX');
      expect([zone.questions.length, other.questions.length]).to.deep.equal([1, 1]);
    });

    it('queries a server at an IPv6 address', async function () {
      const server = await startRawServer(
        (request, _from, reply) => reply(addressAnswer(request, '192.0.2.6')),
        '::1',
      ).catch(() => undefined);
      if (!server) return this.skip(); // a machine without IPv6
      closers.push(() => server.stop());
      expect(await resolverFor([server.server]).resolve('host.example', 'A')).to.deep.include({
        records: ['192.0.2.6'],
      });
    });

    it('sends each query from another port under another id', async () => {
      const ports = new Set<number>();
      const ids = new Set<number>();
      const server = await startRawServer((request, from, reply) => {
        ports.add(from.port);
        ids.add(request.header.id);
        reply(addressAnswer(request, '192.0.2.1'));
      });
      closers.push(() => server.stop());
      const resolver = resolverFor([server.server]);
      for (let i = 0; i < 40; i++) await resolver.resolve(`n${i}.example`, 'A');
      expect(ports.size).to.be.above(20);
      expect(ids.size).to.be.above(35);
    });

    it('shortens its waits while no server answers, and logs it once', async () => {
      zone.behave('drop');
      const resolver = resolverFor([zone.server]);
      const silent = async (name: string, ms: number) => {
        const asked = zone.questions.length;
        const answer = resolver.resolve(name, 'A');
        await until('the question', () => zone.questions.length > asked);
        await clock.advance(ms);
        expect(await answer).to.deep.equal({ kind: 'failure', reason: 'timeout' });
      };
      for (let i = 0; i < 10; i++) await silent(`n${i}.example`, 4000);
      expect(log.of('dns.fault')).to.have.length(1);
      await silent('later.example', 1000);
      zone.behave('normal');
      expect(await resolver.resolve('host.example', 'A')).to.have.property('kind', 'records');
      expect(log.of('dns.fault')).to.have.length(1);
    });

    it('cancels running queries on stop', async () => {
      zone.behave('drop');
      const resolver = resolverFor([zone.server]);
      const answer = resolver.resolve('host.example', 'A');
      await until('the question', () => zone.questions.length > 0);
      await resolver.stop();
      expect(await answer).to.have.property('kind', 'failure');
      expect(await resolver.resolve('mail.example', 'MX')).to.have.property('kind', 'failure');
    });
  });
});
