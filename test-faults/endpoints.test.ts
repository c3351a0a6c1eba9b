import { expect } from 'chai';
import { createCaller, KEY } from '../test/support/daemon.ts';
import { startReceiver, type Receiver } from '../test/support/receiver.ts';
import { until } from '../test/support/until.ts';
import type { Ledger } from './support/ledger.ts';
import { startLoad } from './support/load.ts';
import { createRuns } from './support/runs.ts';
import { size, SMALL } from './support/sizes.ts';
import { openWorld, type World } from './support/world.ts';

const ENDPOINTS = 100;
const ROUNDS = size('ENDPOINT_ROUNDS', 6, 1);
const MESSAGES = size('ENDPOINT_MESSAGES', 1000, 150);
const RATE = size('ENDPOINT_RATE', 200, 60);
const PER_ENDPOINT = 8;
/** The target is a change of less than a tenth; rounds of a shared machine differ by more, so this is what a starved pool is told by. */
const MOST_TIMES = 3;
const MOST_MORE_MS = 250;
/** How long a message of a round is waited for. */
const PATIENCE_MS = 5000;

type Badness = 'hangs' | 'resets' | 'refuses';

interface Seen {
  /** 99th percentile from the end of a message to its arrival at one of the good endpoints; milliseconds. */
  readonly p99: { readonly allGood: number; readonly oneBad: number };
  readonly p50: { readonly allGood: number; readonly oneBad: number };
  /** Connections to the bad one at one time, at most. */
  readonly atOnce: number;
}

/** Rounds of mail for a hundred endpoints, in turn with all of them good and with one bad. */
async function compare(badness: Badness, rounds: number, env: Readonly<Record<string, string>> = {}): Promise<Seen> {
  const world = await openWorld({ env: { POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: String(PER_ENDPOINT), ...env } });
  const bad = await startReceiver();
  try {
    await world.edge.start();
    await route(world, bad.url);
    if (badness === 'refuses') await bad.stop();
    await round(world, false); // the daemon and its endpoints warm up
    const times = { allGood: [] as number[], oneBad: [] as number[] };
    bad.answer(badness === 'resets' ? 'reset' : 'hang');
    const watch = watchOpen(bad);
    for (let n = 0; n < rounds; n++) {
      times.allGood.push(...await round(world, false));
      times.oneBad.push(...await round(world, true));
    }
    const at = (share: number) => ({ allGood: percentile(times.allGood, share), oneBad: percentile(times.oneBad, share) });
    return { p99: at(0.99), p50: at(0.5), atOnce: watch() };
  } finally {
    await world.close();
    await bad.stop();
  }
}

/** Mailbox `e<n>` goes to an endpoint of its own, `bad` to the bad one. */
async function route(world: World, bad: string): Promise<void> {
  const { api } = createCaller(world.edge.daemon().base, KEY);
  for (let n = 1; n < ENDPOINTS; n++) await api('/inbound/add-route', { domain: 'in.test', pattern: `e${n}`, url: `${world.sink.base}/e${n}` });
  await api('/inbound/add-route', { domain: 'in.test', pattern: 'bad', url: bad });
}

/** One round of mail; every tenth message is for the bad endpoint when it takes part. Answers how long each of the others took. */
async function round(world: World, withBad: boolean): Promise<number[]> {
  const sent = new Map<string, number>();
  const ledger: Ledger = { ...world.ledger, sending(hash) { sent.set(hash, Date.now()); world.ledger.sending(hash); } };
  const to = (n: number) => withBad && n % 10 === 0 ? 'bad@in.test' : `e${1 + n % (ENDPOINTS - 1)}@in.test`;
  const from = world.sink.arrivals.length;
  await startLoad({ connections: 10, bytes: 4000, to, limit: MESSAGES, perSecond: RATE }, ledger, world.edge.daemon().smtp).done;
  const expected = sent.size - (withBad ? Math.floor(sent.size / 10) : 0);
  await until('the good ones to have theirs', () => world.sink.arrivals.length - from >= expected, PATIENCE_MS).catch(() => {});
  const took = world.sink.arrivals.slice(from).flatMap(({ hashes, at }) => hashes.flatMap((hash) => {
    const began = sent.get(hash);
    return began === undefined ? [] : [at - began];
  }));
  // What has not come by now took longer than it was waited for.
  return [...took, ...Array.from({ length: Math.max(0, expected - took.length) }, () => PATIENCE_MS)];
}

/** Counts open connections now and then; the answer is the most there were. */
function watchOpen(receiver: Receiver): () => number {
  let most = 0;
  const timer = setInterval(() => { most = Math.max(most, receiver.open()); }, 5);
  return () => {
    clearInterval(timer);
    return most;
  };
}

function percentile(numbers: readonly number[], share: number): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.POSITIVE_INFINITY;
}

/** At its small size a case shares the machine with others of its kind, and the slowest message of a hundred says more of them. */
function isStarved({ p50, p99 }: Seen): boolean {
  const { allGood, oneBad } = SMALL ? p50 : p99;
  return oneBad > MOST_TIMES * allGood + MOST_MORE_MS;
}

function show(what: string, { p50, p99, atOnce }: Seen): void {
  const change = (100 * (p99.oneBad / p99.allGood - 1)).toFixed(0);
  console.log(`      ${what}: the good ones' p50 ${p50.allGood} ms with all good, ${p50.oneBad} ms with one bad; p99 ${p99.allGood} and ${p99.oneBad} ms (${change} %); connections to the bad one ${atOnce} at most`);
}

describe(`one bad endpoint among ${ENDPOINTS}`, function () {
  this.timeout(1_800_000);
  const run = createRuns({
    hangs: () => compare('hangs', ROUNDS),
    resets: () => compare('resets', ROUNDS),
    refuses: () => compare('refuses', ROUNDS),
    control: () => compare('hangs', 1, { POSTERN_DELIVERY__CONCURRENCY: '1', POSTERN_DELIVERY__CONCURRENCY_PER_ENDPOINT: '1' }),
  });

  for (const badness of ['hangs', 'resets', 'refuses'] as const) {
    it(`that ${badness} does not slow down the others, and gets no more posts at once than an endpoint may`, async () => {
      const seen = await run(badness);
      show(`one endpoint of ${ENDPOINTS} ${badness}`, seen);
      expect(isStarved(seen), 'the others are slower').to.equal(false);
      expect(seen.atOnce).to.be.at.most(PER_ENDPOINT);
    });
  }

  it('slows down all when the pool is no larger than what one may take (control)', async () => {
    const seen = await run('control');
    show(`one endpoint of ${ENDPOINTS} hangs, control`, seen);
    expect(isStarved(seen)).to.equal(true);
  });
});
