import { access } from 'node:fs/promises';
import { expect } from 'chai';
import { FORMAT_NAMES } from '../../src/inbound/formats.ts';
import { figures } from '../support/attacks/figures.ts';
import { startDialogFuzz, startFuzzSink, startMailFuzz } from '../support/attacks/fuzz.ts';
import type { Patch } from '../support/attacks/patches.ts';
import { size } from '../support/attacks/sizes.ts';
import { startVictim, type Victim } from '../support/attacks/victim.ts';
import { message, sendMail } from '../support/mail.ts';
import { until } from '../support/until.ts';
import { startZone, type Zone } from '../support/zone.ts';

const SEED = Number(process.env.ATTACKS_SEED ?? 20260105);
const MESSAGES = size(200_000, 1500);
// About seventeen lines each.
const DIALOGS = size(60_000, 600);
const OTHERS = FORMAT_NAMES.filter((name) => name !== 'mandrill');
const FORMATTED = size(40_000, 500);
const LIMIT_MS = 800_000;

/** Deliveries that do not end, or ended badly, with their attempts: what was answered is written down a moment later. */
async function unfinished({ api }: Victim): Promise<unknown[]> {
  let left: unknown[] = [];
  await until('what was posted to be written down', async () => {
    const states = ['waiting', 'dead'].map((state) => api('/inbound/deliveries', { state, limit: 10 }));
    left = (await Promise.all(states)).flat();
    return left.length === 0;
  }).catch(() => {});
  return left;
}

