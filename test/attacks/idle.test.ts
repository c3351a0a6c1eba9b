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
const ROOM = 50; // places that are left for others
const OVER = 60; // clients that come when there is no place
const CROWDS = 2;
const MEMORY_MB = size(400, 330);
const BANNER_MS = size(50, 200);

/** Settings of a host that expects a crowd. */
const settings = (places: number) => ({
  POSTERN_SMTP__MAX_SESSIONS: String(places),
  POSTERN_SMTP__MAX_SESSIONS_PER_ADDRESS: '50',
});

describe(`${IDLE} idle sessions`, () => {
  const running: { stop(): Promise<void> }[] = [];
  const keep = <T extends { stop(): Promise<void> }>(part: T): T => {
    running.push(part);
    return part;
  };
  afterEach(async () => {
    for (const part of running.splice(0).reverse()) await part.stop();
  });

  async function crowdOf(victim: Victim, count: number, net: number): Promise<Helper<CrowdReport>> {
    const crowd = keep(startCrowd({ at: victim.postern.smtp, count, manner: 'idle', net, perAddress: 40 }));
    await until('the crowd', async () => (await crowd.report()).ready, 120_000);
    return crowd;
  }

  /** The daemon with its crowd, and what became of memory and greetings. */
  async function fill(places: number, patches: readonly Patch[] = []) {
    const victim = keep(await startVictim({ env: settings(places), patches }));
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
    return { victim, before, open, rss: await victim.rss(), p99: percentile(banners, 0.99) };
  }

  it('cost little memory, keep nobody waiting, and over the cap each is told 421 4.3.2', async () => {
    const { victim, before, open, rss, p99 } = await fill(IDLE + ROOM);
    expect(open, 'sessions that are held').to.equal(IDLE);
    expect(await sendMail(victim.postern.smtp, { from: 'a@sender.test', to: 'x@in.test' }, message('good'))).to.match(
      /^250/,
    );
    await until('the delivery', () => victim.hook.requests.some(({ body }) => body.includes('good')));
    const { first } = await (await crowdOf(victim, ROOM + OVER, 30)).report();
    const refused = first['421 4.3.2 Too many connections, try again later'] ?? 0;
    figures(10, {
      sessions: open,
      'RSS MB before': before,
      'RSS MB with them': rss,
      'KB each': ((rss - before) * 1024) / open,
      'greeting p99 ms': p99,
      'told 421 4.3.2': refused,
    });
    expect(refused).to.equal(OVER);
    expect(Object.keys(first), 'nothing but greetings and 421').to.have.length(2);
    expect(rss, 'MB').to.be.below(MEMORY_MB);
    expect(p99, 'ms').to.be.below(BANNER_MS);
    expect(victim.faults()).to.deep.equal([]);
  });

  it('would take more memory, keep others waiting and turn nobody away without what protects us (control)', async () => {
    const weight = 1024 * size(40, 200);
    const { victim, rss, p99 } = await fill(100_000, [
      {
        file: 'smtp/session.ts',
        from: 'const dialog = { settings,',
        to: `const dialog = { weight: Buffer.alloc(${weight}, 1), settings,`,
      },
      {
        file: 'smtp/admission.ts',
        from: 'const refused = lag.lagging()',
        to: `if (client === '127.0.0.1') for (const end = performance.now() + ${BANNER_MS + 10}; performance.now() < end;);\n      const refused = lag.lagging()`,
      },
    ]);
    const { first } = await (await crowdOf(victim, ROOM + OVER, 30)).report();
    expect(rss, 'MB').to.be.above(MEMORY_MB);
    expect(p99, 'ms').to.be.above(BANNER_MS);
    expect(Object.keys(first)).to.deep.equal(['220 in.postern.test ESMTP Postern']);
  });
});
