import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { startDaemon } from '../support/daemon.ts';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import { importCopy } from '../support/faults/copy.ts';
import { createFastClock } from '../support/faults/fast-clock.ts';
import { tell } from '../support/faults/figures.ts';
import { type Ledger, openLedger } from '../support/faults/ledger.ts';
import { startLoad } from '../support/faults/load.ts';
import { type Sink, startSink } from '../support/faults/sink.ts';
import { size } from '../support/faults/sizes.ts';
import { HOUR, openTimedWorld, SECOND, type TimedWorld } from '../support/faults/timed-world.ts';
import { openWorld } from '../support/faults/world.ts';
import { until } from '../support/until.ts';

const MESSAGES = size('OUTAGE_MESSAGES', 10_000, 300);
/** Seconds of an outage by the clock of the machine; 0: only by a clock that runs faster. */
const REAL_SECONDS = size('OUTAGE_REAL_S', 180, 0);
const MAX_PROBES = 200;
/** How many seconds of the outage pass in one of the machine's. */
const SPEED = size('OUTAGE_SPEED', 120, 480);
const MAX_TO_FIRST_S = 60;
const MAX_TO_EMPTY_S = 300;

interface Outage {
  readonly verdict: Verdict;
  /** Posts while it was down. */
  readonly probes: number;
  /** Seconds from the return of the endpoint to the first delivery, and to the last. */
  readonly toFirst: number;
  readonly toEmpty: number;
}

const isDelivered = ({ status }: { readonly status: number }) => status === 200;
const figures = ({ probes, toFirst, toEmpty }: Outage) => ({
  'posts while down': probes,
  'first after s': Math.round(toFirst),
  'all after s': Math.round(toEmpty),
});

/** An endpoint that answers 500 for an hour of a faster clock; `then` returns the answer after this number of posts. */
async function hour<T>(
  then: (world: TimedWorld, ledger: Ledger, sink: Sink, probes: number) => T | Promise<T>,
  messages: number,
  start?: typeof startDaemon,
): Promise<T> {
  const clock = createFastClock();
  const sink = await startSink();
  const dir = await mkdtemp(join(tmpdir(), 'postern-faults-'));
  const ledger = await openLedger(join(dir, 'ledger'));
  const world = await openTimedWorld(clock, { POSTERN_DELIVERY__RETRY_HOURS: '120' }, start);
  try {
    await world.api('/inbound/add-route', { domain: 'in.test', pattern: 'down', url: `${sink.base}/down` });
    sink.answer({ status: 500 });
    const began = clock.passed();
    await startLoad({ connections: 20, bytes: 2000, to: 'down@in.test', limit: messages }, ledger, world.smtp).done;
    clock.speed(SPEED);
    await until('an hour', () => clock.passed() - began >= HOUR, 240_000);
    return await then(world, ledger, sink, sink.arrivals.length);
  } finally {
    await world.close();
    await Promise.all([ledger.close(), sink.stop()]);
    await rm(dir, { recursive: true, force: true });
  }
}

/** And then 200. */
async function recover({ clock, dir }: TimedWorld, ledger: Ledger, sink: Sink, probes: number): Promise<Outage> {
  clock.speed(20);
  const { toFirst, toEmpty } = await comeBack(sink, ledger.acknowledged.size, clock.passed, () => clock.speed(1));
  return { verdict: await judgeWhenQuiet(dir, ledger, sink), probes, toFirst, toEmpty };
}

/** The endpoint answers 200 from now on. `first` is called when the first delivery has passed. */
async function comeBack(
  sink: Sink,
  expected: number,
  passed: () => number,
  first = () => {},
): Promise<{ toFirst: number; toEmpty: number }> {
  const before = sink.arrivals.length;
  sink.answer({ status: 200 });
  const back = passed();
  await until('the first delivery', () => sink.arrivals.slice(before).some(isDelivered), 240_000);
  const toFirst = (passed() - back) / SECOND;
  first();
  let seen = before;
  let delivered = 0;
  await until(
    'the last delivery',
    () => {
      for (; seen < sink.arrivals.length; seen++) if (sink.arrivals[seen]?.status === 200) delivered++;
      return delivered >= expected;
    },
    600_000,
  ).catch(() => {});
  return { toFirst, toEmpty: (passed() - back) / SECOND };
}

function expectTargets({ verdict, probes, toFirst, toEmpty }: Outage): void {
  expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
  expect(verdict.delivered).to.equal(verdict.acknowledged);
  expect(probes).to.be.below(MAX_PROBES);
  expect(toFirst).to.be.at.most(MAX_TO_FIRST_S);
  expect(toEmpty).to.be.at.most(MAX_TO_EMPTY_S);
}

describe(`an endpoint that is down for an hour, with ${MESSAGES} messages for it`, function () {
  this.timeout(1_800_000);

  it('gets few posts meanwhile, and all messages soon after its return', async () => {
    const outage = await hour(recover, MESSAGES);
    tell('an hour of 500s (fast clock)', outage.verdict, figures(outage));
    expect(outage.verdict.acknowledged).to.be.at.least(MESSAGES);
    expectTargets(outage);
  });

  it('gets endless attempts without a breaker (control)', async () => {
    const { startDaemon: start }: { startDaemon?: typeof startDaemon } = Object(
      await importCopy(new URL('../support/daemon.ts', import.meta.url), {
        replace: new URL('../../src/queue/schedule/breaker.ts', import.meta.url),
        by: new URL('../support/faults/no-breaker.ts', import.meta.url),
      }),
    );
    if (!start) throw new Error('no daemon in the copy');
    const posts = await hour((_world, _ledger, _sink, probes) => probes, Math.min(MESSAGES, 500), start);
    console.log(`      an hour of 500s, control: posts while down ${posts}`);
    expect(posts).to.be.above(MAX_PROBES);
  });

  if (REAL_SECONDS > 0)
    it(`behaves the same in real time, for ${REAL_SECONDS} s`, async () => {
      const world = await openWorld();
      try {
        await world.edge.start();
        world.sink.answer({ status: 500 });
        const began = performance.now();
        const load = world.load({ limit: MESSAGES });
        load.turnTo(world.edge.daemon().smtp);
        await load.done;
        await until('the end of the outage', () => performance.now() - began > REAL_SECONDS * SECOND, 600_000);
        const probes = world.sink.arrivals.length;
        const { toFirst, toEmpty } = await comeBack(world.sink, world.ledger.acknowledged.size, () =>
          performance.now(),
        );
        const outage = {
          verdict: await judgeWhenQuiet(world.edge.dir, world.ledger, world.sink),
          probes,
          toFirst,
          toEmpty,
        };
        tell(`${REAL_SECONDS} s of 500s`, outage.verdict, figures(outage));
        expectTargets(outage);
      } finally {
        await world.close();
      }
    });
});
