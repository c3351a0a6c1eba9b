import { expect } from 'chai';
import { createIds } from '../../src/base/ids.ts';
import { startDaemon } from '../support/daemon.ts';
import { createFastClock, type FastClock, type FastClockSettings } from '../support/faults/fast-clock.ts';
import { createRuns } from '../support/faults/runs.ts';
import { DAY, HOUR, MINUTE, openTimedWorld, SECOND, type TimedWorld } from '../support/faults/timed-world.ts';
import { until } from '../support/until.ts';

/** What can happen to the clock on the wall. */
interface Turn {
  readonly name: string;
  /** Wall time at the start. */
  readonly start: number;
  happen(clock: FastClock): void;
}

const jump = (ms: number) => (clock: FastClock) => {
  clock.jump(ms);
};
const NOON = Date.UTC(2026, 0, 5, 12, 0, 0);
const TURNS: readonly Turn[] = [
  { name: 'back by an hour', start: NOON, happen: jump(-HOUR) },
  { name: 'ahead by three days', start: NOON, happen: jump(3 * DAY) },
  // In Berlin the clock goes from 2:00 to 3:00 then, in the second minute of the test; and back from 3:00 to 2:00.
  { name: 'over the begin of summer time', start: Date.UTC(2026, 2, 29, 0, 59, 0), happen: () => {} },
  { name: 'over the end of summer time', start: Date.UTC(2026, 9, 25, 0, 59, 0), happen: () => {} },
  { name: 'over a leap second', start: Date.UTC(2026, 11, 31, 23, 59, 0), happen: jump(-SECOND) },
];

/**
 * The earliest and the latest time of each of the first attempts at one delivery, in seconds: the gaps of the schedule
 * with their jitter.
 */
const ATTEMPTS: readonly (readonly [number, number])[] = [
  [0, 0],
  [5, 6],
  [35, 42],
  [335, 402],
];
/** What one turn of the machine's timers may add at this speed. Seconds. */
const SLACK = 100;
const SPEED = 100;

/** How a delivery to a failing endpoint is tried when the clock does that a minute after the first attempt. */
async function attemptsThrough(turn: Turn, settings: FastClockSettings = {}): Promise<number[]> {
  const clock = createFastClock({ start: turn.start, ...settings });
  const world = await openTimedWorld(clock);
  try {
    const times: number[] = [];
    world.bad.answer(() => {
      times.push(clock.passed() / SECOND);
      return { status: 500 };
    });
    await world.send('bad', 'one');
    await until('the first attempt', () => times.length === 1, 30_000);
    clock.speed(SPEED);
    await clock.reaches(((times[0] ?? 0) + 60) * SECOND);
    turn.happen(clock);
    await clock.reaches(((times[0] ?? 0) + 520) * SECOND);
    return times.map((time) => time - (times[0] ?? 0));
  } finally {
    await world.close();
  }
}

/**
 * Milliseconds between the third and the fourth attempt, without jitter 300 s, when the wall clock shows a second twice
 * in between. The clock runs at its own pace where a second must be seen.
 */
async function gapOverLeapSecond(settings: FastClockSettings = {}): Promise<number> {
  const clock = createFastClock({ start: Date.UTC(2026, 11, 31, 23, 59, 0), ...settings });
  const world = await openTimedWorld(clock, {}, (env, options) =>
    startDaemon(env, { ...options, ids: { ...createIds(clock), jitter: () => 0 } }),
  );
  try {
    const times: number[] = [];
    world.bad.answer(() => {
      times.push(clock.passed());
      return { status: 500 };
    });
    const slowFor = async (n: number, ms: number) => {
      await clock.reaches((times[n - 2] ?? 0) + ms - 3 * SECOND);
      clock.speed(1);
      await until(`attempt ${n}`, () => times.length === n, 30_000);
      clock.speed(SPEED);
    };
    await world.send('bad', 'one');
    await until('the first attempt', () => times.length === 1, 30_000);
    await slowFor(2, 5 * SECOND);
    await slowFor(3, 30 * SECOND);
    await clock.reaches((times[2] ?? 0) + 60 * SECOND);
    clock.jump(-SECOND);
    await slowFor(4, 300 * SECOND);
    return (times[3] ?? 0) - (times[2] ?? 0);
  } finally {
    await world.close();
  }
}

/** What is wrong with the times of attempts. */
function faultsOf(times: readonly number[]): string[] {
  const early = ATTEMPTS.flatMap(([from], n) =>
    (times[n] ?? Infinity) < from - 1 ? [`attempt ${n + 1} came early, after ${times[n]} s`] : [],
  );
  const late = ATTEMPTS.flatMap(([, latest], n) =>
    (times[n] ?? Infinity) > latest + SLACK ? [`attempt ${n + 1} came late, after ${times[n]} s`] : [],
  );
  const more = times.length > ATTEMPTS.length ? [`${times.length} attempts`] : [];
  return [...early, ...late, ...more];
}

