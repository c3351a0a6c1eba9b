import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { expect } from 'chai';
import { spawnDaemon } from '../support/child.ts';
import { type Answer, createCaller, KEY } from '../support/daemon.ts';
import { judgeWhenQuiet, type Verdict } from '../support/faults/checker.ts';
import type { Life } from '../support/faults/edge.ts';
import { tell } from '../support/faults/figures.ts';
import { startPlug, type Wire } from '../support/faults/plug.ts';
import { createRuns } from '../support/faults/runs.ts';
import { size } from '../support/faults/sizes.ts';
import { canLock, lockStore } from '../support/faults/store-lock.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { message, sendMail } from '../support/mail.ts';
import { type MongoServer, mongoKind, startMongo } from '../support/mongo-server.ts';
import { until } from '../support/until.ts';

/** Longer than the daemon believes what it read before. */
const AWAY_MS = size('STORE_AWAY_MS', 60_000, 16_000);
const RATE = size('STORE_RATE', 500, 60);
const MAX_TO_EMPTY_MS = 30_000;
/** After a thousand messages a session has to begin anew, whether the store is there or not. */
const SESSION_IS_OVER = /^421 4\.7\.0 Too many messages/;
/** How long an operation may take before the store counts as away. */
const TIMEOUT_MS = 3000;

/** A store that can be taken away, with the settings of a daemon that uses it. */
interface Fragile {
  readonly env: Readonly<Record<string, string>>;
  /** Takes it away; the answer brings it back. */
  take(world: World): Promise<() => Promise<void>>;
  close(): Promise<void>;
}

interface Seen {
  readonly verdict: Verdict;
  /** Messages a second before. */
  readonly rate: number;
  /** Messages accepted in this number of seconds without the store, and replies other than 250. */
  readonly accepted: number;
  readonly seconds: number;
  readonly refused: readonly string[];
  /** What was accepted and what was delivered in the last third of that time. */
  readonly late: { readonly accepted: number; readonly delivered: number };
  /** What calls were answered meanwhile: a read and a write. */
  readonly calls: readonly Answer[];
  /** What a daemon says to RCPT that starts meanwhile. */
  readonly stranger: string;
  /** From the return of the store to its first answer, and from the end of the load to an empty queue. Milliseconds. */
  readonly backMs: number;
  readonly emptyMs: number;
}

const embedded = async (): Promise<Fragile> => ({
  env: {},
  take: ({ edge }) => lockStore(join(edge.dir, 'store.db')),
  close: async () => {},
});

/** MongoDB behind a wire that refuses or hangs. */
async function mongo(server: MongoServer, wire: Wire): Promise<Fragile> {
  const plug = await startPlug(server.address);
  return {
    env: { POSTERN_STORE__URL: server.url(`postern_faults_${randomBytes(4).toString('hex')}`, plug.address) },
    async take() {
      await plug.be(wire);
      return () => plug.be('whole');
    },
    close: () => plug.close(),
  };
}

async function away(fragile: Fragile, life: Life = {}): Promise<Seen> {
  const env = { POSTERN_STORE__TIMEOUT_MS: String(TIMEOUT_MS), ...fragile.env };
  const world = await openWorld({ env });
  try {
    // One life only: FerretDB 1.24 breaks off (a panic) when indexes that are there are asked for again.
    await world.edge.start(life);
    const { smtp, base } = world.edge.daemon();
    const { ask } = createCaller(base, KEY);
    const load = world.load({ perSecond: RATE, bytes: 4000 });
    load.turnTo(smtp);
    const first = performance.now();
    await until('some mail', () => load.acknowledged() >= 2 * RATE, 60_000);
    const rate = (load.acknowledged() * 1000) / (performance.now() - first);
    const bringBack = await fragile.take(world);
    const taken = performance.now();
    await until('calls to hear of it', async () => (await ask('/inbound/domains')).status === 503, 30_000);
    // What was known a moment ago may still be answered.
    await new Promise((resolve) => {
      setTimeout(resolve, TIMEOUT_MS / 2);
    });
    const began = performance.now();
    const [before, refusedBefore] = [load.acknowledged(), load.refused.length];
    const calls = await Promise.all([ask('/inbound/domains'), ask('/rejects/add', { email: 'a@example.org' })]);
    const stranger = fragile.env['POSTERN_STORE__URL'] === undefined ? '451' : await asStranger(world, env);
    await until('most of the time away', () => performance.now() - taken > (AWAY_MS * 2) / 3, AWAY_MS);
    const third = { from: performance.now(), accepted: load.acknowledged(), delivered: world.sink.arrivals.length };
    await until('the time away', () => performance.now() - third.from > AWAY_MS / 3, AWAY_MS);
    const late = {
      accepted: load.acknowledged() - third.accepted,
      delivered: world.sink.arrivals.length - third.delivered,
    };
    const seconds = (performance.now() - began) / 1000;
    const [accepted, refused] = [
      load.acknowledged() - before,
      load.refused
        .slice(refusedBefore)
        .map(({ reply }) => reply)
        .filter((reply) => !SESSION_IS_OVER.test(reply)),
    ];
    const returned = performance.now();
    await bringBack();
    await until('the store to answer', async () => (await ask('/inbound/domains')).status === 200, 60_000);
    const backMs = performance.now() - returned;
    await load.stop();
    const stopped = performance.now();
    const verdict = await judgeWhenQuiet(world.edge.dir, world.ledger, world.sink);
    return {
      verdict,
      rate,
      accepted,
      seconds,
      refused,
      late,
      calls,
      stranger,
      backMs,
      emptyMs: performance.now() - stopped,
    };
  } finally {
    await world.close();
    await fragile.close();
  }
}

