import { expect } from 'chai';
import { type CrowdReport, type Manner, startCrowd } from '../support/attacks/crowd.ts';
import { figures } from '../support/attacks/figures.ts';
import { type Helper, startHelper } from '../support/attacks/helper.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { size } from '../support/attacks/sizes.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { until } from '../support/until.ts';

const CLIENTS = size(5000, 500);
const GOOD_SESSIONS = 8;
const WARM_MS = size(12_000, 2500);
const ALONE_MS = size(4000, 1500);
// The rate is measured by turns with the crowd at its work and without, so that whatever else the machine does is done
// to both.
const TURNS = size(8, 3);
const TURN_MS = size(1000, 500);
/** What good mail keeps of its rate. */
const KEPT = 0.8;

// Seconds. The window in which DATA must keep its pace is no setting.
const COMMAND = size(60, 8);
const SESSION = size(90, 12);
const WINDOW = size(30, 7);
// The sweep comes once a second, and the machine may be busy.
const SLACK = size(6, 15);

const MANNERS: readonly {
  readonly manner: Manner;
  readonly share: number;
  readonly told: string;
  readonly after: number;
}[] = [
  { manner: 'line', share: 0.4, told: '421 4.4.2 Timeout waiting for the end of a command', after: COMMAND },
  { manner: 'data', share: 0.4, told: '421 4.4.2 Data transfer is too slow', after: WINDOW },
  { manner: 'noops', share: 0.2, told: '421 4.4.2 Session time limit exceeded', after: SESSION },
];

/** Good messages, the seconds that they took, and the seconds of a processor that the daemon used meanwhile. */
interface Work {
  readonly mails: number;
  readonly seconds: number;
  readonly processor: number;
}
const sum = (work: readonly Work[]): Work =>
  work.reduce((a, b) => ({
    mails: a.mails + b.mails,
    seconds: a.seconds + b.seconds,
    processor: a.processor + b.processor,
  }));

/**
 * What good mail keeps of its mails a second beside a crowd that takes `alone` of a processor. Where others leave the
 * daemon half a processor only, the crowd takes twice the share of it; what is more than it would take of a whole one
 * is not held against it.
 */
function keptOf(quiet: Work, during: Work, alone: number): number {
  if (during.mails === 0 || quiet.mails === 0) return 0; // what was left to do when the crowd paused took everything
  const processors = during.processor / during.seconds;
  return during.mails / during.seconds / (quiet.mails / quiet.seconds) + alone * Math.max(0, 1 / processors - 1);
}

const pause = (ms: number) =>
  new Promise((resolve) => {
    setTimeout(resolve, ms);
  });

