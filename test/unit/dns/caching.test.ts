import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { createIds } from '../../../src/base/ids.ts';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import type { ResolverDeps } from '../../../src/dns/resolver.ts';
import { createResolver } from '../../../src/dns/resolver.ts';
import type { Resolver } from '../../../src/dns/types.ts';
import { createDnsBudget } from '../../../src/dns/types.ts';
import { createShare } from '../../../src/inbound/verdicts/lookups.ts';
import type { TestClock } from '../../support/clock.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';
import type { Zone } from '../../support/zone.ts';
import { startZone } from '../../support/zone.ts';

describe('the resolver over time', () => {
  let clock: TestClock;
  let zone: Zone;
  let turn = 0;
  const closers: (() => Promise<void>)[] = [];

  function resolverFor(more: Partial<ResolverDeps> = {}): Resolver {
    const settings = { servers: [zone.server], timeoutMs: 4000, questionsPerMessage: 60, budgetMs: 20_000 };
    const resolver = createResolver(settings, {
      clock,
      log: createTestLog(),
      ids: createIds(clock),
      metrics: NO_METRICS,
      hostsFile: '/nonexistent',
      ...more,
    });
    closers.push(() => resolver.stop());
    return resolver;
  }

  beforeEach(async () => {
    clock = createTestClock();
    turn = 0;
    zone = await startZone({
      'host.example': { A: ['192.0.2.1'], AAAA: ['2001:db8::1'], ttl: 120 },
      'four.example': { A: ['192.0.2.4'], fails: { AAAA: 'servfail' } },
      'long.example': { A: ['192.0.2.1'], ttl: 1_000_000 },
      'rebind.example': { A: () => [turn++ % 2 === 0 ? '192.0.2.1' : '127.0.0.1'], ttl: 0 },
      'broken.example': { fails: 'servfail' },
    });
    closers.push(() => zone.stop());
  });
  afterEach(async () => {
    for (const close of closers.splice(0)) await close();
  });

  describe('the cache', () => {
    it('queries once during the TTL, and counts it down', async () => {
      const resolver = resolverFor();
      await resolver.resolve('host.example', 'A');
      await clock.advance(100_000);
      expect(await resolver.resolve('HOST.example.', 'A')).to.deep.equal({
        kind: 'records',
        records: ['192.0.2.1'],
        ttl: 20,
      });
      expect(zone.questions).to.have.length(1);
      await clock.advance(21_000);
      expect(await resolver.resolve('host.example', 'A')).to.have.property('ttl', 120);
      expect(zone.questions).to.have.length(2);
    });

    it('keeps nothing longer than an hour', async () => {
      const resolver = resolverFor();
      await resolver.resolve('long.example', 'A');
      await clock.advance(3_600_001);
      await resolver.resolve('long.example', 'A');
      expect(zone.questions).to.have.length(2);
    });

    it('queries again each time without a TTL', async () => {
      const resolver = resolverFor();
      const seen = [await resolver.resolve('rebind.example', 'A'), await resolver.resolve('rebind.example', 'A')];
      expect(seen.map((answer) => answer.kind === 'records' && answer.records[0])).to.deep.equal([
        '192.0.2.1',
        '127.0.0.1',
      ]);
    });

    it('keeps a negative answer for the time in the SOA', async () => {
      const resolver = resolverFor();
      for (const ask of [
        () => resolver.resolve('nothing.example', 'A'),
        () => resolver.resolve('host.example', 'MX'),
      ]) {
        const before = zone.questions.length;
        await ask();
        await clock.advance(59_000);
        await ask();
        expect(zone.questions.length - before).to.equal(1);
        await clock.advance(2000);
        await ask();
        expect(zone.questions.length - before).to.equal(2);
      }
    });

    it('keeps a failure for five seconds only', async () => {
      const resolver = resolverFor();
      await resolver.resolve('broken.example', 'A');
      await clock.advance(4900);
      await resolver.resolve('broken.example', 'A');
      expect(zone.questions).to.have.length(1);
      zone.set({ 'broken.example': { A: ['192.0.2.1'] } });
      await clock.advance(200);
      expect(await resolver.resolve('broken.example', 'A')).to.have.property('kind', 'records');
    });

    it('joins equal concurrent queries', async () => {
      const resolver = resolverFor();
      const answers = await Promise.all(Array.from({ length: 50 }, () => resolver.resolve('host.example', 'A')));
      expect(answers.every((answer) => answer.kind === 'records')).to.equal(true);
      expect(zone.questions).to.have.length(1);
    });

    it('drops the least recently used entry when it is full', async () => {
      const resolver = resolverFor({ cacheEntries: 2 });
      await resolver.resolve('host.example', 'A');
      await resolver.resolve('long.example', 'A');
      await resolver.resolve('host.example', 'A');
      await resolver.resolve('four.example', 'A');
      await resolver.resolve('host.example', 'A');
      expect(zone.questions).to.have.length(3);
      await resolver.resolve('long.example', 'A');
      expect(zone.questions).to.have.length(4);
    });

    it('keeps fewer answers when they are large', async () => {
      const large = ['x'.repeat(250), ...Array.from({ length: 9 }, (_, i) => `${i}`.repeat(250))];
      zone.set({ ...Object.fromEntries(Array.from({ length: 4 }, (_, i) => [`n${i}.example`, { TXT: large }])) });
      zone.behave('truncate');
      const resolver = resolverFor({ cacheEntries: 20 }); // room for three of them
      for (let i = 0; i < 4; i++) await resolver.resolve(`n${i}.example`, 'TXT');
      const before = zone.questions.length;
      await resolver.resolve('n3.example', 'TXT');
      expect(zone.questions.length).to.equal(before);
      await resolver.resolve('n0.example', 'TXT');
      expect(zone.questions.length).to.equal(before + 2);
    });

    it('keeps nothing without capacity', async () => {
      const resolver = resolverFor({ cacheEntries: 0 });
      await resolver.resolve('host.example', 'A');
      await resolver.resolve('host.example', 'A');
      expect(zone.questions).to.have.length(2);
    });
  });

  describe('a query budget', () => {
    it('counts queries, cached or not', async () => {
      const resolver = resolverFor();
      const budget = createDnsBudget(2, 20_000, clock);
      await resolver.resolve('host.example', 'A', budget);
      await resolver.resolve('host.example', 'A', budget);
      expect(await resolver.resolve('long.example', 'A', budget)).to.deep.equal({ kind: 'failure', reason: 'budget' });
      expect(zone.questions).to.have.length(1);
    });

    it('is also a time limit for each caller', async () => {
      zone.behave('drop');
      const budget = createDnsBudget(10, 500, clock);
      const answer = resolverFor().resolve('host.example', 'A', budget);
      await until('the question', () => zone.questions.length > 0);
      await clock.advance(500);
      expect(await answer).to.deep.equal({ kind: 'failure', reason: 'budget' });
      expect(budget.left()).to.equal(0);
    });

    it('is not cached as the answer: callers with more time still get one', async () => {
      // Late enough for a busy machine to ask for it and to let the budget pass.
      zone.behave({ lateMs: 500 });
      const resolver = resolverFor();
      const poor = resolver.resolve('host.example', 'A', createDnsBudget(1, 100, clock));
      await until('the question', () => zone.questions.length > 0);
      const rich = resolver.resolve('host.example', 'A');
      await clock.advance(100);
      expect(await poor).to.deep.equal({ kind: 'failure', reason: 'budget' });
      expect(await rich).to.have.property('kind', 'records');
    });

    it('can be divided, so that one part cannot use up that of another', async () => {
      const whole = createDnsBudget(5, 1000, clock);
      const part = createShare(whole, 2, 400, clock);
      expect([part.take(), part.take(), part.take()]).to.deep.equal([true, true, false]);
      expect([whole.take(), whole.take(), whole.take(), whole.take()]).to.deep.equal([true, true, true, false]);
      await clock.advance(400);
      expect([part.left(), whole.left()]).to.deep.equal([0, 600]);
    });
  });

  describe('the addresses of a host', () => {
    it('are of both families', async () => {
      expect(await resolverFor().addresses('host.example')).to.deep.equal({
        kind: 'records',
        records: ['192.0.2.1', '2001:db8::1'],
        ttl: 120,
      });
    });

    it('are of one family when the other is unavailable', async () => {
      expect(await resolverFor().addresses('four.example')).to.deep.include({ records: ['192.0.2.4'] });
    });

    it('are unknown when a family fails and the other has none', async () => {
      zone.set({ 'half.example': { fails: { AAAA: 'servfail' } } });
      expect(await resolverFor().addresses('half.example')).to.deep.equal({ kind: 'failure', reason: 'servfail' });
    });

    it('distinguish a missing name from one without addresses', async () => {
      zone.set({ 'bare.example': { TXT: ['hello'] } });
      expect(await resolverFor().addresses('bare.example')).to.deep.equal({ kind: 'none' });
      expect(await resolverFor().addresses('nothing.example')).to.deep.equal({ kind: 'nxdomain' });
    });

    it('are loopback for localhost and names below it, without a query', async () => {
      for (const name of ['localhost', 'LOCALHOST.', 'app.localhost']) {
        expect(await resolverFor().addresses(name), name).to.deep.include({ records: ['127.0.0.1', '::1'] });
      }
      expect(zone.questions).to.deep.equal([]);
    });

    it('are the address itself for an IP address', async () => {
      expect(await resolverFor().addresses('192.0.2.77')).to.deep.include({ records: ['192.0.2.77'] });
      expect(await resolverFor().addresses('2001:db8::7')).to.deep.include({ records: ['2001:db8::7'] });
      expect(zone.questions).to.deep.equal([]);
    });

    it('come from the hosts file first, which is read again after a change', async () => {
      const hostsFile = join(await tempDir(), 'hosts');
      await writeFile(
        hostsFile,
        '# ours\n10.1.2.3\tapp.example App2 # two names\n2001:db8::9 app.example\nnonsense app.example\n',
      );
      const resolver = resolverFor({ hostsFile });
      expect(await resolver.addresses('APP.example')).to.deep.include({ records: ['10.1.2.3', '2001:db8::9'] });
      expect(await resolver.addresses('app2')).to.deep.include({ records: ['10.1.2.3'] });
      expect(zone.questions).to.deep.equal([]);
      await writeFile(hostsFile, '10.9.9.9 app.example\n');
      await clock.advance(11_000);
      expect(await resolver.addresses('app.example')).to.deep.include({ records: ['10.9.9.9'] });
    });
  });
});
