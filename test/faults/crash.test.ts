import { spawn } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import type { Life } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { noAttaching } from '../support/strace.ts';
import { until } from '../support/until.ts';

const CRASH_AT = new URL('../support/faults/crash-at.ts', import.meta.url);
const EARLY = new URL('../support/faults/acknowledge-early.ts', import.meta.url);

/** A step, and where in it the process dies. */
interface Point {
  readonly what: string;
  /** As crash-at.ts reads it. */
  readonly at?: string;
  /** File of the queue, and in which of the system calls on it, for the how manieth time in a thread. */
  readonly call?: readonly [file: string, calls: string, when: number];
  /** A commit of new mail that fails before, so that the queue moves to a new file. */
  readonly failed?: number;
  /** Mail large enough to fill the log. */
  readonly much?: boolean;
}

const POINTS: readonly Point[] = [
  { what: 'a. while a large body arrives', at: 'before blob write 1' },
  { what: 'a. before a large body is synced', at: 'before blob sync 1' },
  { what: 'a. after a large body is synced', at: 'after blob sync 1' },
  { what: 'a. after a large body was moved into its folder', at: 'after blob rename 1' },
  { what: 'a. after the folder of large bodies is synced', at: 'after folder sync 1' },
  { what: 'b. with the message written, and not yet its deliveries', at: 'after message row 2' },
  { what: 'b. before the commit of new mail', at: 'before accept commit 2' },
  { what: 'b. with new mail written to the log, and not synced', call: ['spool.db-wal', 'fsync,fdatasync', 2] },
  { what: 'b. in the middle of writing to the log', call: ['spool.db-wal', 'pwrite64', 12] },
  { what: 'c. after the commit of new mail, before anybody knows', at: 'after accept commit 2' },
  { what: 'c. before the 250 is sent', at: 'before reply 2' },
  { what: 'd. after the 250 is sent', at: 'after reply 2' },
  { what: 'e. before the first post', at: 'before post 1' },
  { what: 'f. with the first post sent', at: 'after post 1' },
  { what: 'g. with the 200 there, and not read', at: 'before answer 1' },
  { what: 'g. before the result is committed', at: 'before settle commit 1' },
  { what: 'h. after the result is committed', at: 'after settle commit 1' },
  { what: 'i. before the log is moved into the file', at: 'before checkpoint 1', much: true },
  { what: 'i. in the middle of moving the log', call: ['spool.db', 'pwrite64', 40], much: true },
  { what: 'i. with the log moved, and not synced', call: ['spool.db', 'fsync,fdatasync', 1], much: true },
  { what: 'i. after the log is moved', at: 'after checkpoint 1', much: true },
  { what: 'i. with a new queue file written, that does not count yet', at: 'before appoint 1', failed: 3 },
  { what: 'i. with a new queue file that counts, and the old one in its place', at: 'after appoint 1', failed: 3 },
  { what: 'i. with the log of the old queue file removed', at: 'after log removal 1', failed: 3 },
  { what: 'i. with the new queue file in its place', at: 'after adopt 1', failed: 3 },
];

/** The life that dies at a point once that is armed; a plain one when there is none. */
function lifeOf(point: Point | undefined, armed: string, early = false): Life {
  const { at, failed } = point ?? {};
  const env = {
    CRASH_ARMED: armed,
    ...(at === undefined ? {} : { CRASH_AT: at }),
    ...(failed === undefined ? {} : { FAIL_COMMIT: String(failed) }),
  };
  return { imports: [...(early ? [EARLY] : []), CRASH_AT], env };
}

/** From now on the point counts. What has to be killed in a system call is traced. */
async function arm({ call }: Point, armed: string, { edge }: World): Promise<void> {
  if (!call) return writeFileSync(armed, '');
  const [file, calls, when] = call;
  const strace = spawn(
    'strace',
    [
      '-f',
      '-p',
      String(edge.daemon().pid),
      '-o',
      '/dev/null',
      '-P',
      join(edge.dir, 'spool', file),
      '-e',
      `trace=${calls}`,
      '-e',
      `inject=${calls}:signal=KILL:when=${when}`,
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  );
  let said = '';
  strace.stderr.on('data', (chunk) => {
    said += String(chunk);
  });
  await until('strace to trace', () => said.includes('attached'), 20_000);
}

/** Dies at the point while it takes mail; then the next life makes good what is left. */
async function crash(world: World, point: Point, next: Life): Promise<Verdict> {
  const { edge, ledger, sink } = world;
  const armed = join(world.dir, 'armed');
  const child = edge.daemon();
  await arm(point, armed, world);
  const load = world.load({ connections: 4, bytes: (n) => (point.much ? 200_000 : n % 3 === 0 ? 300_000 : 5000) });
  load.turnTo(child.smtp);
  try {
    await until('the daemon to die', () => !child.running(), 30_000);
  } finally {
    await edge.kill();
    rmSync(armed, { force: true });
    load.turnTo(undefined);
    await load.stop();
    await edge.start(next);
  }
  return await judgeWhenQuiet(edge.dir, ledger, sink, next === LOST_IS_LOST ? 3000 : 60_000);
}

/** After a control nothing more is waited for than what comes soon. */
const LOST_IS_LOST: Life = {};

describe('a crash at every step from DATA to delivery', function () {
  this.timeout(600_000);
  const untraceable = noAttaching();
  const points = POINTS.filter(({ call }) => !call || untraceable === undefined);
  let world: World;
  before(async () => {
    if (untraceable !== undefined)
      console.log(`    ${POINTS.length - points.length} steps are left out: ${untraceable}`);
    world = await openWorld();
    await world.edge.start(lifeOf(points[0], join(world.dir, 'armed')));
  });
  after(() => world.close());

  points.forEach((point, n) => {
    it(`loses nothing and delivers at most twice: ${point.what}`, async () => {
      const verdict = await crash(world, point, lifeOf(points[n + 1], join(world.dir, 'armed')));
      expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
      expect(verdict.mostOfOne).to.be.at.most(2);
    });
  });

  it('delivers everything in the end', async () => {
    const { ledger, sink, edge } = world;
    const verdict = await judgeWhenQuiet(edge.dir, ledger, sink);
    tell('crash at every step', verdict, { points: points.length });
    expect(verdict.delivered).to.be.at.least(verdict.acknowledged);
  });
});

describe('a crash between an early 250 and the commit', function () {
  this.timeout(120_000);
  it('loses mail (control)', async () => {
    const world = await openWorld();
    try {
      const point = { what: 'before the commit', at: 'before accept commit 1' };
      await world.edge.start(lifeOf(point, join(world.dir, 'armed'), true));
      const verdict = await crash(world, point, LOST_IS_LOST);
      tell('crash at every step, control', verdict);
      expect(verdict.lost).to.not.deep.equal([]);
    } finally {
      await world.close();
    }
  });
});
