import { join } from 'node:path';
import { expect } from 'chai';
import { noStrace } from '../test/support/strace.ts';
import { until } from '../test/support/until.ts';
import { judgeWhenQuiet, type Verdict } from './support/checker.ts';
import type { Life } from './support/edge.ts';
import { tell } from './support/figures.ts';
import { openWorld, type World } from './support/world.ts';

const CRASH_AT = new URL('./support/crash-at.ts', import.meta.url);
const EARLY = new URL('./support/acknowledge-early.ts', import.meta.url);

/** A step, and where in it the process dies. */
interface Point {
  readonly what: string;
  /** As crash-at.ts reads it. */
  readonly at?: string;
  /** File of the queue, and what is injected into its system calls. */
  readonly call?: readonly [file: string, inject: string];
  /** A commit of new mail that fails before, so that the queue moves to a new file. */
  readonly failed?: number;
  /** Mail large enough to fill the log. */
  readonly much?: boolean;
}

const POINTS: readonly Point[] = [
  { what: 'a. while a large body arrives', at: 'before blob write 1' },
  { what: 'a. before a large body is synced', at: 'before blob sync 1' },
  { what: 'a. after a large body is synced', at: 'after blob sync 1' },
  { what: 'a. after a large body got its place', at: 'after blob rename 1' },
  { what: 'a. after the folder of large bodies is synced', at: 'after folder sync 1' },
  { what: 'b. with the message written, and not yet its deliveries', at: 'after message row 2' },
  { what: 'b. before the commit of new mail', at: 'before accept commit 2' },
  { what: 'b. with new mail written to the log, and not synced', call: ['spool.db-wal', 'fsync,fdatasync:signal=KILL:when=2'] },
  { what: 'b. in the middle of writing to the log', call: ['spool.db-wal', 'pwrite64:signal=KILL:when=12'] },
  { what: 'c. after the commit of new mail, before anybody knows', at: 'after accept commit 2' },
  { what: 'c. before the 250 is sent', at: 'before reply 2' },
  { what: 'd. after the 250 is sent', at: 'after reply 2' },
  { what: 'e. before the first post', at: 'before post 1' },
  { what: 'f. with the first post sent', at: 'after post 1' },
  { what: 'g. with the 200 there, and not read', at: 'before answer 1' },
  { what: 'g. before the result is committed', at: 'before settle commit 1' },
  { what: 'h. after the result is committed', at: 'after settle commit 1' },
  { what: 'i. before the log is moved into the file', at: 'before checkpoint 1', much: true },
  { what: 'i. in the middle of moving the log', call: ['spool.db', 'pwrite64:signal=KILL:when=40'], much: true },
  { what: 'i. with the log moved, and not synced', call: ['spool.db', 'fsync,fdatasync:signal=KILL:when=1'], much: true },
  { what: 'i. after the log is moved', at: 'after checkpoint 1', much: true },
  { what: 'i. with a new queue file written, that does not count yet', at: 'before appoint 1', failed: 3 },
  { what: 'i. with a new queue file that counts, and the old one in its place', at: 'after appoint 1', failed: 3 },
  { what: 'i. with the log of the old queue file removed', at: 'after log removal 1', failed: 3 },
  { what: 'i. with the new queue file in its place', at: 'after adopt 1', failed: 3 },
];

function lifeOf({ at, call, failed }: Point, dir: string, early: boolean): Life {
  const env = { ...(at === undefined ? {} : { CRASH_AT: at }), ...(failed === undefined ? {} : { FAIL_COMMIT: String(failed) }) };
  const under = call && ['strace', '-D', '-f', '-qq', '-o', '/dev/null', '-P', join(dir, 'spool', call[0]), '-e', `trace=${call[1].split(':')[0]}`, '-e', `inject=${call[1]}`];
  return { imports: [...(early ? [EARLY] : []), CRASH_AT], env, ...(under ? { under } : {}) };
}

/** One life that dies at the point while it takes mail, and one that makes good what it left. */
async function crash(world: World, point: Point, early = false): Promise<Verdict> {
  const { edge, ledger, sink } = world;
  await edge.start(lifeOf(point, edge.dir, early));
  const load = world.load({ connections: 4, bytes: (n) => point.much ? 200_000 : n % 3 === 0 ? 300_000 : 5000 });
  const child = edge.daemon();
  load.turnTo(child.smtp);
  try {
    await until('the daemon to die', () => !child.running(), 30_000);
  } finally {
    await edge.kill();
    load.turnTo(undefined);
    await load.stop();
  }
  await edge.start();
  try {
    return await judgeWhenQuiet(edge.dir, ledger, sink, early ? 3000 : 60_000);
  } finally {
    await edge.stop();
  }
}

describe('a crash at every step from DATA to the end of a delivery', function () {
  this.timeout(600_000);
  let world: World;
  before(async () => {
    world = await openWorld();
    await world.edge.start();
    await world.edge.stop();
  });
  after(() => world.close());

  for (const point of POINTS) {
    it(`loses nothing, and delivers at most twice: ${point.what}`, async function () {
      const reason = point.call && noStrace();
      if (reason !== undefined) {
        console.log(`      left out: ${reason}`);
        this.skip();
      }
      const verdict = await crash(world, point);
      expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
      expect(verdict.mostOfOne).to.be.at.most(2);
    });
  }

  it('dies at all of them', async () => {
    tell('crash at every step', await judgeWhenQuiet(world.edge.dir, world.ledger, world.sink), { points: POINTS.length });
  });
});

describe('a crash at a step, with the 250 given before the commit', function () {
  this.timeout(120_000);
  it('loses mail (control)', async () => {
    const world = await openWorld();
    try {
      await world.edge.start();
      await world.edge.stop();
      const verdict = await crash(world, { what: 'before the commit', at: 'before accept commit 1' }, true);
      tell('crash at every step, control', verdict);
      expect(verdict.lost).to.not.deep.equal([]);
    } finally {
      await world.close();
    }
  });
});
