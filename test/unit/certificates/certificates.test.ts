import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { NO_METRICS } from '../../../src/base/metrics.ts';
import type { Acme, PublishChallenge } from '../../../src/certificates/acme.ts';
import { AcmeFault } from '../../../src/certificates/acme-http.ts';
import { createCertificates, retryMissing } from '../../../src/certificates/certificates.ts';
import { createChallenges } from '../../../src/certificates/challenges.ts';
import { createCertificateNames } from '../../../src/certificates/names.ts';
import { StoreAway } from '../../../src/store/driver/port.ts';
import type { Store } from '../../../src/store/store.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { issueCertificate } from '../../support/issuer.ts';
import { createTestLog } from '../../support/log.ts';
import { openTestStore } from '../../support/store.ts';
import { tempDir } from '../../support/temp.ts';
import { until } from '../../support/until.ts';
import { type ZoneRecords, zoneResolver } from '../../support/zone.ts';

// When certificates are ordered, by which host, and what is served meanwhile. The authority is a double here; the real
// client and a real authority are in test/interop/acme.test.ts.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const HOST = 'mx.postern.test';
const API = 'api.postern.test';
const HERE: ZoneRecords = { [HOST]: { A: ['192.0.2.1'] }, [API]: { A: ['192.0.2.2'] } };

/** An authority that issues what OpenSSL signs. */
function createAuthority(clock: TestClock) {
  const orders: { name: string; replaces: string | undefined; at: number }[] = [];
  const state = {
    fault: undefined as AcmeFault | undefined,
    /** Names that fail. */
    bad: new Set<string>(),
    window: undefined as { start: number; end: number } | undefined,
    during: async (_name: string, _show: PublishChallenge) => {},
  };
  const acme: Acme = {
    async order(name, show, replaces) {
      orders.push({ name, replaces, at: clock.now() });
      await state.during(name, show);
      if (state.fault) throw state.fault;
      if (state.bad.has(name)) throw new AcmeFault({ type: 'connection', detail: 'Connection refused' });
      return issueCertificate({ name });
    },
    renewal: async () => state.window && { ...state.window, askAfterMs: undefined },
    caaNames: async () => ['ca.test'],
    stop: async () => {},
  };
  return { acme, orders, ...state, state };
}

