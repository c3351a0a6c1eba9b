import { expect } from 'chai';
import { createCaller, KEY } from '../support/daemon.ts';
import type { Ledger } from '../support/faults/ledger.ts';
import { startLoad } from '../support/faults/load.ts';
import { createRuns } from '../support/faults/runs.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { type Receiver, startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

const ENDPOINTS = size('ENDPOINTS', 100, 40);
const MESSAGES = size('ENDPOINT_MESSAGES', 4500, 480);
const RATE = size('ENDPOINT_RATE', 75, 60);
const WARM = 120;
const PER_ENDPOINT = 8;
/**
 * The target is a change of less than a tenth. Two daemons with nothing but good endpoints differ by more when others
 * use the machine, and a pool that is starved by seconds.
 */
const MAX_TIMES = 1.5;
const MAX_MORE_MS = 100;
/** How long what was sent is waited for. */
const PATIENCE_MS = 5000;

const BADNESS = ['hangs', 'resets', 'refuses'] as const;
type Badness = (typeof BADNESS)[number];

interface Seen {
  /** From the end of a message to its arrival at a good endpoint; milliseconds, the shortest first. */
  readonly times: readonly number[];
  /** Connections to the bad one at one time, at most. */
  readonly atOnce: number;
}

/** A daemon with a hundred endpoints, one of which may go bad. */
interface Arm {
  readonly world: World;
  readonly last: Receiver;
  readonly badness: Badness | undefined;
}

async function openArm(badness: Badness | undefined, env: Readonly<Record<string, string>> = {}): Promise<Arm> {
  const world = await openWorld({
    env: {
      POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: String(PER_ENDPOINT),
      // Short enough for an endpoint that hangs to be thought away while it is measured.
      POSTERN_WEBHOOKS__TIMEOUT_MS: String(Math.round((1000 * MESSAGES) / RATE / 10)),
      ...env,
    },
  });
  await world.edge.start();
  const last = await startReceiver();
  const { api } = createCaller(world.edge.daemon().base, KEY);
  for (let n = 1; n < ENDPOINTS; n++)
    await api('/inbound/add-route', { domain: 'in.test', pattern: `e${n}`, url: `${world.sink.base}/e${n}` });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'last', url: last.url });
  return { world, last, badness };
}

/** All arms at one time, so that whatever else the machine does is done to all of them. */
async function compare(arms: readonly Arm[]): Promise<Seen[]> {
  try {
    // Each endpoint shows what it can do, so that the bad one begins with all that an endpoint may have.
    await Promise.all(arms.map((arm) => send(arm, WARM)));
    await Promise.all(arms.map(({ last, badness }) => spoil(last, badness)));
    return await Promise.all(
      arms.map(async (arm) => {
        const atOnce = watchOpen(arm.last);
        return { times: await send(arm, MESSAGES), atOnce: atOnce() };
      }),
    );
  } finally {
    await Promise.all(
      arms.map(async ({ world, last, badness }) => {
        await world.close();
        if (badness !== 'refuses') await last.stop();
      }),
    );
  }
}

async function spoil(receiver: Receiver, badness: Badness | undefined): Promise<void> {
  if (badness === 'refuses') await receiver.stop();
  else if (badness) receiver.answer(badness === 'resets' ? 'reset' : 'hang');
}

/**
 * Mail for all endpoints in turn, every tenth message for the last one. Answers how long each of the others took, the
 * shortest first.
 */
async function send({ world }: Arm, messages: number): Promise<number[]> {
  const sent = new Map<string, number>();
  // Nothing is lost here: the ledger need not keep the disk busy.
  const ledger: Ledger = {
    ...world.ledger,
    sending(hash) {
      sent.set(hash, Date.now());
    },
    note: async () => {},
  };
  const to = (n: number) => (n % 10 === 0 ? 'last@in.test' : `e${1 + (n % (ENDPOINTS - 1))}@in.test`);
  const from = world.sink.arrivals.length;
  await startLoad(
    { connections: 10, bytes: 4000, to, limit: messages, perSecond: RATE },
    ledger,
    world.edge.daemon().smtp,
  ).done;
  const expected = sent.size - Math.floor(sent.size / 10);
  await until('the good ones to have theirs', () => world.sink.arrivals.length - from >= expected, PATIENCE_MS).catch(
    () => {},
  );
  const took = world.sink.arrivals.slice(from).flatMap(({ hashes, at }) =>
    hashes.flatMap((hash) => {
      const began = sent.get(hash);
      return began === undefined ? [] : [at - began];
    }),
  );
  // What has not come by now took longer than it was waited for.
  return [...took, ...Array.from({ length: Math.max(0, expected - took.length) }, () => PATIENCE_MS)].sort(
    (a, b) => a - b,
  );
}

/** Counts open connections now and then; the answer is the most there were. */
function watchOpen(receiver: Receiver): () => number {
  let most = 0;
  const timer = setInterval(() => {
    most = Math.max(most, receiver.open());
  }, 5);
  return () => {
    clearInterval(timer);
    return most;
  };
}

const percentile = ({ times }: Seen, share: number) =>
  times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? Number.POSITIVE_INFINITY;
const p99 = (seen: Seen) => percentile(seen, 0.99);

const isStarved = (seen: Seen, allGood: Seen): boolean => p99(seen) > MAX_TIMES * p99(allGood) + MAX_MORE_MS;

function show(what: string, seen: Seen, allGood: Seen): void {
  const figures = (
    [
      ['p50', 0.5],
      ['p90', 0.9],
      ['p99', 0.99],
    ] as const
  ).map(([name, share]) => `${name} ${percentile(allGood, share)} and ${percentile(seen, share)} ms`);
  console.log(
    `      ${what}: the good ones with all good and with one bad, at the same time: ${figures.join(', ')}; connections to the bad one ${seen.atOnce} at most`,
  );
}

describe(`one bad endpoint among ${ENDPOINTS}`, function () {
  this.timeout(1_800_000);
  const run = createRuns({
    async all() {
      const [allGood, ...bad] = await compare(
        await Promise.all([undefined, ...BADNESS].map((badness) => openArm(badness))),
      );
      return { allGood, bad };
    },
    async control() {
      const starving = { POSTERN_DELIVERY__CONCURRENCY: '1', POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1' };
      const [allGood, ...bad] = await compare(await Promise.all([openArm(undefined), openArm('hangs', starving)]));
      return { allGood, bad };
    },
  });

  for (const [n, badness] of BADNESS.entries()) {
    it(`that ${badness} does not slow down the others, and gets no more posts at once than allowed`, async () => {
      const { allGood, bad } = await run('all');
      const seen = bad[n];
      if (!allGood || !seen) throw new Error('nothing was measured');
      show(`one endpoint of ${ENDPOINTS} ${badness}`, seen, allGood);
      expect(isStarved(seen, allGood), 'the others are slower').to.equal(false);
      expect(seen.atOnce).to.be.at.most(PER_ENDPOINT);
    });
  }

  it('slows down all if one endpoint may use the whole pool (control)', async () => {
    const {
      allGood,
      bad: [seen],
    } = await run('control');
    if (!allGood || !seen) throw new Error('nothing was measured');
    show(`one endpoint of ${ENDPOINTS} hangs, control`, seen, allGood);
    expect(isStarved(seen, allGood)).to.equal(true);
  });
});