async function faultsThrough(names: readonly string[], settings: FastClockSettings): Promise<string[][]> {
  const turns = TURNS.filter(({ name }) => names.includes(name));
  return (await Promise.all(turns.map((turn) => attemptsThrough(turn, settings)))).map(faultsOf);
}

/**
 * The same, but the daemon is stopped, and its host starts 40 days ahead; after 50 minutes the clock is set right, or
 * (a control) it never is.
 */
async function throughStart(ahead: 'corrected' | 'kept'): Promise<{ before: Kept; after: Kept; told: unknown[] }> {
  const clock = createFastClock({ start: NOON });
  const world = await openTimedWorld(clock, { POSTERN_DELIVERY__RETRY_HOURS: '2' });
  try {
    await fill(world);
    await run(clock, 12 * MINUTE);
    const before = await look(world);
    const wrong = createFastClock({ start: clock.now() + 40 * DAY });
    await world.restart(wrong);
    await run(wrong, 50 * MINUTE);
    if (ahead === 'corrected') wrong.jump(-40 * DAY);
    await run(wrong, 22 * MINUTE);
    const told = world.log.of('daemon.clock').map(({ fields }) => fields['days']);
    return { before, after: await look(world), told };
  } finally {
    await world.close();
  }
}

interface Kept {
  readonly waiting: number;
  readonly dead: number;
  readonly delivered: number;
  readonly rejects: number;
  readonly archive: number;
}

/**
 * A daemon that keeps everything for two days at most, with something of each kind; then its clock jumps three days
 * ahead, runs for nine minutes, and is set right. Answers what there was before and what there is after.
 */
async function throughThreeDays(
  settings: FastClockSettings = {},
): Promise<{ before: Kept; after: Kept; world: TimedWorld; close(): Promise<void> }> {
  const clock = createFastClock({ start: NOON, ...settings });
  const world = await openTimedWorld(clock);
  await fill(world);
  // The task that removes archives runs every ten minutes: it falls into the nine.
  await run(clock, 10 * MINUTE - ((clock.now() + 5 * MINUTE) % (10 * MINUTE)));
  const before = await look(world);
  clock.jump(3 * DAY);
  await run(clock, 9 * MINUTE);
  clock.jump(-3 * DAY);
  await run(clock, 2 * MINUTE);
  return { before, after: await look(world), world, close: world.close };
}

async function fill(world: TimedWorld): Promise<void> {
  const { clock } = world;
  world.bad.answer({ status: 500 });
  for (let n = 0; n < 5; n++) await world.send('bad', `dead ${n}`);
  clock.speed(1200);
  await until('five dead letters', async () => (await world.queue('dead')).length === 5, 30_000);
  clock.speed(1);
  for (let n = 0; n < 20; n++) await world.send('good', `delivered ${n}`);
  await until('twenty delivered', async () => (await world.queue('delivered')).length === 20);
  for (let n = 0; n < 5; n++) await world.send('bad', `waiting ${n}`);
  await until('five waiting', async () => (await world.queue('waiting')).length === 5);
  for (let n = 0; n < 10; n++) await world.reject(`r${n}@example.org`, DAY);
  await world.archive();
}

async function look(world: TimedWorld): Promise<Kept> {
  const [waiting, dead, delivered] = await Promise.all(
    ['waiting', 'dead', 'delivered'].map(async (state) => (await world.queue(state)).length),
  );
  const rejects = await world.api('/rejects/list');
  return {
    waiting: waiting ?? 0,
    dead: dead ?? 0,
    delivered: delivered ?? 0,
    rejects: rejects.length,
    archive: await world.fetchArchive(),
  };
}

async function run(clock: FastClock, ms: number): Promise<void> {
  const end = clock.passed() + ms;
  clock.speed(600);
  await clock.reaches(end);
  clock.speed(1);
}

const figures = (kept: Kept) =>
  Object.entries(kept)
    .map(([name, figure]) => `${name} ${figure}`)
    .join(', ');

/** Measurements of the same gap. */
const MAX_GAPS = 5;