describe('certificates', () => {
  let store: Store;
  let clock: TestClock;
  let authority: ReturnType<typeof createAuthority>;
  let hosts: { stop(): Promise<void> }[];
  beforeEach(async () => {
    store = await openTestStore();
    // OpenSSL writes the dates of this machine.
    clock = createTestClock(Date.now());
    authority = createAuthority(clock);
    hosts = [];
  });
  afterEach(async () => {
    for (const host of hosts) await host.stop();
    await store.close();
  });

  const customer = () => ({
    id: 'customer.test',
    account: 'one',
    domain: 'customer.test',
    createdAt: new Date(clock.now()),
    validMx: true,
    testedAt: null,
  });

  /** A host over the store, or over one that can be away. */
  async function host({
    rows = store,
    copyFile,
    zone = HERE,
    policies = false,
    directory = 'https://ca.test/directory',
  }: {
    rows?: Store;
    copyFile?: string;
    zone?: ZoneRecords;
    policies?: boolean;
    directory?: string;
  } = {}) {
    const log = createTestLog();
    const changed: string[] = [];
    const challenges = createChallenges({ store: rows, clock });
    const names = createCertificateNames(
      { own: [HOST, `https://${API}`], policies },
      { store, resolver: zoneResolver(zone) },
    );
    let reads = 0;
    const certificates = createCertificates(
      { authority: directory, copyFile, minVersion: 'TLSv1.2' },
      {
        store: rows,
        names: { ...names, all: () => names.all().finally(() => reads++) },
        challenges,
        acme: authority.acme,
        changed: (name) => changed.push(name),
        clock,
        log,
        metrics: NO_METRICS,
      },
    );
    await certificates.load();
    hosts.push(certificates);
    return { ...certificates, challenges, log, changed, reads: () => reads };
  }
  /** Leaps, then lets time go on until something is done. */
  async function pass(ms: number, done: () => boolean | Promise<boolean> = () => true) {
    await clock.leap(ms);
    await until('it', async () => {
      await clock.advance(100);
      return done();
    });
  }
  const orderedNames = () => authority.orders.map(({ name }) => name);
  const dueAt = async (name: string) => (await store.certificates.one({ id: name }))?.dueAt.getTime() ?? 0;
  /** Whether the store has certificates of both names. */
  const saved = async () =>
    (await store.certificates.many({ id: { in: [HOST, API] } })).filter(({ chain }) => chain !== null).length === 2;
  /** The store, which is away while `away.now`. */
  function fragile() {
    const away = { now: false };
    const guarded = <T extends object>(part: T): T =>
      new Proxy(part, {
        get: (target, name) => {
          const value = Reflect.get(target, name);
          if (typeof value !== 'function') return value;
          return async (...given: unknown[]) => {
            if (away.now) throw new StoreAway('away');
            return value.apply(target, given);
          };
        },
      });
    const { certificates, revisions, acmeChallenges } = store;
    const rows = {
      ...store,
      certificates: guarded(certificates),
      revisions: guarded(revisions),
      acmeChallenges: guarded(acmeChallenges),
    };
    return { rows, away };
  }

  it('are ordered by one of two hosts, and served by both', async () => {
    const [a, b] = [await host(), await host()];
    a.start();
    b.start();
    await pass(0, () => a.of(API) !== undefined || b.of(API) !== undefined);
    await pass(MINUTE, () => a.of(API) !== undefined && b.of(API) !== undefined && b.of(HOST) !== undefined);
    expect(orderedNames().toSorted()).to.deep.equal([API, HOST]);
    expect(a.of(API)?.chain).to.equal(b.of(API)?.chain);
    expect([a.changed.toSorted(), b.changed.toSorted()]).to.deep.equal([
      [API, HOST],
      [API, HOST],
    ]);
  });

  it('are proven by any host, while the order lasts', async () => {
    const [a, b] = [await host(), await host()];
    const token = 'a-token-of-the-authority';
    let answer: string | undefined;
    authority.state.during = async (_name, show) => {
      const hide = await show(token, 'the answer');
      answer = await b.challenges.answerTo(token);
      await hide();
    };
    a.start();
    await pass(0, () => a.of(API) !== undefined);
    expect(answer).to.equal('the answer');
    expect(await b.challenges.answerTo(token)).to.equal(undefined);
  });

  it('are renewed with a third of their lifetime left, never earlier than with 39 percent', async () => {
    const one = await host();
    one.start();
    await pass(0, saved);
    const began = clock.now();
    for (const name of [HOST, API]) {
      const left = (began + 90 * DAY - (await dueAt(name))) / (90 * DAY);
      expect(left).to.be.within(1 / 3 - 0.01, 1 / 3 + 1 / 20 + 0.01);
    }
    await pass(50 * DAY);
    expect(authority.orders).to.have.length(2);
    const before = one.of(API);
    await pass(14 * DAY, () => one.of(API) !== before && authority.orders.length === 4);
    expect(authority.orders.at(-1)?.replaces).to.match(/^aYhba4dGQEHhs3uEe6CuLN4ByNQ\.[\w-]+$/);
    expect(one.log.of('certificate.renewed')).to.have.length(2);
  });

  it('of another authority are replaced after a start, once, and not as renewals', async () => {
    const staging = await host({ directory: 'https://staging.ca.test/directory' });
    staging.start();
    await pass(0, saved);
    await staging.stop();
    const [before, count] = [staging.of(API), authority.orders.length];
    const one = await host();
    expect(one.of(API)?.chain, 'until it has another').to.equal(before?.chain);
    one.start();
    await pass(0, async () => one.of(API)?.chain !== before?.chain && (await saved()));
    expect(authority.orders.slice(count).map(({ name, replaces }) => [name, replaces])).to.deep.equal([
      [HOST, undefined],
      [API, undefined],
    ]);
    await pass(DAY);
    await one.stop();
    (await host()).start();
    await pass(DAY);
    expect(authority.orders).to.have.length(count + 2);
  });

  it('are renewed earlier if the authority suggests it, and never later', async () => {
    const one = await host();
    one.start();
    await pass(0, saved);
    const own = await dueAt(API);
    authority.state.window = { start: own + 5 * DAY, end: own + 6 * DAY };
    await pass(7 * HOUR);
    expect(await dueAt(API)).to.equal(own);
    authority.state.window = { start: clock.now() - HOUR, end: clock.now() };
    await pass(7 * HOUR, () => authority.orders.length > 2);
  });

  it('that fail are ordered again after 5 minutes, then less and less often, with the advice in the log', async () => {
    authority.state.bad.add(API);
    const one = await host();
    one.start();
    for (const [n, minutes] of [5, 10, 20, 40, 80, 160, 320, 360, 360].entries()) {
      const row = () => store.certificates.one({ id: API });
      await pass(0, async () => (await row())?.failures === n + 1);
      const { dueAt: again, failedAt } = (await row()) ?? {};
      expect(Number(again) - Number(failedAt)).to.equal(minutes * MINUTE);
      await pass(minutes * MINUTE);
    }
    const { reason, note } = one.log.of('certificate.failed')[0]?.fields ?? {};
    expect([reason, note]).to.deep.equal([
      'Connection refused',
      `open port 80 of ${API} to the internet: the authority must reach this host there`,
    ]);
    expect(one.of(HOST)).to.not.equal(undefined);
    authority.state.bad.clear();
    await one.retry();
    await pass(MINUTE, saved);
    expect(await store.certificates.one({ id: API })).to.include({ failures: 0, error: null });
  });

  it('of accounts wait as long as the authority limits orders, and our own as long as it says', async () => {
    authority.state.fault = new AcmeFault({ type: 'rateLimited', detail: 'too many', retryAfterMs: 8 * HOUR });
    await store.trackingDomains.insert(trackingDomain('track.customer.test', true, clock.now()));
    await store.trackingDomains.insert(trackingDomain('other.customer.test', false, clock.now()));
    const one = await host();
    one.start();
    await pass(0, async () => (await store.certificates.one({ id: API }))?.failures === 1);
    await pass(MINUTE);
    expect(orderedNames()).to.deep.equal([HOST, API]);
    expect((await dueAt(API)) - clock.now()).to.be.within(7 * HOUR, 8 * HOUR);
    authority.state.fault = undefined;
    await pass(8 * HOUR, () => one.of('track.customer.test') !== undefined);
    expect(orderedNames()).to.not.include('other.customer.test');
  });

  it('of policies are ordered once their names resolve to this host, and no failure is counted before', async () => {
    await store.inboundDomains.insert(customer());
    const zone: Record<string, ZoneRecords[string]> = { ...HERE, 'mta-sts.customer.test': { A: ['198.51.100.1'] } };
    const one = await host({ zone, policies: true });
    one.start();
    await pass(0, () => one.of(API) !== undefined);
    await pass(MINUTE);
    expect(orderedNames()).to.not.include('mta-sts.customer.test');
    expect(one.log.of('certificate.failed')).to.deep.equal([]);
    await one.stop();
    const other = await host({ zone: { ...HERE, 'mta-sts.customer.test': { A: ['192.0.2.2'] } }, policies: true });
    other.start();
    await pass(HOUR + MINUTE, () => other.of('mta-sts.customer.test') !== undefined);
  });

  it('of a new domain are ordered at the next poll once its records are published, without a wait for the names', async () => {
    const one = await host({ zone: { ...HERE, 'mta-sts.customer.test': { A: ['192.0.2.2'] } }, policies: true });
    one.start();
    await pass(0, saved);
    // Once at the start, and once because certificates were saved.
    await pass(MINUTE, () => one.reads() >= 2);
    await store.inboundDomains.insert(customer());
    await pass(MINUTE);
    expect(orderedNames()).to.not.include('mta-sts.customer.test');
    const published = clock.now();
    await retryMissing(store, clock);
    await pass(20_000, () => one.of('mta-sts.customer.test') !== undefined);
    expect((authority.orders.at(-1)?.at ?? Infinity) - published).to.be.below(MINUTE);
  });

  it('that are issued while the store is away are served at once, and saved when it is back', async () => {
    const { rows, away } = fragile();
    const one = await host({ rows });
    authority.state.during = async () => {
      away.now = true;
    };
    one.start();
    await pass(0, () => one.of(HOST) !== undefined);
    expect((await store.certificates.one({ id: HOST }))?.chain).to.equal(null);
    away.now = false;
    authority.state.during = async () => {};
    await pass(MINUTE, async () => (await store.certificates.one({ id: HOST }))?.chain === one.of(HOST)?.chain);
    expect(orderedNames().filter((name) => name === HOST)).to.have.length(1);
  });

  it('are served by a host that starts while the store is away', async () => {
    const copyFile = join(await tempDir(), 'certificates.json');
    const one = await host({ copyFile });
    one.start();
    await pass(0, () => one.of(API) !== undefined);
    await pass(MINUTE, () =>
      readFile(copyFile, 'utf8').then(
        (text) => text.includes(API) && text.includes(HOST),
        () => false,
      ),
    );
    const { rows, away } = fragile();
    away.now = true;
    const later = await host({ rows, copyFile });
    expect(later.of(API)?.chain).to.equal(one.of(API)?.chain);
    expect(later.contextFor(API)).to.not.equal(undefined);
    expect(await (await host({ rows, copyFile: `${copyFile}.none` })).of(API)).to.equal(undefined);
  });

  it('for other names are that of our first name, and names are ours in any case', async () => {
    const one = await host();
    one.start();
    await pass(0, () => one.of(API) !== undefined);
    expect(one.contextFor('elsewhere.test')).to.equal(one.contextFor(HOST));
    expect(one.contextFor(API.toUpperCase())).to.equal(one.contextFor(API));
    expect(one.contextFor(API)).to.not.equal(one.contextFor(HOST));
    expect([one.isOurs(API), one.isOurs('elsewhere.test')]).to.deep.equal([true, false]);
  });
});

const trackingDomain = (domain: string, valid: boolean, now: number) => ({
  id: `one ${domain}`,
  account: 'one',
  domain,
  createdAt: new Date(now),
  lastTestedAt: new Date(now),
  valid,
  validAfter: null,
  error: null,
  nextTestAt: new Date(now + DAY),
  version: 0,
});
