import { expect } from 'chai';
import { postern as command } from '../support/command.ts';
import { createCaller, KEY } from '../support/daemon.ts';
import { leftIn } from '../support/faults/checker.ts';
import type { Life } from '../support/faults/edge.ts';
import { footprintOf } from '../support/faults/footprint.ts';
import { type Hostile, type Spoiling, startHostile } from '../support/faults/hostile.ts';
import { createRuns } from '../support/faults/runs.ts';
import { size } from '../support/faults/sizes.ts';
import { openWorld, type World } from '../support/faults/world.ts';
import { message, sendMail } from '../support/mail.ts';
import { until } from '../support/until.ts';

/** The deadline of a post. Its default is 30 s. Milliseconds. */
const DEADLINE = size('ANSWER_DEADLINE_MS', 30_000, 1000);
/** How much later a connection may end on a machine that is busy. */
const LATE = 1500;
const MESSAGES = size('ANSWER_MESSAGES', 16, 4);
const MAX_GROWTH = 10;
const KINDS: readonly Spoiling[] = ['drip-headers', 'drip-body', 'endless-body', 'endless-header'];

const COLLECTING = new URL('../support/faults/collect-garbage.ts', import.meta.url);
const TRUSTING = new URL('../support/faults/trust-answers.ts', import.meta.url);
const AS_IT_IS: Life = { imports: [COLLECTING] };

interface Seen {
  /** The longest that a connection was held, in milliseconds. */
  readonly heldMs: number;
  /** Connections that were spoilt. */
  readonly spoilt: number;
  /** By how many megabytes the daemon's memory was above what it was before, at most. */
  readonly growth: number;
  /**
   * Sockets that the daemon had not had before, and what waited, when the receivers were good again. Controls do not
   * wait for that.
   */
  readonly sockets?: number;
  readonly left?: number;
}

/** Mail for a receiver of each kind, `waitMs` of their worst, and then good answers until the queue is empty. */
async function suffer(waitMs: number, life: Life, most?: number): Promise<Seen> {
  const world = await openWorld({ env: { POSTERN_WEBHOOKS__TIMEOUT_MS: String(DEADLINE) } });
  const receivers = await Promise.all(KINDS.map((kind) => startHostile(kind, most)));
  try {
    await world.edge.start(life);
    const daemon = footprintOf(world.edge.daemon().pid);
    const sockets = daemon.sockets();
    await warmUp(world, receivers);
    const resident = daemon.resident();
    daemon.forget();
    for (let n = 0; n < MESSAGES; n++) for (const kind of KINDS) await mail(world, kind, `${kind} ${n}`);
    // What begins to be held later than this is not waited for.
    await until(
      'each of them to spoil two answers',
      () => receivers.every(({ held, open }) => held.length + open() >= 2),
      30_000,
    );
    await new Promise((resolve) => {
      setTimeout(resolve, waitMs);
    });
    const growth = daemon.most() - resident;
    const heldMs = Math.max(
      ...receivers.flatMap(({ held, open }) => [
        ...held,
        ...(open() > 0 && held.length === 0 ? [Number.POSITIVE_INFINITY] : []),
      ]),
    );
    const spoilt = receivers.reduce((sum, { held }) => sum + held.length, 0);
    const seen = { heldMs, spoilt, growth };
    if (life !== AS_IT_IS) return seen;
    const left = await recover(world, receivers);
    await until('idle connections to end', () => daemon.sockets() <= sockets, 15_000).catch(() => {});
    return { ...seen, left, sockets: Math.max(0, daemon.sockets() - sockets) };
  } finally {
    await world.close();
    await Promise.all(receivers.map((receiver) => receiver.stop()));
  }
}

/** Routes to the receivers, and so much good mail that the daemon has reached its size. */
async function warmUp(world: World, receivers: readonly Hostile[]): Promise<void> {
  const { api } = createCaller(world.edge.daemon().base, KEY);
  for (const [n, kind] of KINDS.entries()) {
    await api('/inbound/add-route', { domain: 'in.test', pattern: kind, url: receivers[n]?.url });
  }
  const load = world.load({ limit: size('ANSWER_WARM_UP', 3000, 200), bytes: 2000 });
  load.turnTo(world.edge.daemon().smtp);
  await load.done;
  for (const kind of KINDS) for (let n = 0; n < 5; n++) await mail(world, kind, `${kind}, warming up`);
  await until('the warming up', async () => (await leftIn(world.edge.dir)).length === 0, 60_000);
  for (const receiver of receivers) receiver.spoil(true);
}

async function mail(world: World, to: string, subject: string): Promise<void> {
  const reply = await sendMail(
    world.edge.daemon().smtp,
    { from: 'ada@example.org', to: `${to}@in.test` },
    message(subject),
  );
  if (!reply.startsWith('250')) throw new Error(reply);
}

/** The receivers answer well from now on; answers how many deliveries are left all the same. */
async function recover(world: World, receivers: readonly Hostile[]): Promise<number> {
  for (const receiver of receivers) receiver.spoil(false);
  await until(
    'an empty queue',
    async () => {
      await command(['queue', 'flush'], { POSTERN_DATA_DIR: world.edge.dir });
      return (await leftIn(world.edge.dir)).length === 0;
    },
    20_000 + DEADLINE,
  ).catch(() => {});
  return (await leftIn(world.edge.dir)).length;
}

function show(what: string, { heldMs, spoilt, growth, sockets, left }: Seen): void {
  const afterwards = sockets === undefined ? '' : `, sockets +${sockets}, left in the queue ${left}`;
  console.log(
    `      ${what}: ${spoilt} answers spoilt, held ${Math.round(heldMs)} ms at most (deadline ${DEADLINE}), memory +${growth.toFixed(1)} MB${afterwards}`,
  );
}

describe('endpoints with slow or endless answers', function () {
  this.timeout(1_800_000);
  const run = createRuns({
    asItIs: () => suffer(2 * DEADLINE + LATE, AS_IT_IS),
    patient: () => suffer(DEADLINE + LATE, { env: { POSTERN_WEBHOOKS__TIMEOUT_MS: '600000' } }),
    trusting: () => suffer(DEADLINE, { imports: [COLLECTING, TRUSTING] }, 100 * 2 ** 20),
  });

  it('are closed at the deadline without memory growth, leaked sockets or lost mail', async () => {
    const seen = await run('asItIs');
    show('answers', seen);
    expect(seen.heldMs).to.be.within(DEADLINE * 0.9, DEADLINE + LATE);
    expect(seen.spoilt).to.be.at.least(2 * KINDS.length);
    expect(seen.growth).to.be.below(MAX_GROWTH);
    expect(seen).to.include({ sockets: 0, left: 0 });
  });

  it('keep their connections without a deadline (control)', async () => {
    const seen = await run('patient');
    show('answers, control without a deadline', seen);
    expect(seen.heldMs).to.be.above(DEADLINE + LATE);
  });

  it('fill the memory if answers are read to their end (control)', async () => {
    const seen = await run('trusting');
    show('answers, control that reads all', seen);
    expect(seen.growth).to.be.above(MAX_GROWTH);
  });
});
