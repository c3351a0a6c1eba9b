import { expect } from 'chai';
import { until } from '../test/support/until.ts';
import { startCrowd, type CrowdReport, type Manner } from './support/crowd.ts';
import { figures } from './support/figures.ts';
import { startHelper, type Helper } from './support/helper.ts';
import type { Patch } from './support/patches.ts';
import { size } from './support/sizes.ts';
import { startVictim, type Victim } from './support/victim.ts';

const CLIENTS = size(5000, 500);
const GOOD_SESSIONS = 8;
const MEASURED_MS = size(12_000, 2500);
const ALONE_MS = size(5000, 1500);
/** What a crowd may take of a processor. All sessions share one loop, so that good mail keeps the rest of it. */
const TAKEN = 0.2;

// Seconds. The window in which DATA must keep its pace is no setting.
const COMMAND = size(60, 8);
const SESSION = size(90, 12);
const WINDOW = size(30, 7);
// The sweep comes once a second, and the machine may be busy.
const SLACK = size(6, 15);

const MANNERS: readonly { readonly manner: Manner; readonly share: number; readonly told: string; readonly after: number }[] = [
  { manner: 'line', share: 0.4, told: '421 4.4.2 Timeout while waiting for the end of a command', after: COMMAND },
  { manner: 'data', share: 0.4, told: '421 4.4.2 Message arrives too slowly', after: WINDOW },
  { manner: 'noops', share: 0.2, told: '421 4.4.2 Session took too long', after: SESSION },
];

interface Rate { readonly perSecond: number; readonly perWork: number }
/** What is left of the rate during an attack. */
const left = (of: keyof Rate, during: Rate, ...quiet: readonly Rate[]) => during[of] / (quiet.reduce((sum, rate) => sum + rate[of], 0) / quiet.length);

const pause = (ms: number) => new Promise((resolve) => { setTimeout(resolve, ms); });