describe('a wall clock that jumps', function () {
  this.timeout(1_800_000);
  const zone = process.env['TZ'];
  const starts = createRuns({ corrected: () => throughStart('corrected'), kept: () => throughStart('kept') });
  const controls = createRuns({
    ahead: () => faultsThrough(['ahead by three days'], { intervalsByWall: true }),
    back: () =>
      faultsThrough(['back by an hour', 'over the end of summer time'], {
        intervalsByWall: true,
        shows: (utc) => utc - new Date(utc).getTimezoneOffset() * MINUTE,
      }),
  });
  before(() => {
    process.env['TZ'] = 'Europe/Berlin';
  });
  after(() => {
    if (zone === undefined) delete process.env['TZ'];
    else process.env['TZ'] = zone;
  });

  it(`makes no attempt early or late: ${TURNS.map(({ name }) => name).join(', ')}`, async () => {
    const all = await Promise.all(TURNS.map((turn) => attemptsThrough(turn)));
    for (const [n, times] of all.entries())
      console.log(`      clock ${TURNS[n]?.name}: attempts after ${times.map((time) => time.toFixed(0)).join(', ')} s`);
    expect(all.map(faultsOf)).to.deep.equal(TURNS.map(() => []));
  });

  it('makes no attempt a second late because of a leap second; a clock-based timer does (control)', async () => {
    // A busy machine only adds to a gap, so the shortest of several tells.
    let [gap, control] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (let runs = 0; runs < MAX_GAPS && !(control - gap > 500); runs++) {
      const [one, other] = await Promise.all([gapOverLeapSecond(), gapOverLeapSecond({ intervalsByWall: true })]);
      [gap, control] = [Math.min(gap, one), Math.min(control, other)];
    }
    console.log(
      `      clock over a leap second, without jitter: ${gap.toFixed(0)} ms between two attempts, control ${control.toFixed(0)} ms`,
    );
    expect(gap).to.be.above(299_900);
    expect(control - gap, 'the second').to.be.above(500);
  });

  it('makes attempts early if intervals follow the clock and it is set ahead (control)', async () => {
    const faults = await controls('ahead');
    console.log(`      clock ahead, control: ${faults.map(([first]) => first ?? 'nothing').join('; ')}`);
    expect(faults.flat().some((fault) => fault.startsWith('attempt 4 came early'))).to.equal(true);
  });

  it('makes attempts late if intervals follow the clock and it is set back (control)', async () => {
    const faults = await controls('back');
    console.log(`      clock, control: ${faults.map(([first]) => first ?? 'nothing').join('; ')}`);
    expect(faults.map((found) => found.length > 0)).to.deep.equal([true, true]);
  });

  it('ahead by three days and back expires nothing kept for two days: waiting mail, dead letters, delivered mail, rejects, archives', async () => {
    const { before, after, world, close } = await throughThreeDays();
    try {
      console.log(`      clock three days ahead and back: before ${figures(before)}; after ${figures(after)}`);
      expect(before).to.deep.equal({ waiting: 5, dead: 5, delivered: 20, rejects: 10, archive: 200 });
      expect(after).to.deep.equal(before);
      world.bad.answer({ status: 200 });
      world.clock.speed(60);
      await until('what waited is delivered', async () => (await world.queue('waiting')).length === 0, 30_000);
      expect(await world.queue('delivered')).to.have.length(25);
    } finally {
      await close();
    }
  });

  it('expires all of it if the jump is taken for elapsed time (control)', async () => {
    const { after, close } = await throughThreeDays({ intervalsByWall: true });
    await close();
    console.log(`      clock three days ahead and back, control: after ${figures(after)}`);
    expect(after).to.include({ waiting: 0, delivered: 0, rejects: 0, archive: 410 });
  });

  it('by 40 days at a start expires nothing, and is reported', async () => {
    const { before, after, told } = await starts('corrected');
    console.log(
      `      clock 40 days ahead at a start, and set right: before ${figures(before)}; after ${figures(after)}`,
    );
    expect(before).to.deep.equal({ waiting: 5, dead: 5, delivered: 20, rejects: 10, archive: 200 });
    expect(after).to.deep.equal(before);
    expect(told).to.deep.equal([40]);
  });

  it('by 40 days for more than an hour is accepted, but waiting mail is still retried for its full time (control)', async () => {
    const { after } = await starts('kept');
    console.log(`      clock 40 days ahead at a start, and kept: after ${figures(after)}`);
    expect(after).to.include({ waiting: 5, dead: 0, delivered: 0, rejects: 0, archive: 410 });
  });

  it('set back by almost an hour does not delay tasks: entries that expire afterwards are marked within minutes', async () => {
    const clock = createFastClock({ start: NOON });
    const world = await openTimedWorld(clock);
    try {
      await run(clock, 2 * MINUTE); // every task has had a run, and its lease says when
      // A little more would count as a jump that an operator may want to check before anything expires.
      clock.jump(-59 * MINUTE);
      await world.reject('soon@example.org', MINUTE);
      const began = clock.passed();
      clock.speed(60);
      await until('the mark', async () => await world.expired('soon@example.org'), 30_000);
      const took = (clock.passed() - began) / SECOND;
      console.log(`      clock back by 59 minutes: a task that was due after 60 s had run after ${took.toFixed(0)} s`);
      expect(took).to.be.below(240);
    } finally {
      await world.close();
    }
  });
});
