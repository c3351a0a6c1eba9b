import { closeSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import { type Disk, noDisk, openDisk } from '../support/faults/disk.ts';
import { tell } from '../support/faults/figures.ts';
import type { Refused } from '../support/faults/load.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { until } from '../support/until.ts';

const MEGABYTE = 1024 * 1024;
const DISK = 256 * MEGABYTE;
/** What new mail must leave alone. */
const FLOOR = 64 * MEGABYTE;
/** What the other file leaves, which is enough for a queue that stops in time. */
const LEFT = 32 * MEGABYTE;
const ROUNDS = size('FULL_ROUNDS', 10, 1);
/** Mail is to be taken again 5 s after there is room; a test shares its machine. */
const AGAIN_MS = 30_000;
const OVERLOOK_FAILURES = new URL('../support/faults/overlook-failures.ts', import.meta.url);
const OVERLOOK_ROOM = new URL('../support/faults/overlook-room.ts', import.meta.url);
const WATCHED = {
  POSTERN_SMTP__MAX_MESSAGE_BYTES: String(MEGABYTE),
  POSTERN_SPOOL__MIN_FREE_PERCENT: '10',
  POSTERN_SPOOL__MIN_FREE_BYTES: String(FLOOR),
};
/** Three messages of the largest size are always left; this is next to nothing. */
const UNWATCHED = {
  POSTERN_SMTP__MAX_MESSAGE_BYTES: '20000',
  POSTERN_SPOOL__MIN_FREE_PERCENT: '0',
  POSTERN_SPOOL__MIN_FREE_BYTES: '0',
};

function freeOf({ path }: Disk): number {
  const { bavail, bsize } = statfsSync(path);
  return bavail * bsize;
}

/** Another file takes the disk, up to what it leaves. Answers a function that removes it. */
function fill(disk: Disk, leave: number): () => void {
  const path = join(disk.path, 'other');
  const file = openSync(path, 'w');
  try {
    for (let left = freeOf(disk) - leave; left > 0; left -= MEGABYTE)
      writeSync(file, Buffer.alloc(Math.min(left, MEGABYTE)));
  } catch {
    // The mail was faster: the disk is full.
  } finally {
    closeSync(file);
  }
  return () => rmSync(path);
}

interface Seen {
  readonly verdict: Verdict;
  readonly refused: readonly Refused[];
  readonly again: readonly number[];
  readonly lowest: number;
}

/** Fills the disk under load and frees it again, `rounds` times. */
async function squeeze(
  rounds: number,
  leave: number,
  life: { env: Readonly<Record<string, string>>; imports?: readonly URL[] },
): Promise<Seen> {
  const disk = openDisk('tmpfs', DISK / MEGABYTE);
  try {
    const world = await openWorld({ data: join(disk.path, 'data') });
    try {
      return await through(world, disk, rounds, leave, life);
    } finally {
      await world.close();
    }
  } finally {
    await disk.remove();
  }
}

async function through(
  { edge, ledger, sink, load: startLoad }: World,
  disk: Disk,
  rounds: number,
  leave: number,
  life: Parameters<typeof squeeze>[2],
): Promise<Seen> {
  const overlooks = life.imports?.includes(OVERLOOK_FAILURES) ?? false;
  await edge.start(life);
  if (overlooks) sink.answer({ status: 0 }); // so that what is lost is not delivered from memory before
  const load = startLoad({ connections: 20 });
  load.turnTo(edge.daemon().smtp);
  const again: number[] = [];
  let lowest = DISK;
  for (let round = 0; round < rounds; round++) {
    const before = load.acknowledged();
    await until('mail to be taken', () => load.acknowledged() >= before + 50, 60_000);
    const refused = load.refused.length;
    const free = fill(disk, leave);
    await until(
      'the end of room',
      () => {
        lowest = Math.min(lowest, freeOf(disk));
        return load.refused.length > refused + 20 || (overlooks && load.acknowledged() > before + 500);
      },
      60_000,
    );
    const freed = Date.now();
    free();
    await until('mail to be taken again', () => load.lastAccepted() > freed, AGAIN_MS);
    again.push(load.lastAccepted() - freed);
  }
  await load.stop();
  if (overlooks) await restart(edge, sink);
  return {
    verdict: await judgeWhenQuiet(edge.dir, ledger, sink, overlooks ? 3000 : 60_000),
    refused: load.refused,
    again,
    lowest,
  };
}

/** The next life has only what was on the disk. */
async function restart(edge: World['edge'], sink: World['sink']): Promise<void> {
  await edge.kill();
  sink.answer({ status: 200 });
  await edge.start();
}

describe(`a disk that fills up under load, ${ROUNDS} times`, function () {
  this.timeout(600_000);
  before(function () {
    const reason = noDisk('tmpfs');
    if (reason !== undefined) {
      console.log(`    no disk is filled: ${reason}`);
      this.skip();
    }
  });

  const WHOLE = { lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 };

  it('is noticed before it is full: 452 4.3.1 at MAIL, nothing is lost, and mail is accepted again once there is space', async () => {
    const { verdict, refused, again, lowest } = await squeeze(ROUNDS, LEFT, { env: WATCHED });
    tell('disk full', verdict, {
      refused: refused.length,
      'taken again after ms (at most)': Math.max(...again),
      'MB left': Math.floor(lowest / MEGABYTE),
    });
    expect(verdict).to.deep.include(WHOLE);
    // A client that asks over and over in one session is sent away after a while.
    const refusals = refused.filter(({ reply }) => !reply.startsWith('421 4.7.0'));
    const kinds = new Set(refusals.map(({ step, reply }) => `${step} ${reply.slice(0, 9)}`));
    expect([...kinds]).to.include('MAIL 452 4.3.1');
    // What is left may be less than one account's share, or end between two commands.
    for (const later of ['RCPT 452 4.2.2', 'RCPT 452 4.3.1']) kinds.delete(later);
    expect([...kinds]).to.deep.equal(['MAIL 452 4.3.1']);
  });

  it('loses no acknowledged mail even when the disk fills at once', async () => {
    const { verdict, refused } = await squeeze(ROUNDS, 0, { env: WATCHED });
    tell('disk full to the last byte', verdict, { refused: refused.length });
    expect(verdict).to.deep.include(WHOLE);
    expect(refused.filter(({ reply }) => !/^(45[12] 4\.3\.|452 4\.2\.2|421 4\.7\.0)/.test(reply))).to.deep.equal([]);
  });

  it('is noticed only at the end of data if free space is not checked (control)', async () => {
    const { verdict, refused } = await squeeze(1, 0, { env: UNWATCHED, imports: [OVERLOOK_ROOM] });
    tell('disk full, control', verdict, { refused: refused.length });
    expect(refused.filter(({ step }) => step === 'end of data')).to.not.deep.equal([]);
  });

  it('loses mail if failed commits are ignored (control)', async () => {
    const { verdict } = await squeeze(1, 0, { env: UNWATCHED, imports: [OVERLOOK_ROOM, OVERLOOK_FAILURES] });
    tell('disk full, control', verdict);
    expect(verdict.lost).to.not.deep.equal([]);
  });
});