describe(`${CLIENTS} clients that send a byte a second`, () => {
  const running: { stop(): Promise<void> }[] = [];
  const keep = <T extends { stop(): Promise<void> }>(part: T): T => { running.push(part); return part; };
  afterEach(async () => { for (const part of running.splice(0).reverse()) await part.stop(); });

  async function start(env: Readonly<Record<string, string>>, patches: readonly Patch[] = []) {
    const window = { file: 'smtp/limits.ts', from: 'RATE_WINDOW_S = 30', to: `RATE_WINDOW_S = ${WINDOW}` };
    const victim = keep(await startVictim({ patches: [window, ...patches], env: { POSTERN_SMTP__MAX_SESSIONS: '20000', ...env } }));
    const good = goodMail(victim);
    await rate(victim, good, MEASURED_MS); // the first seconds are those of the compiler
    return { victim, good };
  }

  const goodMail = (victim: Victim) => keep(startHelper<{ taken: number; refused: number }>('good-client.ts', { at: victim.postern.smtp, sessions: GOOD_SESSIONS }));

  /** Waits until everything is delivered, so that the daemon has nothing to do. */
  async function rest(victim: Victim): Promise<void> {
    await until('the last delivery', async () => {
      victim.hook.requests.splice(0);
      await pause(500);
      return victim.hook.requests.length === 0;
    }, 120_000);
  }

  /** Processors that the daemon is busy on while a crowd is there and nobody else. */
  async function taken(victim: Victim): Promise<number> {
    const [began, used] = [performance.now(), await victim.used()];
    await pause(ALONE_MS);
    return (await victim.used() - used) / ((performance.now() - began) / 1000);
  }

  /** Good messages over some time: in a second, and in a second of the processor that the daemon used. */
  async function rate(victim: Victim, good: Helper<{ taken: number }>, ms: number): Promise<Rate> {
    const [began, before, used] = [performance.now(), (await good.report()).taken, await victim.used()];
    while (performance.now() < began + ms) {
      await pause(50);
      victim.hook.requests.splice(0);
      victim.forgetLog();
    }
    const taken = (await good.report()).taken - before;
    return { perSecond: taken / ((performance.now() - began) / 1000), perWork: taken / (await victim.used() - used) };
  }

  async function crowds(victim: Victim, manners: typeof MANNERS, clients = CLIENTS): Promise<Helper<CrowdReport>[]> {
    const all: Helper<CrowdReport>[] = [];
    for (const [i, { manner, share }] of manners.entries()) {
      const crowd = keep(startCrowd({ at: victim.postern.smtp, count: clients * share, manner, net: 60 + i, perAddress: 40 }));
      all.push(crowd);
      await until('the crowd', async () => (await crowd.report()).ready, 60_000);
    }
    return all;
  }

  it('are ended by deadlines that no byte moves, and take little from the others', async () => {
    const { victim, good: first } = await start({ POSTERN_SMTP__COMMAND_TIMEOUT_S: String(COMMAND), POSTERN_SMTP__SESSION_TIMEOUT_S: String(SESSION) });
    const before = await rate(victim, first, MEASURED_MS);
    await first.stop();
    await rest(victim);
    const all = await crowds(victim, MANNERS);
    const alone = await taken(victim);
    const good = goodMail(victim);
    const during = await rate(victim, good, MEASURED_MS);
    const open = (await Promise.all(all.map((crowd) => crowd.report()))).reduce((sum, report) => sum + report.open, 0);
    const reports = await until('the end of all', async () => {
      victim.hook.requests.splice(0);
      victim.forgetLog();
      const present = await Promise.all(all.map((crowd) => crowd.report()));
      return present.every((report) => report.open === 0) && present;
    }, (SESSION + 30) * 1000);
    const after = await rate(victim, good, MEASURED_MS);
    const [time, work] = [left('perSecond', during, before, after), left('perWork', during, before, after)];
    const ends = MANNERS.map(({ told }, i) => reports[i]?.ends[told] ?? { count: 0, soonest: 0, latest: Infinity });
    figures(11, {
      clients: CLIENTS, 'they take % of a processor': alone * 100, 'all there while measured': open, 'mails/s before': before.perSecond, during: during.perSecond, after: after.perSecond,
      'kept of mails/s %': time * 100, 'kept of mails by processor second %': work * 100,
      ...Object.fromEntries(MANNERS.map(({ manner }, i) => [`${manner} held s`, `${((ends[i]?.soonest ?? 0) / 1000).toFixed(0)}-${((ends[i]?.latest ?? 0) / 1000).toFixed(0)}`])),
      'good mail refused': (await good.report()).refused,
    });
    for (const [i, { told, after: seconds, share }] of MANNERS.entries()) {
      expect(ends[i]?.count, told).to.equal(CLIENTS * share);
      expect(ends[i]?.latest, told).to.be.below((seconds + SLACK) * 1000);
    }
    // The rates say little on a machine that is busy with other things: a daemon that is starved has the same bytes to read beside fewer mails.
    expect(alone, 'share of a processor').to.be.below(TAKEN);
    expect((await good.report()).refused, 'good mail that was refused').to.equal(0);
    expect(victim.faults()).to.deep.equal([]);
  });

  it('would stay, and take what they want, without deadlines and where a byte costs much (control)', async () => {
    const costly = { file: 'smtp/limits.ts', from: 'pulse.quietSince = now;\n  const end', to: `if (chunk.length === 1) for (const from = process.threadCpuUsage().user; process.threadCpuUsage().user < from + 12_000;);\n  pulse.quietSince = now;\n  const end` };
    const { victim, good } = await start({ POSTERN_SMTP__COMMAND_TIMEOUT_S: '600', POSTERN_SMTP__MIN_DATA_RATE: '0', POSTERN_SMTP__MAX_LOOP_LAG_MS: '60000' }, [costly]);
    await good.stop();
    await rest(victim);
    const all = await crowds(victim, MANNERS.slice(0, 2).reverse(), 200);
    expect(await taken(victim), 'share of a processor').to.be.above(TAKEN);
    await pause((Math.max(COMMAND, WINDOW) + 3) * 1000);
    for (const crowd of all) expect((await crowd.report()).open, 'behind all deadlines').to.equal(200 * 0.4);
  });
});