describe(`${CLIENTS} clients that send a byte a second`, () => {
  const running: { stop(): Promise<void> }[] = [];
  const keep = <T extends { stop(): Promise<void> }>(part: T): T => {
    running.push(part);
    return part;
  };
  afterEach(async () => {
    for (const part of running.splice(0).reverse()) await part.stop();
  });

  async function start(env: Readonly<Record<string, string>>, patches: readonly Patch[] = []) {
    const window = { file: 'smtp/deadlines.ts', from: 'RATE_WINDOW_S = 30', to: `RATE_WINDOW_S = ${WINDOW}` };
    const victim = keep(
      await startVictim({ patches: [window, ...patches], env: { POSTERN_SMTP__MAX_SESSIONS: '20000', ...env } }),
    );
    const good = goodMail(victim);
    await work(victim, good, WARM_MS); // the first seconds are those of the compiler
    return { victim, good };
  }

  const goodMail = (victim: Victim) =>
    keep(
      startHelper<{ taken: number; refused: number }>('good-client.ts', {
        at: victim.postern.smtp,
        sessions: GOOD_SESSIONS,
      }),
    );

  /** Waits until everything is delivered, so that the daemon has nothing to do. */
  async function rest(victim: Victim): Promise<void> {
    await until(
      'the last delivery',
      async () => {
        victim.hook.requests.splice(0);
        await pause(500);
        return victim.hook.requests.length === 0;
      },
      120_000,
    );
  }

  /** Processors in use by the daemon while only a crowd is connected. */
  async function taken(victim: Victim): Promise<number> {
    const [began, used] = [performance.now(), await victim.used()];
    await pause(ALONE_MS);
    return ((await victim.used()) - used) / ((performance.now() - began) / 1000);
  }

  async function work(victim: Victim, good: Helper<{ taken: number }>, ms: number): Promise<Work> {
    const [began, before, used] = [performance.now(), (await good.report()).taken, await victim.used()];
    while (performance.now() < began + ms) {
      await pause(50);
      victim.hook.requests.splice(0);
      victim.forgetLog();
    }
    const mails = (await good.report()).taken - before;
    return { mails, seconds: (performance.now() - began) / 1000, processor: (await victim.used()) - used };
  }

  /** By turns without the crowd's bytes and with them; its sessions are there all the time. */
  async function byTurns(
    victim: Victim,
    good: Helper<{ taken: number }>,
    crowd: readonly Helper<CrowdReport>[],
  ): Promise<{ quiet: Work; during: Work }> {
    const [quiet, during]: [Work[], Work[]] = [[], []];
    for (let n = 0; n < TURNS; n++) {
      for (const helper of crowd) helper.halt();
      quiet.push(await work(victim, good, TURN_MS));
      for (const helper of crowd) helper.goOn();
      during.push(await work(victim, good, TURN_MS));
    }
    return { quiet: sum(quiet), during: sum(during) };
  }

  async function crowds(victim: Victim, manners: typeof MANNERS, clients = CLIENTS): Promise<Helper<CrowdReport>[]> {
    const all: Helper<CrowdReport>[] = [];
    for (const [i, { manner, share }] of manners.entries()) {
      const crowd = keep(
        startCrowd({ at: victim.postern.smtp, count: clients * share, manner, net: 60 + i, perAddress: 40 }),
      );
      all.push(crowd);
      await until('the crowd', async () => (await crowd.report()).ready, 60_000);
    }
    return all;
  }

  it('are ended by deadlines that no byte extends, and do not slow down others', async () => {
    const { victim, good: first } = await start({
      POSTERN_SMTP__COMMAND_TIMEOUT_S: String(COMMAND),
      POSTERN_SMTP__SESSION_TIMEOUT_S: String(SESSION),
    });
    await first.stop();
    await rest(victim);
    const all = await crowds(victim, MANNERS);
    const alone = await taken(victim);
    const good = goodMail(victim);
    const { quiet, during } = await byTurns(victim, good, all);
    const open = (await Promise.all(all.map((crowd) => crowd.report()))).reduce(
      (total, report) => total + report.open,
      0,
    );
    const reports = await until(
      'the end of all',
      async () => {
        victim.hook.requests.splice(0);
        victim.forgetLog();
        const present = await Promise.all(all.map((crowd) => crowd.report()));
        return present.every((report) => report.open === 0) && present;
      },
      (SESSION + 30) * 1000,
    );
    const kept = keptOf(quiet, during, alone);
    const ends = MANNERS.map(({ told }, i) => reports[i]?.ends[told] ?? { count: 0, soonest: 0, latest: Infinity });
    figures(11, {
      clients: CLIENTS,
      'they take % of a processor': alone * 100,
      'all there while measured': open,
      'mails/s without their bytes': quiet.mails / quiet.seconds,
      'mails/s with them': during.mails / during.seconds,
      'processors of the daemon %': (100 * during.processor) / during.seconds,
      'kept of mails/s %': kept * 100,
      ...Object.fromEntries(
        MANNERS.map(({ manner }, i) => [
          `${manner} held s`,
          `${((ends[i]?.soonest ?? 0) / 1000).toFixed(0)}-${((ends[i]?.latest ?? 0) / 1000).toFixed(0)}`,
        ]),
      ),
      'good mail refused': (await good.report()).refused,
    });
    for (const [i, { told, after: seconds, share }] of MANNERS.entries()) {
      expect(ends[i]?.count, told).to.equal(CLIENTS * share);
      expect(ends[i]?.latest, told).to.be.below((seconds + SLACK) * 1000);
    }
    expect(kept, 'what good mail keeps').to.be.above(KEPT);
    expect(alone, 'share of a processor').to.be.below(1 - KEPT);
    expect((await good.report()).refused, 'good mail that was refused').to.equal(0);
    expect(victim.faults()).to.deep.equal([]);
  });

  it('would stay and slow down others without deadlines and with costly reads (control)', async () => {
    const costly = {
      file: 'smtp/deadlines.ts',
      from: 'quietSince = now;\n      const end',
      to: `if (chunk.length === 1) for (const from = process.threadCpuUsage().user; process.threadCpuUsage().user < from + 4000;);\n  quietSince = now;\n      const end`,
    };
    const { victim, good } = await start(
      {
        POSTERN_SMTP__COMMAND_TIMEOUT_S: '600',
        POSTERN_SMTP__MIN_DATA_RATE: '0',
        POSTERN_SMTP__MAX_LOOP_LAG_MS: '60000',
      },
      [costly],
    );
    await good.stop();
    await rest(victim);
    const all = await crowds(victim, MANNERS.slice(0, 2).reverse(), 200);
    const there = performance.now();
    const alone = await taken(victim);
    expect(alone, 'share of a processor').to.be.above(1 - KEPT);
    const { quiet, during } = await byTurns(victim, goodMail(victim), all);
    expect(keptOf(quiet, during, alone), 'what good mail keeps').to.be.below(KEPT);
    await pause(there + (Math.max(COMMAND, WINDOW) + 3) * 1000 - performance.now());
    for (const crowd of all) expect((await crowd.report()).open, 'behind all deadlines').to.equal(200 * 0.4);
  });
});
