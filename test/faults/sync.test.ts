import { statSync } from 'node:fs';
import { cp, mkdtemp } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import { createEdge } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import type { Refused } from '../support/faults/load.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { noStrace } from '../support/strace.ts';
import { until } from '../support/until.ts';

const MESSAGES = size('SYNC_MESSAGES', 2000, 200);
const OVERLOOK = new URL('../support/faults/overlook-failures.ts', import.meta.url);

interface Failure {
  readonly what: string;
  /** File of the queue, the calls on it, and what they answer instead. */
  readonly file: string;
  readonly calls: string;
  readonly fails: string;
  readonly bytes?: number;
  /** The replies to senders of the failed batch; none if they had their 250 before. */
  readonly told: RegExp | undefined;
  /** Whether the file must be replaced by a new one. */
  readonly distrusted: boolean;
}

const SYNC_FAILS: Failure = {
  what: 'a sync of the log fails (EIO)',
  file: 'spool.db-wal',
  calls: 'fsync,fdatasync',
  fails: 'error=EIO:when=20',
  told: /^451 4\.3\.0/,
  distrusted: true,
};

const FAILURES: readonly Failure[] = [
  SYNC_FAILS,
  {
    what: 'a sync of the log finds no space (ENOSPC)',
    file: 'spool.db-wal',
    calls: 'fsync,fdatasync',
    fails: 'error=ENOSPC:when=20',
    told: /^45[12] 4\.3\./,
    distrusted: true,
  },
  {
    what: 'a write to the log fails (EIO)',
    file: 'spool.db-wal',
    calls: 'pwrite64',
    fails: 'error=EIO:when=100',
    told: /^451 4\.3\.0/,
    distrusted: true,
  },
  {
    what: 'a write to the log finds no space (ENOSPC)',
    file: 'spool.db-wal',
    calls: 'pwrite64',
    fails: 'error=ENOSPC:when=100',
    told: /^452 4\.3\.1/,
    distrusted: false,
  },
  {
    what: 'the log cannot be moved into the file (EIO)',
    file: 'spool.db',
    calls: 'fsync,fdatasync',
    fails: 'error=EIO:when=1',
    bytes: 120_000,
    told: undefined,
    distrusted: true,
  },
];

interface Seen {
  readonly verdict: Verdict;
  readonly refused: readonly Refused[];
  readonly replaced: boolean;
  readonly wentOn: boolean;
}

/**
 * Lets one call of the daemon fail while it takes mail that no endpoint takes on yet; what the next life has is what
 * was on the disk. It begins with a copy of what a daemon left, so that the syncs that make the file are not counted.
 * The books are those of all failures so far.
 */
async function fail(
  { dir, edge: { dir: made }, env, ledger, sink, load: startLoad }: World,
  { file, calls, fails, bytes = 10_000, distrusted }: Failure,
  imports: readonly URL[] = [],
): Promise<Seen> {
  const edge = createEdge({ dir: await mkdtemp(join(dir, 'failure-')), url: '', env, prepared: true });
  try {
    await cp(made, edge.dir, { recursive: true });
    const queue = join(edge.dir, 'spool', 'spool.db');
    const before = statSync(queue).ino;
    const under = [
      'strace',
      '-D',
      '-f',
      '--seccomp-bpf',
      '-qq',
      '-o',
      '/dev/null',
      '-P',
      join(edge.dir, 'spool', file),
      '-e',
      `trace=${calls}`,
      '-e',
      `inject=${calls}:${fails}`,
    ];
    await edge.start({ under, imports });
    sink.answer({ status: 0 });
    const load = startLoad({ connections: 20, bytes });
    load.turnTo(edge.daemon().smtp);
    await until('mail to be taken', () => load.acknowledged() >= MESSAGES, 120_000);
    const failed = () => load.refused.at(-1)?.at ?? 0;
    const wentOn = await until('mail to be taken after the failure', () => load.lastAccepted() > failed(), 60_000).then(
      () => true,
      () => false,
    );
    // The log is moved beside the commits: on a fast machine that comes after the last message that is counted.
    const isReplaced = () => statSync(queue, { throwIfNoEntry: false })?.ino !== before;
    // Without the check it never is.
    if (distrusted && imports.length === 0)
      await until('the file to be replaced', isReplaced, 30_000).catch(() => undefined);
    await load.stop();
    const replaced = isReplaced();
    await edge.kill();
    sink.answer({ status: 200 });
    await edge.start();
    const verdict = await judgeWhenQuiet(edge.dir, ledger, sink, imports.length > 0 ? 5000 : 60_000);
    return { verdict, refused: load.refused, replaced, wentOn };
  } finally {
    await edge.kill();
  }
}

describe('a disk that fails under load', function () {
  this.timeout(300_000);
  let world: World;
  before(async function () {
    const reason = noStrace('-D', '-f', '--seccomp-bpf');
    if (reason !== undefined) {
      console.log(`    no call is made to fail: ${reason}`);
      return this.skip();
    }
    world = await openWorld();
    await world.edge.start();
    await world.edge.stop();
  });
  after(() => world?.close());

  for (const failure of FAILURES) {
    it(`gets no 250 for unwritten mail, loses nothing, and recovers: ${failure.what}`, async () => {
      const { verdict, refused, replaced, wentOn } = await fail(world, failure);
      tell(failure.what, verdict, { refused: refused.length });
      expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
      const told = failure.told;
      if (told) {
        expect(refused.filter(({ step }) => step === 'end of data')).to.not.deep.equal([]);
        expect(refused.filter(({ step, reply }) => step === 'end of data' && !told.test(reply))).to.deep.equal([]);
      }
      expect(refused.filter(({ reply }) => !reply.startsWith('4'))).to.deep.equal([]);
      expect({ replaced, wentOn }).to.deep.equal({ replaced: failure.distrusted, wentOn: true });
    });
  }

  it('loses mail if failed commits are ignored (control)', async () => {
    const { verdict } = await fail(world, SYNC_FAILS, [OVERLOOK]);
    tell(`${SYNC_FAILS.what}, control`, verdict);
    expect(verdict.lost).to.not.deep.equal([]);
  });
});
