import { appendFileSync, readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from 'chai';
import { MongoClient } from 'mongodb';
import { judgeWhenQuiet, leftIn, type Verdict } from '../support/faults/checker.ts';
import { hasCopies } from '../support/faults/copies.ts';
import { tell } from '../support/faults/figures.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld } from '../support/faults/world.ts';
import { until } from '../support/until.ts';

const MESSAGES = size('DAMAGE_MESSAGES', 500, 60);
const LARGE_EVERY = 10;
const HOUR_MS = 3_600_000;
const WITHOUT_CHECKSUMS = new URL('../support/faults/without-checksums.ts', import.meta.url);

interface Damage {
  readonly what: string;
  /** How the daemon ended before: killed, with everything in the log; or stopped, with everything in the file. */
  readonly ended: 'killed' | 'stopped';
  /** Does it, in the folder of the queue. */
  readonly hit: (queue: string) => void;
  /** Messages that cannot be had any more. */
  readonly costs: number;
}

/** Changes one bit in the middle of the body of a message. */
function flip(path: string, at: number): void {
  const bytes = readFileSync(path);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(path, bytes);
}

function flipInFile(queue: string): void {
  const path = join(queue, 'spool.db');
  const bytes = readFileSync(path);
  // The first line of some message in the middle; what follows closely is of the same message, what comes later may be
  // elsewhere.
  const at = bytes.indexOf('X-Ledger: ', Math.floor(bytes.length / 2));
  expect(at).to.be.greaterThan(0);
  flip(path, at + 20);
}

function flipSender(queue: string): void {
  const path = join(queue, 'spool.db');
  const bytes = readFileSync(path);
  const at = bytes.indexOf('{"mailFrom":"', Math.floor(bytes.length / 2));
  expect(at).to.be.greaterThan(0);
  flip(path, at + 14);
}

/** In the page of a frame in the middle of the log: everything behind it was committed and synced. */
function flipInLog(queue: string): void {
  const path = join(queue, 'spool.db-wal');
  const frames = Math.floor((readFileSync(path).length - 32) / 4120);
  flip(path, 32 + Math.floor(frames / 2) * 4120 + 1000);
}

/** The path of some large body. */
function large(queue: string): string {
  const [name] = readdirSync(join(queue, 'blobs'));
  expect(name).to.be.a('string');
  return join(queue, 'blobs', name ?? '');
}

/** The end of a log that was being written when the power went: a frame that looks right and is not all there. */
function tear(queue: string): void {
  const path = join(queue, 'spool.db-wal');
  const bytes = readFileSync(path);
  appendFileSync(path, bytes.subarray(bytes.length - 4120, bytes.length - 1000));
}

const DAMAGES: readonly Damage[] = [
  // A message whose body is large has it in no other place: two that are damaged at once are never the same one.
  {
    what: 'a torn end of the log, which costs nothing, and a large body that was cut off',
    ended: 'killed',
    hit(queue) {
      tear(queue);
      truncateSync(large(queue), 100_000);
    },
    costs: 1,
  },
  {
    what: 'a changed bit in the queue file, and one in a large body',
    ended: 'stopped',
    hit(queue) {
      flipInFile(queue);
      flip(large(queue), 150_000);
    },
    costs: 2,
  },
  { what: 'a changed bit in the sender of a message', ended: 'stopped', hit: flipSender, costs: 1 },
];

interface Seen {
  readonly verdict: Verdict;
  /** Deliveries given up because their message is lost, as `postern queue list` shows them. */
  readonly givenUp: number;
  /** Of those, how many the log named as lost. */
  readonly said: number;
  /** Commits that the log said to be missing. */
  readonly missing: number;
}

/** Makes copies old enough for the task that holds them against the queue, which leaves alone what may still be written. */
async function ageCopies(env: Readonly<Record<string, string>>): Promise<void> {
  const client = new MongoClient(env['POSTERN_STORE__URL'] ?? '');
  const createdAt = new Date(Date.now() - HOUR_MS);
  const { matchedCount } = await client.db().collection('copies').updateMany({}, { $set: { createdAt } });
  await client.close();
  expect(matchedCount).to.be.above(0);
}

/** Accepts mail without delivering it, damages the files, and starts on them. */
async function damage({ ended, hit }: Damage, imports: readonly URL[] = []): Promise<Seen> {
  const world = await openWorld({ env: { POSTERN_TASKS__TEND_COPIES: '* * * * * *' } });
  try {
    const { edge, ledger, sink } = world;
    sink.answer({ status: 0 }); // no endpoint answers, so that everything waits
    await edge.start({ imports });
    const load = world.load({ limit: MESSAGES, bytes: (n) => (n % LARGE_EVERY === 0 ? 300_000 : 8000) });
    load.turnTo(edge.daemon().smtp);
    await load.done;
    await (ended === 'killed' ? edge.kill() : edge.stop());
    hit(join(edge.dir, 'spool'));
    sink.answer({ status: 200 });
    await edge.start({ imports });
    if (hasCopies) await ageCopies(world.env);
    const { lines } = edge.daemon();
    await until(
      'an empty queue',
      async () => (await leftIn(edge.dir)).every(({ state }) => state !== 'waiting'),
      60_000,
    );
    const verdict = await judgeWhenQuiet(edge.dir, ledger, sink, hasCopies ? 60_000 : 1000);
    const lost = (await leftIn(edge.dir)).filter(({ last_error }) => last_error?.startsWith('message lost: '));
    const said = lost.filter(({ id }) =>
      lines.some(
        (line) => line.event === 'spool.fault' && line.level === 'error' && line['message'] === id.slice(0, 26),
      ),
    );
    const missing = lines.reduce(
      (sum, line) =>
        sum + (line.event === 'spool.fault' && typeof line['aside'] === 'string' ? Number(line['transactions']) : 0),
      0,
    );
    return { verdict, givenUp: lost.length, said: said.length, missing };
  } finally {
    await world.close();
  }
}

describe('data damaged on the disk', function () {
  this.timeout(300_000);

  for (const one of DAMAGES) {
    it(`costs what was hit, which is a dead letter and in the log, and nothing else: ${one.what}`, async () => {
      const { verdict, givenUp, said } = await damage(one);
      const costs = hasCopies ? 0 : one.costs;
      tell(one.what, verdict);
      expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0 });
      expect(verdict.delivered).to.equal(verdict.acknowledged - costs);
      expect({ givenUp, said, dead: verdict.dead }).to.deep.equal({ givenUp: costs, said: costs, dead: costs });
    });
  }

  const COMES_TO = hasCopies ? 'what is missing comes back from its copies' : 'readable mail is delivered';
  it(`is reported if a bit flips in the middle of the log, which SQLite takes for its end; ${COMES_TO}`, async () => {
    const what = 'a changed bit in the middle of the log';
    const { verdict, missing } = await damage({ what, ended: 'killed', hit: flipInLog, costs: 0 });
    tell(what, verdict);
    console.log(`      ${verdict.lost.length} messages and ${missing} commits are missing, and the log says so`);
    expect(verdict).to.deep.include({ mismatched: [], altered: [], waiting: 0 });
    expect(verdict.delivered).to.equal(verdict.acknowledged - verdict.lost.length);
    if (hasCopies) expect(verdict.lost).to.deep.equal([]);
    else expect(verdict.lost.length).to.be.above(0);
    expect(missing).to.be.above(1);
  });

  it('is delivered unnoticed without the checksum (control)', async () => {
    const { verdict, givenUp } = await damage({ what: 'control', ended: 'stopped', hit: flipInFile, costs: 0 }, [
      WITHOUT_CHECKSUMS,
    ]);
    tell('a changed bit in the queue file, control', verdict);
    expect({ altered: verdict.altered.length, lost: verdict.lost.length, givenUp }).to.deep.equal({
      altered: 1,
      lost: 1,
      givenUp: 0,
    });
  });
});
