import { expect } from 'chai';
import { systemClock } from '../../src/base/clock.ts';
import { createIds } from '../../src/base/ids.ts';
import { NO_METRICS } from '../../src/base/metrics.ts';
import { createResolver } from '../../src/dns/resolver.ts';
import { type Canaries, OPEN_ADDRESS, startCanaries, watchConnections } from '../support/attacks/canaries.ts';
import { figures, percentile } from '../support/attacks/figures.ts';
import { type Liar, packet, startLiar } from '../support/attacks/liar.ts';
import { LIES, lie } from '../support/attacks/lies.ts';
import { size } from '../support/attacks/sizes.ts';
import { startDaemon, type TestDaemon } from '../support/daemon.ts';
import { eventsOf, postsOf } from '../support/events.ts';
import { createTestLog } from '../support/log.ts';
import { type HostPort, message, openSession, sendMail } from '../support/mail.ts';
import { startMailSink } from '../support/mail-sink.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

// A name server that does whatever it likes. Mail is taken all the same, at once, and nobody is believed who should not
// be.

/** Routes for each of the names that change. */
const ROUTES = size(50, 10);
const DETAILS: Readonly<Record<string, string>> = {
  temperror: 'temporary DNS error in processing',
  permerror: 'permanent error in processing',
  none: '',
  fail: 'SPF fail - not authorized',
  pass: 'sender SPF authorized',
};