/** What a daemon that has never read the routes says to a recipient. */
async function asStranger(world: World, env: Readonly<Record<string, string>>): Promise<string> {
  const daemon = await spawnDaemon(join(world.dir, 'stranger'), env);
  try {
    return await sendMail(daemon.smtp, { from: 'ada@example.org', to: 'jo@in.test' }, message('early'));
  } finally {
    await daemon.end('SIGKILL');
  }
}

function show(what: string, { verdict, rate, accepted, seconds, refused, late, backMs, emptyMs }: Seen): void {
  tell(what, verdict, {
    'away ms': AWAY_MS,
    'a second before': Math.round(rate),
    'a second meanwhile': Math.round(accepted / seconds),
    'refused meanwhile': refused.length,
    'accepted at last': late.accepted,
    'delivered at last': late.delivered,
    'back after ms': Math.round(backMs),
    'empty after ms': Math.round(emptyMs),
  });
}

function expectTargets({ verdict, rate, accepted, seconds, refused, late, calls, stranger, emptyMs }: Seen): void {
  expect(refused).to.deep.equal([]);
  // A machine that is shared may be slow; mail that stopped would be at nothing.
  expect(accepted / seconds).to.be.above(rate / 4);
  // What needs nothing new of the store does not wait for it.
  expect(late.delivered, 'delivered in the last third').to.be.above(late.accepted / 2);
  for (const { status, body } of calls)
    expect([status, body.name, body.code]).to.deep.equal([503, 'ServiceUnavailable', -2]);
  expect(stranger).to.match(/^451/);
  expect(verdict).to.deep.include({ lost: [], mismatched: [], altered: [], waiting: 0, dead: 0 });
  expect(emptyMs).to.be.below(MAX_TO_EMPTY_MS);
}

describe(`a store that is unavailable for ${AWAY_MS} ms under ${RATE} messages a second`, function () {
  this.timeout(1_800_000);
  const kind = mongoKind();
  let server: MongoServer | undefined;
  before(async () => {
    if (kind) server = await startMongo(kind);
  });
  after(() => server?.stop());

  const onMongo = (wire: Wire) => async () => server && away(await mongo(server, wire));
  const onFile = (life?: Life) => async () => (canLock() ? away(await embedded(), life) : undefined);
  const run = createRuns({
    locked: onFile(),
    refuses: onMongo('refuses'),
    hangs: onMongo('hangs'),
    control: onFile({ imports: [new URL('../support/faults/forget-routes.ts', import.meta.url)] }),
  });

  it('embedded, file locked by another process: mail is accepted and delivered, calls get a temporary error', async function () {
    const seen = await run('locked');
    if (!seen) return this.skip();
    show('embedded store locked', seen);
    expectTargets(seen);
  });

  for (const wire of ['refuses', 'hangs'] as const) {
    it(`MongoDB that ${wire}: mail is accepted and delivered, calls get a temporary error, nothing is refused permanently`, async function () {
      const seen = await run(wire);
      if (!seen) return this.skip();
      show(`MongoDB ${wire}`, seen);
      expectTargets(seen);
    });
  }

  it('stops the mail if routes are not cached (control)', async function () {
    const seen = await run('control');
    if (!seen) return this.skip();
    show('embedded store locked, control', seen);
    expect(seen.accepted).to.equal(0);
    expect(seen.refused[0]).to.match(/^451/);
  });
});