describe(`random bytes (seed ${SEED})`, () => {
  const running: { stop(): Promise<void> }[] = [];
  const keep = <T extends { stop(): Promise<void> }>(part: T): T => {
    running.push(part);
    return part;
  };
  afterEach(async () => {
    for (const part of running.splice(0).reverse()) await part.stop();
  });

  async function start(patches: readonly Patch[] = []) {
    const zone: Zone = keep(await startZone({ 'sender.test': { TXT: ['v=spf1 -all'] } }));
    const sink = keep(startFuzzSink(SEED));
    const { url } = await sink.report();
    const victim: Victim = keep(
      await startVictim({
        url,
        patches,
        env: {
          POSTERN_DNS__SERVERS: zone.server,
          POSTERN_SMTP__MAX_SESSIONS: '5000',
          // A machine that is busy with other things makes no difference to what is said.
          POSTERN_SMTP__MAX_LOOP_LAG_MS: '60000',
          POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '32',
        },
      }),
    );
    return { sink, victim };
  }

  async function mail({ sink, victim }: Awaited<ReturnType<typeof start>>, count: number, endings = ['']) {
    const client = keep(startMailFuzz({ at: victim.postern.smtp, seed: SEED, from: 0, to: count, net: 0, endings }));
    const began = performance.now();
    const sent = await until(
      'all mutants',
      async () => {
        victim.forgetLog();
        const report = await client.report();
        return report.done && report;
      },
      LIMIT_MS,
    );
    const came = await until(
      'all posts',
      async () => {
        victim.forgetLog();
        const report = await sink.report();
        return report.delivered >= sent.accepted && report;
      },
      LIMIT_MS,
    ).catch(() => sink.report());
    await client.stop();
    return { sent, came, seconds: (performance.now() - began) / 1000 };
  }

  async function dialogs(victim: Victim, count: number) {
    const halves = [0, 1].map((half) =>
      keep(
        startDialogFuzz({
          at: victim.postern.smtp,
          seed: SEED,
          from: (half * count) / 2,
          to: ((half + 1) * count) / 2,
          net: 40 + half,
        }),
      ),
    );
    const began = performance.now();
    const reports = await until(
      'all dialogs',
      async () => {
        victim.forgetLog();
        const both = await Promise.all(halves.map((half) => half.report()));
        return both.every(({ done }) => done) && both;
      },
      LIMIT_MS,
    );
    const sum = (of: (report: (typeof reports)[number]) => number) =>
      reports.reduce((total, report) => total + of(report), 0);
    return {
      lines: sum(({ lines }) => lines),
      sessions: sum(({ sessions }) => sessions),
      failures: reports.flatMap(({ failures }) => failures),
      seconds: (performance.now() - began) / 1000,
    };
  }

  it(`in ${MESSAGES} messages: invalid ones are rejected, all others are delivered unchanged`, async () => {
    const world = await start();
    const { sent, came, seconds } = await mail(world, MESSAGES);
    figures(14, {
      mutants: MESSAGES,
      accepted: sent.accepted,
      'refused 521': sent.refused,
      'posted with the same SHA-256': came.delivered - came.failures.length,
      'raw with parse_error': came.raw,
      seconds,
      'RSS MB': await world.victim.rss(),
    });
    expect([...sent.failures, ...came.failures]).to.deep.equal([]);
    expect(sent.accepted + sent.refused).to.equal(MESSAGES);
    expect(await unfinished(world.victim), 'what was accepted and not delivered').to.deep.equal([]);
    expect(came.delivered).to.equal(sent.accepted);
    expect(world.victim.faults()).to.deep.equal([]);
  });

  it(`in ${FORMATTED} messages: every other format is readable by receivers`, async () => {
    const world = await start();
    const { url } = await world.sink.report();
    for (const format of OTHERS)
      await world.victim.api('/inbound/add-route', {
        ...{ domain: 'in.test', pattern: `*-${format}`, format, url: url.replace(/hook$/, format) },
      });
    const { sent, came, seconds } = await mail(
      world,
      FORMATTED,
      OTHERS.map((format) => `-${format}`),
    );
    figures(14, { 'mutants in other formats': FORMATTED, accepted: sent.accepted, posted: came.delivered, seconds });
    expect([...sent.failures, ...came.failures]).to.deep.equal([]);
    expect(await unfinished(world.victim), 'what was accepted and not delivered').to.deep.equal([]);
    expect(came.delivered).to.equal(sent.accepted);
    expect(world.victim.faults()).to.deep.equal([]);
  });

  it(`in ${DIALOGS} dialogs: replies reveal no internals, and the daemon keeps working`, async () => {
    const { victim, sink } = await start();
    const { lines, sessions, failures, seconds } = await dialogs(victim, DIALOGS);
    figures(14, { sessions, 'command lines': lines, seconds, 'RSS MB': await victim.rss() });
    expect(failures).to.deep.equal([]);
    expect(sessions).to.equal(DIALOGS);
    expect(victim.faults()).to.deep.equal([]);
    expect(
      await sendMail(victim.postern.smtp, { from: 'a@sender.test', to: 'good@in.test' }, message('good')),
    ).to.match(/^250/);
    await until('a post', async () => (await sink.report()).others > 0);
  });

  it('detects and saves input that is changed, or that makes a reply or the log reveal internals (control)', async () => {
    const world = await start([
      {
        file: 'smtp/reception.ts',
        from: 'received.see(bytes);',
        to: 'if (bytes[bytes.length - 3] === 62) bytes[bytes.length - 3] = 60; received.see(bytes);',
      },
      {
        file: 'smtp/replies.ts',
        from: "'Command not recognized'",
        to: "'Error: no such command at obey (/src/smtp/verbs.ts:70:13)'",
      },
      {
        file: 'smtp/verbs.ts',
        from: "case 'HELP':\n      return",
        to: "case 'HELP':\n      if (state) throw new Error('broken');\n      return",
      },
    ]);
    const { came } = await mail(world, 600);
    expect(came.failures.map(({ why }) => why)).to.include('other bytes in the post');
    await access(came.failures[0]?.file ?? '');
    const { failures } = await dialogs(world.victim, 300);
    const whys = failures.map(({ why }) => why.split(':')[0]).join();
    expect(whys).to.include('speaks of our insides').and.include('a fault of ours');
    expect(world.victim.faults()).to.have.length.above(0);
  });
});