describe('a name server that lies', () => {
  let liar: Liar;
  let hook: Receiver;
  let postern: TestDaemon;
  const took: number[] = [];
  const rounds = size(5, 1);

  before(async () => {
    [liar, hook] = [await startLiar(lie), await startReceiver()];
    postern = await startDaemon({
      POSTERN_DNS__SERVERS: liar.server,
      POSTERN_DNS__TIMEOUT_MS: '4000',
      POSTERN_DNS__BUDGET_MS: '15000',
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1',
      POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '1000',
      POSTERN_SMTP__MAX_LOOP_LAG_MS: '20000',
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
  });
  after(async () => {
    await postern.stop();
    await Promise.all([hook.stop(), liar.stop()]);
  });

  /** Takes mail from a domain and answers what came of it: its SPF verdict. */
  async function verdictOn(domain: string, round = 0): Promise<{ result: string; detail: string }> {
    const subject = `${domain}-${round}`;
    const began = performance.now();
    expect(await sendMail(postern.smtp, { from: `a@${domain}`, to: 'b@in.test' }, message(subject))).to.match(/^250/);
    took.push(performance.now() - began);
    const post = await until(
      `the post about ${domain}`,
      () => postsOf(hook.requests).find((one) => eventsOf(one)[0].msg.subject === subject),
      30_000,
    );
    return eventsOf(post)[0].msg.spf;
  }

  it(`is not believed for any of ${Object.keys(LIES).length} false answers; mail is delivered with a verdict and its reason`, async () => {
    const seen = await Promise.all(
      Array.from({ length: rounds }, (_, round) =>
        Object.entries(LIES).map(async ([name, [result]]) => {
          const verdict = await verdictOn(`${name}.lie.test`, round);
          return { name, wanted: result, ...verdict };
        }),
      ).flat(),
    );
    const wrong = seen.filter(({ wanted, result, detail }) => result !== wanted || detail !== DETAILS[result]);
    figures(17, {
      lies: Object.keys(LIES).length,
      mails: seen.length,
      lost: Object.keys(LIES).length * rounds - seen.length,
      believed: seen.filter(({ result }) => result === 'pass').length,
      'SPF temperror': seen.filter(({ result }) => result === 'temperror').length,
      'ms to 250 p50': percentile(took, 0.5),
      p99: percentile(took, 0.99),
      questions: liar.asked.length,
    });
    expect(wrong).to.deep.equal([]);
    expect(postern.log.lines.filter(({ event }) => /fault$/.test(event) && event !== 'dns.fault')).to.deep.equal([]);
  });

  it('does not poison the cache for other names', async () => {
    expect((await verdictOn('victim.test')).result).to.equal('fail');
    expect((await verdictOn('other.test')).result).to.equal('fail');
  });

  it('would be believed if its answers were used directly (control)', async () => {
    expect(await verdictOn('forged.test')).to.deep.equal({ result: 'pass', detail: DETAILS['pass'] });
  });
});

describe('a name server that does not answer', () => {
  it('does not delay the 250; mail is stored first and gets temperror later', async () => {
    let silent = true;
    const liar = await startLiar((query) => (silent ? [] : [{ bytes: packet(query, { flags: 0x8182 }) }]));
    const hook = await startReceiver();
    const postern = await startDaemon({
      POSTERN_DNS__SERVERS: liar.server,
      POSTERN_DNS__TIMEOUT_MS: '12000',
      POSTERN_DNS__BUDGET_MS: '15000',
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: '127.0.0.1',
    });
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    await postern.api('/inbound/add-route', { domain: 'in.test', pattern: '*', url: hook.url });
    const count = size(200, 30);
    const seen = await measure(postern.smtp, count, () => liar.answers());
    expect(postsOf(hook.requests), 'verdicts wait for DNS').to.have.length(0);
    await until('questions', () => liar.asked.length > 0);
    silent = false;
    const posts = await until(
      'every post',
      () => postsOf(hook.requests).length === count && postsOf(hook.requests),
      60_000,
    );
    const words = posts.map((post) => eventsOf(post)[0].msg.spf);
    await postern.stop();
    await Promise.all([hook.stop(), liar.stop()]);
    figures(17, {
      'mails while DNS was silent': count,
      'answers before the last 250': seen.answers,
      'ms to 250 p50': percentile(seen.took, 0.5),
      p99: percentile(seen.took, 0.99),
      temperror: words.filter(({ result }) => result === 'temperror').length,
    });
    expect(seen.answers).to.equal(0);
    expect(words).to.deep.equal(
      Array.from({ length: count }, () => ({ result: 'temperror', detail: DETAILS['temperror'] })),
    );
  });

  it('delays a server that queries DNS before it replies (control)', async () => {
    const liar = await startLiar((query) => [{ bytes: packet(query, { flags: 0x8182 }), after: 300 }]);
    const clock = systemClock;
    const resolver = createResolver(
      { servers: [liar.server], timeoutMs: 5000, questionsPerMessage: 60, budgetMs: 5000 },
      { clock, log: createTestLog(), ids: createIds(clock), metrics: NO_METRICS },
    );
    const asking = await startMailSink({
      onMailFrom: (address, _session, done) => {
        void resolver.resolve(address.address.split('@')[1] ?? '', 'TXT').then(() => done());
      },
    });
    const seen = await measure({ host: '127.0.0.1', port: asking.port }, 3, () => liar.answers());
    await Promise.all([asking.stop(), resolver.stop()]);
    await liar.stop();
    expect(seen.answers).to.equal(3);
    expect(percentile(seen.took, 0.5)).to.be.above(250);
  });
});

describe('a name whose address changes (rebinding, TTL 0)', () => {
  let canaries: Canaries;
  let zone: Zone;
  before(async () => {
    [canaries, zone] = [await startCanaries(), await startZone({})];
  });
  after(() => Promise.all([canaries.stop(), zone.stop()]));

  /** Mail for a name whose answers take turns, and what was reached. */
  async function rebind(allowed: string, mails: number) {
    // By chance and not in turn, lest the answers keep step with the questions of one call.
    let state = 17;
    const chance = (below: number) => {
      state = (Math.imul(state, 1664525) + 1013904223) >>> 0; // Numerical Recipes
      return Math.floor((state / 2 ** 32) * below);
    };
    const turn =
      () =>
      <T>(first: T, ...more: readonly T[]): T =>
        [first, ...more][chance(more.length + 1)] ?? first;
    const [one, two, three, four] = [turn(), turn(), turn(), turn()];
    zone.set({
      'a.rebind.test': { ttl: 0, A: () => one([OPEN_ADDRESS], ['127.0.0.1']) },
      'b.rebind.test': { ttl: 0, A: [OPEN_ADDRESS], AAAA: () => two<string[]>([], ['::1']) },
      'c.rebind.test': {
        ttl: 0,
        A: () => three([OPEN_ADDRESS], [OPEN_ADDRESS, '127.0.0.2'], ['169.254.169.254', OPEN_ADDRESS]),
      },
      'd.rebind.test': { ttl: 0, A: () => four([OPEN_ADDRESS], [OPEN_ADDRESS], [OPEN_ADDRESS], ['10.0.0.1']) },
    });
    const postern = await startDaemon({
      POSTERN_DNS__SERVERS: zone.server,
      POSTERN_DNS__TIMEOUT_MS: '2000',
      POSTERN_WEBHOOKS__ALLOW_PRIVATE: allowed,
    });
    const watch = watchConnections();
    await postern.api('/inbound/add-domain', { domain: 'in.test' });
    // Each route has an endpoint of its own, so that no breaker keeps posts back.
    const patterns = ['a', 'b', 'c', 'd'].flatMap((name) => Array.from({ length: ROUTES }, (_, n) => `${name}-${n}`));
    let adds = 0;
    for (const pattern of patterns) {
      const url = `http://${pattern[0]}.rebind.test:${canaries.port}/${pattern}`;
      await until(`a good moment for ${pattern}`, async () => {
        adds++;
        return (await postern.ask('/inbound/add-route', { domain: 'in.test', pattern, url })).status === 200;
      });
    }
    for (let n = 0; n < mails; n++)
      await sendMail(
        postern.smtp,
        { from: 'x@out.test', to: patterns.map((pattern) => `${pattern}@in.test`) },
        message(`n${n}`),
      );
    const ended = () =>
      postern.log.lines.filter(({ event }) => event === 'delivery.delivered' || event === 'delivery.deferred');
    await until(
      'an attempt for each',
      () => new Set(ended().map(({ fields }) => fields.delivery)).size === mails * patterns.length,
      60_000,
    );
    const refused = ended().filter(({ fields }) => fields.error === 'forbidden address').length;
    watch.stop();
    await postern.stop();
    return {
      adds,
      refused,
      deliveries: mails * patterns.length,
      inward: watch.attempts.filter(
        ({ address, port }) => address !== OPEN_ADDRESS && (port === canaries.port || port === 80),
      ).length,
    };
  }

  it('never causes a post to a private address', async () => {
    const { adds, refused, inward, deliveries } = await rebind(OPEN_ADDRESS, 3);
    figures(17, {
      'rebinding: questions by webhookexists': adds,
      deliveries,
      'posts to the open address': canaries.opened.length,
      'refused as forbidden': refused,
      'connections to canaries': canaries.hits().length,
    });
    expect(canaries.opened.length).to.be.above(0);
    expect(refused).to.be.above(0);
    expect({ hits: canaries.hits(), inward }).to.deep.equal({ hits: [], inward: 0 });
  });

  it('causes one where loopback is allowed (control)', async () => {
    const { inward } = await rebind('127.0.0.0/8,::1', 1);
    expect(inward).to.be.above(0);
    expect(canaries.hits().length).to.be.above(0);
  });
});

/** Sends mail, session after session: how long each took, and how many DNS answers had been given by then. */
async function measure(
  server: HostPort,
  count: number,
  answers: () => number,
): Promise<{ took: number[]; answers: number }> {
  const took: number[] = [];
  for (let n = 0; n < count; n++) {
    const began = performance.now();
    const session = await openSession(server);
    for (const line of ['EHLO client.out.test', `MAIL FROM:<a@n${n}.out.test>`, 'RCPT TO:<b@in.test>', 'DATA'])
      expect(await session.say(line)).to.match(/^[23]/);
    expect(await session.data(message(`silent-${n}`))).to.match(/^250/);
    session.close();
    took.push(performance.now() - began);
  }
  return { took, answers: answers() };
}
