import { expect } from 'chai';
import { type CrowdReport, startCrowd } from '../support/attacks/crowd.ts';
import { figures, percentile } from '../support/attacks/figures.ts';
import type { Helper } from '../support/attacks/helper.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { startProbe } from '../support/attacks/probe.ts';
import { size } from '../support/attacks/sizes.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { message, sendMail } from '../support/mail.ts';
import { until } from '../support/until.ts';

const IDLE = size(10_000, 1500);
/** Large enough that the idle ones are not yet a crowd, whose sessions are closed early. */
const SLOTS = Math.ceil(IDLE / 0.75);
const OVER = 60; // clients that come when there is no slot
const NEWCOMERS = SLOTS - IDLE + OVER;
const CROWDS = 2;
const MEMORY_MB = size(400, 330);
const BANNER_MS = size(50, 200);

/** Settings of a host that expects a crowd. */
const settings = (slots: number) => ({
  POSTERN_SMTP__MAX_SESSIONS: String(slots),
  POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '50',
});

describe(`${IDLE} idle sessions`, () => {
  const running: { stop(): Promise<void> }[] = [];
  const keep = <T extends { stop(): Promise<void> }>(part: T): T => {
    running.push(part);
    return part;
  };
  // As on a host that has run before: Node saves what it compiled when it ends. Compiling takes 50 MB.
  before(async () => {
    const victim = await startVictim();
    await victim.postern.end();
    await victim.stop();
  });
  afterEach(async () => {
    for (const part of running.splice(0).reverse()) await part.stop();
  });

  async function crowdOf(victim: Victim, count: number, net: number): Promise<Helper<CrowdReport>> {
    const crowd = keep(startCrowd({ at: victim.postern.smtp, count, manner: 'idle', net, perAddress: 40 }));
    await until('the crowd', async () => (await crowd.report()).ready, 120_000);
    return crowd;
  }

  /** The daemon with its crowd, and what became of memory and greetings. */
  async function fill(slots: number, patches: readonly Patch[] = []) {
    const victim = keep(await startVictim({ env: settings(slots), patches }));
    const before = await victim.rss();
    const crowds = await Promise.all(Array.from({ length: CROWDS }, (_, i) => crowdOf(victim, IDLE / CROWDS, 10 + i)));
    const probe = keep(startProbe(victim.postern.smtp, 2));
    const banners: number[] = [];
    await until(
      'greetings of others',
      async () => banners.push(...(await probe.report()).banners) >= size(500, 40),
      60_000,
    );
    const open = (await Promise.all(crowds.map((crowd) => crowd.report()))).reduce(
      (sum, report) => sum + report.open,
      0,
    );
    await probe.stop();
    return { victim, crowds, before, open, rss: await victim.rss(), p99: percentile(banners, 0.99) };
  }

  const openOf = async (crowds: readonly Helper<CrowdReport>[]) =>
    (await Promise.all(crowds.map((crowd) => crowd.report()))).reduce((sum, { open }) => sum + open, 0);

  it('use little memory, do not delay others, and are replaced by new connections when the limit is reached', async () => {
    const { victim, crowds, before, open, rss, p99 } = await fill(SLOTS);
    expect(open, 'sessions that are held').to.equal(IDLE);
    expect(await sendMail(victim.postern.smtp, { from: 'a@sender.test', to: 'x@in.test' }, message('good'))).to.match(
      /^250/,
    );
    await until('the delivery', () => victim.hook.requests.some(({ body }) => body.includes('good')));
    const newcomers = await crowdOf(victim, NEWCOMERS, 30);
    const { first } = await newcomers.report();
    expect(Object.keys(first), 'what newcomers are told').to.deep.equal(['220 in.postern.test ESMTP Postern']);
    await until('no more sessions than slots', async () => (await openOf([...crowds, newcomers])) <= SLOTS);
    expect(await sendMail(victim.postern.smtp, { from: 'a@sender.test', to: 'x@in.test' }, message('late'))).to.match(
      /^250/,
    );
    figures(10, {
      sessions: open,
      'RSS MB before': before,
      'RSS MB with them': rss,
      'KB each': ((rss - before) * 1024) / open,
      'greeting p99 ms': p99,
      'newcomers let in': first['220 in.postern.test ESMTP Postern'] ?? 0,
    });
    expect(rss, 'MB').to.be.below(MEMORY_MB);
    expect(p99, 'ms').to.be.below(BANNER_MS);
    expect(victim.faults()).to.deep.equal([]);
  });

  it('would use more memory, delay others and exceed the limit without the protection (control)', async () => {
    const weight = 1024 * size(40, 200);
    const { victim, crowds, rss, p99 } = await fill(100_000, [
      {
        file: 'smtp/session.ts',
        from: 'const dialog = { settings,',
        to: `const dialog = { weight: Buffer.alloc(${weight}, 1), settings,`,
      },
      {
        file: 'smtp/admission.ts',
        from: 'const entered = lag.lagging()',
        to: `if (client === '127.0.0.1') for (const end = performance.now() + ${BANNER_MS + 10}; performance.now() < end;);\n      const entered = lag.lagging()`,
      },
    ]);
    const newcomers = await crowdOf(victim, NEWCOMERS, 30);
    expect(await openOf([...crowds, newcomers])).to.be.above(SLOTS);
    expect(rss, 'MB').to.be.above(MEMORY_MB);
    expect(p99, 'ms').to.be.above(BANNER_MS);
  });
});
