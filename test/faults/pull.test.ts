import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { expect } from 'chai';
import { KEY } from '../support/daemon.ts';
import { judge, leftIn, type Verdict } from '../support/faults/checker.ts';
import { createEdge } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import { openLedger } from '../support/faults/ledger.ts';
import { startLoad } from '../support/faults/load.ts';
import type { Arrival } from '../support/faults/sink.ts';
import { size } from '../support/faults/sizes.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';

const MESSAGES = size('PULL_MESSAGES', 20_000, 400);
const KILLS = size('PULL_KILLS', 200, 6);
const DAEMON_KILLS = size('PULL_DAEMON_KILLS', 10, 1);
const CONSUMERS = 4;
/** Messages that a consumer holds at one time, at most: what a kill may hand out twice. */
const HELD = 10;

const CONSUMER = new URL('../support/faults/consumer.ts', import.meta.url).pathname;

interface Storm {
  readonly messages: number;
  readonly kills: number;
  readonly daemonKills: number;
  /** When consumers acknowledge: after what they do with a message, or before. */
  readonly order: 'after' | 'before';
  /** What the work on an answer takes. */
  readonly workMs: number;
}

/** Consumers that are killed and replaced, and what they wrote down. */
function startConsumers(base: string, dir: string, { order, workMs }: Storm) {
  const file = join(dir, 'processed');
  const start = () => spawn(process.execPath, [CONSUMER, base, KEY, file, order, `${workMs}`], { stdio: 'ignore' });
  const all: ChildProcess[] = Array.from({ length: CONSUMERS }, start);
  const end = async (child: ChildProcess, signal: NodeJS.Signals) => {
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  };
  return {
    arrivals(): Arrival[] {
      const lines = readFileSync(file, 'utf8').split('\n').slice(0, -1);
      return lines.map((line) => {
        const [id = '', hashes = ''] = line.split(' ');
        return { id, hashes: hashes.split(','), path: '', status: 200, at: 0 };
      });
    },
    /** The one that has run for the longest: one that has just begun holds nothing yet. */
    async killOldest() {
      const oldest = all.shift();
      if (oldest) await end(oldest, 'SIGKILL');
      all.push(start());
    },
    /** Lets them end what they work on. */
    finish: () => Promise.all(all.splice(0).map((child) => end(child, 'SIGTERM'))),
    stop: () => Promise.all(all.splice(0).map((child) => end(child, 'SIGKILL'))),
  };
}

/** Kills consumers, and now and then the daemon, while mail comes in and is pulled. */
async function storm(how: Storm): Promise<Verdict> {
  const { messages, kills, daemonKills, order, workMs } = how;
  const dir = await mkdtemp(join(tmpdir(), 'postern-faults-'));
  const ledger = await openLedger(join(dir, 'ledger'));
  await writeFile(join(dir, 'processed'), '');
  const port = await freePort();
  const env = { POSTERN_HTTP__LISTEN: `127.0.0.1:${port}` };
  const edge = createEdge({ dir: join(dir, 'data'), url: 'pull:', env });
  await edge.start();
  const consumers = startConsumers(`http://127.0.0.1:${port}`, dir, how);
  const load = startLoad(
    { connections: 20, bytes: 5000, to: 'jo@in.test', limit: messages },
    ledger,
    edge.daemon().smtp,
  );
  try {
    const deaths = Array.from({ length: kills }, (_, n) => ({
      at: (n + Math.random()) / (kills + 1),
      whose: 'consumer',
    }));
    for (let n = 0; n < daemonKills; n++) deaths.push({ at: (n + Math.random()) / (daemonKills + 1), whose: 'daemon' });
    // Lost mail never arrives, so there is no wait for it.
    const sure = order === 'before' ? messages - HELD * kills : messages;
    for (const { at, whose } of deaths.sort((a, b) => a.at - b.at)) {
      await until('some to be processed', () => consumers.arrivals().length >= at * sure, 300_000);
      if (whose === 'consumer') {
        await setTimeout((0.2 + 0.6 * Math.random()) * workMs); // those who wrote a moment ago work on the next ones
        await consumers.killOldest();
        continue;
      }
      await edge.kill();
      load.turnTo(undefined);
      await edge.start();
      load.turnTo(edge.daemon().smtp);
    }
    await until('the load', () => load.acknowledged() >= messages, 600_000);
    await load.stop();
    await until(
      'an empty queue',
      async () => (await leftIn(edge.dir)).every(({ state }) => state !== 'waiting'),
      600_000,
    );
    await consumers.finish();
    return judge(ledger, { arrivals: consumers.arrivals() }, await leftIn(edge.dir));
  } finally {
    load.turnTo(undefined);
    await consumers.stop();
    await edge.kill();
    await load.stop();
    await ledger.close();
    await rm(dir, { recursive: true, force: true });
  }
}

describe(`${CONSUMERS} pulling consumers, killed ${KILLS} times in ${MESSAGES} messages`, function () {
  this.timeout(1_800_000);

  it('lose no mail that the daemon, which is killed too, has acknowledged; only leased mail is redelivered', async () => {
    const verdict = await storm({
      messages: MESSAGES,
      kills: KILLS,
      daemonKills: DAEMON_KILLS,
      order: 'after',
      workMs: 100,
    });
    tell('pull storm', verdict, { kills: KILLS, 'of the daemon': DAEMON_KILLS });
    expect(verdict.acknowledged).to.be.at.least(MESSAGES);
    expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
    expect(verdict.duplicates).to.be.at.most(HELD * (KILLS + CONSUMERS * DAEMON_KILLS));
  });

  it('lose mail when they acknowledge before they have processed it (control)', async () => {
    // Most of a consumer's time is work, so that most kills fall into it.
    const verdict = await storm({ messages: 200, kills: 4, daemonKills: 0, order: 'before', workMs: 400 });
    tell('pull storm, control', verdict);
    expect(verdict.lost).to.not.deep.equal([]);
  });
});
